"""What a benchmark says: a table for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

LABELS: dict[str, tuple[str, str]] = {
    "prefill_tok_s": ("prefill", "{:,.0f} tok/s"),
    "decode_tok_s": ("decode", "{:,.1f} tok/s"),
    "output_tok_s": ("output", "{:,.1f} tok/s"),
    "total_tok_s": ("prompt and output", "{:,.1f} tok/s"),
    "duration_s": ("duration", "{:.2f} s"),
    "percent_of_bandwidth": ("decode, of memory bandwidth", "{:.1f} %"),
    "percent_of_compute": ("prefill, of arithmetic", "{:.1f} %"),
    "kv_efficiency": ("KV efficiency (live / held)", "{:.3f}"),
    "kv_peak": ("KV at its fullest (live / total)", "{:.3f}"),
    "python_share": ("Python's share of a step", "{:.3f}"),
    "preemptions": ("preemptions", "{:d}"),
    "read_bytes_s": ("memory, reading", "{:.2f} GB/s"),
    "int8_ops_s": ("int8 multiply-add", "{:,.0f} GOP/s"),
    "bf16_flops_s": ("bf16 multiply-add", "{:,.0f} GFLOP/s"),
    "fp32_flops_s": ("fp32 multiply-add", "{:,.0f} GFLOP/s"),
    "ttft_ms": ("time to first token", "{:.1f}"),
    "itl_ms": ("between tokens", "{:.1f}"),
}
"""Name and format of each measure a table shows."""
PERCENTILES = ("p50", "p90", "p95", "p99", "max", "mean")


def show(result: Mapping[str, Any], title: str, console: Console) -> None:
    """Print the measures of ``result`` that have a label, and the summaries in milliseconds below them."""
    table = Table(title=title, title_justify="left", show_header=False, box=None, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    summaries = {}
    for name, value in result.items():
        if isinstance(value, Mapping) and name in LABELS:
            summaries[name] = value
        elif name in LABELS and value is not None:
            label, form = LABELS[name]
            table.add_row(label, form.format(value / 1e9 if name.endswith(("bytes_s", "ops_s")) else value))
    console.print(table)
    if summaries:
        console.print(_milliseconds(summaries))


def _milliseconds(summaries: Mapping[str, Mapping[str, float]]) -> Table:
    table = Table("ms", *PERCENTILES, box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, summary in summaries.items():
        label, form = LABELS[name]
        table.add_row(label, *(form.format(summary[p]) for p in PERCENTILES))
    return table


def write_json(result: Mapping[str, Any], path: Path) -> None:
    """One object, keys in the order given."""
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
