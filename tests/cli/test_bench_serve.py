"""``octavo bench serve`` as a user runs it, against a mock server and against a server that it starts."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from octavo.bench.load.sse import Event, EventReader
from octavo.bench.machine import MachineRates
from octavo.bench.report.schema import stored_schema
from octavo.cli.main import app
from support.live_server import TESTS
from support.mock_openai import MockProcess, MockServer
from support.scripted import SCRIPTED, Script
from support.toy_tokenizer import write_model

RATES = MachineRates(read_bytes_s=1e9, int8_ops_s=1e9, bf16_flops_s=1e9, fp32_flops_s=1e9, cpus=(0,))
LATENCIES = ("ttft_ms", "itl_ms", "tpot_ms", "e2e_ms")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a look at the machine before the run."""
    monkeypatch.setattr("octavo.bench.report.quiet.Quiet.look_before", lambda quiet: None)
    monkeypatch.setattr("octavo.bench.load.run.GONE_S", 0.5)


def bench(url: str, *flags: str) -> int:
    return app(["bench", "serve", "--url", url, "--max-client-lag-ms", "10000", *flags])


def test_the_result_has_the_keys_of_the_contract(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "result.json"
    flags = ["--request-rate", "40", "--num-prompts", "20", "--input-len", "6", "--output-len", "5", "--slo", "itl:p99<9s,ttft:p99<9s"]
    with MockServer(gap_ms=5, cached_tokens=1) as mock:
        assert bench(mock.url, *flags, "--price-per-hour", "2", "--output", str(output)) == 0
        assert len(mock.seen) == 21  # and the probe
    result = json.loads(output.read_text())
    for name in LATENCIES:
        assert {"p50", "p90", "p95", "p99", "max", "mean", "p99_ci95"} <= result[name].keys()
    assert (result["completed"], result["failed"]) == (20, 0)
    assert result["goodput_rps"] == pytest.approx(20 / result["window_s"])
    assert result["output_tok_s"] == pytest.approx(100 / result["window_s"])
    assert result["total_tok_s"] == pytest.approx(220 / result["window_s"])
    assert result["cached_prompt_tokens"] == 20
    assert result["valid"] and not result["partial"]
    assert result["cost"]["price_per_hour"] == 2
    assert result["asked"]["model"] == "mock"
    jsonschema.validate(result, stored_schema("serve"))
    assert result["facts"]["seeds"] and result["facts"]["machine"]["cpu"] and result["facts"]["software"]["octavo"]
    shown = capsys.readouterr().out
    assert "TTFT" in shown and "goodput" in shown and "machine: cpu" in shown


def test_bm_13_the_seed_fixes_what_is_sent_and_a_salt_changes_it() -> None:
    def prompts(*flags: str) -> list[Any]:
        with MockServer() as mock:
            assert bench(mock.url, "--request-rate", "500", "--num-prompts", "5", "--output-len", "2", *flags) == 0
            return [(seen["body"]["prompt"], seen["body"].get("cache_salt")) for seen in mock.seen[1:]]

    first = prompts("--seed", "3")
    assert sorted(first) == sorted(prompts("--seed", "3"))
    other = prompts("--seed", "3", "--salt", "again")
    assert [len(prompt) for prompt, _ in first] == [len(prompt) for prompt, _ in other]
    assert not {tuple(prompt) for prompt, _ in first} & {tuple(prompt) for prompt, _ in other}
    salted = prompts("--seed", "3", "--cache-salt", "again")
    assert sorted(prompt for prompt, _ in salted) == sorted(prompt for prompt, _ in first)
    assert {salt for _, salt in salted} == {"again"}


def test_a_report_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo.bench.serve.measure_rates", lambda *_: None)
    with MockServer(gap_ms=2) as mock:
        assert bench(mock.url, "--num-prompts", "5", "--max-concurrency", "2", "--output-len", "4", "--report", str(tmp_path / "r")) == 0
    assert {"report.html", "report.md", "report.json"} <= {path.name for path in (tmp_path / "r").iterdir()}


def test_credentials_and_home_folders_are_in_no_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("octavo.bench.serve.measure_rates", lambda *_: None)
    workload = tmp_path / "load.toml"
    (tmp_path / "trace.jsonl").write_text('{"timestamp": 0, "input_length": 4, "output_length": 2}\n')
    workload.write_text(f'name = "w"\n[trace]\nfile = "{tmp_path}/trace.jsonl"\n')
    report, output = tmp_path / "r", tmp_path / "o.json"
    overrides = {"0": {"status": 200}}  # the probe
    with MockServer(status=400, message=f"no such file: {tmp_path}/weights", overrides=overrides) as mock:
        url = mock.url.replace("http://", "http://gerda:swordfish@")
        flags = ["--workload", str(workload), "--output", str(output), "--report", str(report)]
        assert bench(url, *flags) == 1
    for path in (output, report / "report.html", report / "report.md", report / "report.json"):
        text = path.read_text()
        assert "swordfish" not in text and str(tmp_path) not in text, path
    assert "~/trace.jsonl" in json.loads(output.read_text())["asked"]["workload"]["trace"]["file"]


def test_a_step_log_of_another_version_costs_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise ValueError("zip() argument 2 is shorter than argument 1")

    monkeypatch.setattr("octavo.bench.observe.server.roofline", broken)
    monkeypatch.setattr("octavo.bench.serve.measure_rates", lambda *_: RATES)
    output = tmp_path / "o.json"
    with MockServer() as mock:
        flags = [
            "--num-prompts",
            "5",
            "--request-rate",
            "40",
            "--output-len",
            "2",
            "--output",
            str(output),
            "--report",
            str(tmp_path / "r"),
        ]
        assert bench(mock.url, *flags) == 0
    server = json.loads(output.read_text())["server"]
    assert server["partial"] and "zip() argument 2" in server["notes"][-1]


def test_a_client_that_was_too_slow_is_refused_and_yet_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    feed = EventReader.feed

    def slow(reader: EventReader, data: bytes) -> list[Event]:
        time.sleep(0.02)
        return feed(reader, data)

    monkeypatch.setattr(EventReader, "feed", slow)
    output = tmp_path / "result.json"
    with MockProcess(gap_ms=10) as mock:
        flags = ["--request-rate", "50", "--num-prompts", "20", "--output-len", "5", "--max-client-lag-ms", "50", "--output", str(output)]
        assert bench(mock.url, *flags) == 1
    result = json.loads(output.read_text())
    assert not result["valid"]
    assert "--max-client-lag-ms" in result["client"]["bottleneck"]
    assert result["completed"] == 20


def test_a_server_that_dies_leaves_a_result_that_is_marked_partial(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "result.json"
    with MockServer() as mock:

        def die() -> None:
            while len(mock.seen) < 10:
                time.sleep(0.01)
            mock.die()

        threading.Thread(target=die, daemon=True).start()
        assert bench(mock.url, "--request-rate", "20", "--num-prompts", "2000", "--output-len", "1", "--output", str(output)) == 1
    result = json.loads(output.read_text())
    assert result["partial"] and result["not_sent"] > 1000 and result["completed"] >= 1
    assert "the server is gone" in result["interrupted"]
    assert "Partial: the run stopped early" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("fields", [{"status": 429}, {"error_at": 1}])
def test_a_run_without_one_good_answer_fails(fields: dict[str, int]) -> None:
    healthy = {"0": {"status": 200, "error_at": None}}  # the probe
    with MockServer(**fields, overrides=healthy) as mock:
        assert bench(mock.url, "--num-prompts", "3", "--request-rate", "100", "--output-len", "2") == 1


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        ([], ["--url", "MODEL"]),
        (["a-model", "--url", "http://127.0.0.1:1"], ["--url", "MODEL"]),
        (["--url", "127.0.0.1:1"], ["--url = 127.0.0.1:1", "http://"]),
        (["--url", "http://127.0.0.1:1"], ["--url = http://127.0.0.1:1", "no server answers there"]),
        (["--url", "http://127.0.0.1:1", "--slo", "itl<5"], ["--slo", "itl<5"]),
        (["--url", "http://127.0.0.1:1", "--endpoint", "/v2"], ["--endpoint = /v2", "/v1/completions"]),
        (["--url", "http://127.0.0.1:1", "--request-rate", "0"], ["--request-rate = 0"]),
        (["--url", "http://127.0.0.1:1", "--workload", "/no.toml"], ["--workload = /no.toml"]),
        (["--url", "http://127.0.0.1:1", "--output", "/no/where.json"], ["--output = /no/where.json"]),
        (["--url", "http://127.0.0.1:1", "--tokenizer", "/no"], ["--tokenizer", "/no"]),
        (["--url", "http://127.0.0.1:1", "--endpoint", "/v1/chat/completions"], ["--tokenizer"]),
        (["--url", "http://127.0.0.1:1", "--max-client-lag-ms", "0"], ["--max-client-lag-ms"]),
    ],
)
def test_bad_input_takes_one_line(flags: list[str], parts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert app(["bench", "serve", *flags]) in (1, 2)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line]
    assert line.startswith("octavo: ") and all(part in line for part in parts)


@pytest.mark.slow
def test_a_server_is_started_measured_and_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{TESTS}:{os.environ.get('PYTHONPATH', '')}")
    model = write_model(tmp_path, Script(outputs=[[1, 2, 3, 4] * 8]))
    output = tmp_path / "result.json"
    flags = ["--num-prompts", "6", "--max-concurrency", "3", "--input-len", "4", "--output-len", "8", "--max-client-lag-ms", "10000"]
    serve = ["--", "--runner-cls", SCRIPTED, "--served-model-name", "scripted"]
    assert app(["bench", "serve", model, *flags, "--output", str(output), *serve]) == 0
    result = json.loads(output.read_text())
    assert result["completed"] == 6 and result["asked"]["model"] == "scripted"
    assert result["server"]["engine"] == "octavo"
    port = int(result["asked"]["url"].rpartition(":")[2])
    assert app(["bench", "serve", "--url", f"http://127.0.0.1:{port}"]) == 2  # nobody is left
