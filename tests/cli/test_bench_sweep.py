"""``octavo bench sweep``: what it refuses, and that it finds the capacity of a mock over HTTP."""

from __future__ import annotations

import json

import pytest

from octavo.cli import bench_sweep
from octavo.cli.main import app
from support.mock_openai import MockServer, Script

URL = ("--url", "http://127.0.0.1:9", "--slo", "ttft:p99<1s")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--url", "http://127.0.0.1:9"), "--slo = None: a sweep needs one"),
        (("--url", "http://127.0.0.1:9", "--slo", "ttft:p99<1"), "--slo = 'ttft:p99<1': at character 11"),
        ((*URL, "--request-rate", "3"), "--request-rate = 3.0: the sweep finds it"),
        ((*URL, "--num-prompts", "3"), "--num-prompts = 3: --requests-per-verdict"),
        ((*URL, "--max-concurrency", "3"), "--max-concurrency = 3: the sweep is open loop"),
        ((*URL, "--resolution", "0"), "--resolution = 0: it must be 0.002 to 1"),
        ((*URL, "--max-rate", "0.1"), "--max-rate = 0.1: it must be min_rate = 0.25 to"),
        (("--slo", "ttft:p99<1s"), "--url = None: give either --url"),
    ],
)
def test_bad_input_is_one_line(arguments, said, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("OCTAVO_BENCH_LOCK", str(tmp_path / "lock"))
    assert app(["bench", "sweep", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_model_and_serve_flags_are_told_apart(monkeypatch, tmp_path):
    seen = {}

    def serving(url, served, flags, name):
        seen.update(url=url, served=served, flags=flags)
        raise KeyboardInterrupt

    monkeypatch.setattr(bench_sweep.shared, "serving", serving)
    monkeypatch.setenv("OCTAVO_BENCH_LOCK", str(tmp_path / "lock"))
    slo = "itl:p99<50ms,ttft:p99<2.5s"
    words = ["bench", "sweep", "a-model", "--input-len", "256", "--output-len", "64", "--slo", slo, "--", "--itl-slo-ms", "50"]
    with pytest.raises(BaseException):  # noqa: B017 (what a KeyboardInterrupt becomes is not this test's matter)
        raise SystemExit(app(words))
    assert seen == {"url": None, "served": "a-model", "flags": ["--itl-slo-ms", "50"]}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_bm_09_the_capacity_of_a_mock_over_http_is_found_within_5_percent(monkeypatch, tmp_path, capsys):
    """M/D/1 at 80 a second, TTFT under 0.5 s: up to 75.5 a second fewer than 1 in 100 take longer (a simulation of 4 million requests)."""
    monkeypatch.setenv("OCTAVO_BENCH_LOCK", str(tmp_path / "lock"))
    output = tmp_path / "sweep.json"
    flags = ["--slo", "ttft:p99<500ms", "--min-rate", "20", "--max-rate", "200", "--resolution", "0.02", "--requests-per-verdict", "1000"]
    client = ["--max-client-lag-ms", "500", "--input-len", "8", "--output-len", "2"]
    places = ["--output", str(output), "--report", str(tmp_path / "report")]
    with MockServer(Script(service="constant", service_rate=80.0)) as server:
        status = app(["bench", "sweep", "--url", server.url, *flags, *client, *places])
    result = json.loads(output.read_text())
    assert status == 0, capsys.readouterr().out
    assert result["max_rate"] == pytest.approx(75.5, rel=0.05)
    assert (tmp_path / "report" / "report.html").is_file()
    assert result["run"]["completed"] > 0
