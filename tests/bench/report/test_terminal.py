from __future__ import annotations

import io
import json

from rich.console import Console

from octavo.bench.report.terminal import show, write_json
from octavo.bench.stats import summary_ms

RESULT = {
    "prefill_tok_s": 1234.4,
    "percent_of_bandwidth": 71.26,
    "read_bytes_s": 38.5e9,
    "int8_ops_s": 2.5e12,
    "python_share": 0.0312,
    "ttft_ms": summary_ms([0.1, 0.3]),
    "itl_ms": None,
    "plan": {"repeats": 3},
    "numerics_id": "abc",
}


def test_table_shows_measures_with_units_and_percentiles():
    out = io.StringIO()
    show(RESULT, "latency", Console(file=out, width=120))
    lines = [" ".join(line.split()) for line in out.getvalue().splitlines() if line.strip()]
    assert lines == [
        "latency",
        "prefill 1,234 tok/s",
        "decode, of memory bandwidth 71.3 %",
        "memory, reading 38.50 GB/s",
        "int8 multiply-add 2,500 GOP/s",
        "Python's share of a step 0.031",
        "ms p50 p90 p95 p99 max mean",
        "time to first token 200.0 280.0 290.0 298.0 300.0 200.0",
    ]


def test_json_holds_everything(tmp_path):
    write_json(RESULT, tmp_path / "result.json")
    assert json.loads((tmp_path / "result.json").read_text()) == RESULT
