"""``octavo bench sweep``: what it refuses, and that it finds the capacity of a mock over HTTP."""

from __future__ import annotations

import json
import math

import pytest

from octavo.cli import bench_target
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

    monkeypatch.setattr(bench_target, "serving", serving)
    monkeypatch.setenv("OCTAVO_BENCH_LOCK", str(tmp_path / "lock"))
    slo = "itl:p99<50ms,ttft:p99<2.5s"
    words = ["bench", "sweep", "a-model", "--input-len", "256", "--output-len", "64", "--slo", slo, "--", "--itl-slo-ms", "50"]
    with pytest.raises(BaseException):  # noqa: B017 (what a KeyboardInterrupt becomes is not this test's matter)
        raise SystemExit(app(words))
    assert seen == {"url": None, "served": "a-model", "flags": ["--itl-slo-ms", "50"]}


# One server, 80 a second, TTFT under 0.5 s. M/D/1: up to 75.5 a second fewer than 1 in 100 take longer (simulated: 4 million requests).
# M/M/1: the sojourn time is exponential with rate mu - lambda, so its p99 is 0.5 s at 80 - ln(100) / 0.5.
CAPACITIES = [("constant", 75.5), ("exponential", 80 - math.log(100) / 0.5)]


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(("service", "truth"), CAPACITIES)
def test_bm_09_the_capacity_of_a_mock_over_http_is_found_within_5_percent(service, truth, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("OCTAVO_BENCH_LOCK", str(tmp_path / "lock"))
    output = tmp_path / "sweep.json"
    rates = ["--min-rate", "40", "--max-rate", "160", "--resolution", "0.02", "--requests-per-verdict", "1000", "--confirm", "6"]
    client = ["--max-client-lag-ms", "500", "--input-len", "8", "--output-len", "2"]
    places = ["--output", str(output), "--report", str(tmp_path / "report")]
    with MockServer(Script(service=service, service_rate=80.0)) as server:
        status = app(["bench", "sweep", "--url", server.url, "--slo", "ttft:p99<500ms", *rates, *client, *places])
    result = json.loads(output.read_text())
    assert status == 0, capsys.readouterr().out
    assert result["max_rate"] == pytest.approx(truth, rel=0.05)
    assert (result["shown_sustained"] or 0) <= result["max_rate"] < (result["shown_not_sustained"] or math.inf)
    assert (tmp_path / "report" / "report.html").is_file()
    assert result["run"]["completed"] > 0


def test_what_is_odd_about_the_run_at_the_answer_is_said_first(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("OCTAVO_BENCH_LOCK", str(tmp_path / "lock"))
    output = tmp_path / "sweep.json"
    monkeypatch.setattr("octavo.bench.report.quiet.Quiet.look_before", lambda quiet: None)
    flags = ["--slo", "itl:p50<5s", "--min-rate", "50", "--max-rate", "50", "--requests-per-verdict", "20", "--confirm", "0"]
    flags += ["--input-len", "8", "--output-len", "5", "--warmup", "1", "--max-client-lag-ms", "10000"]
    with MockServer(Script(stop_short=3, cached_tokens=4)) as server:
        app(["bench", "sweep", "--url", server.url, *flags, "--output", str(output)])
    said = [line for line in json.loads(output.read_text())["warnings"] if line.startswith("At the highest rate: ")]
    for what in ("of another length than planned", "from the server's prefix cache"):
        assert any(what in line for line in said), said
