"""The server's side as it goes into result and report."""

from __future__ import annotations

import json

import pytest

from octavo.bench.machine import MachineRates
from octavo.bench.observe.observation import Observation, Sample
from octavo.bench.observe.server import server_side
from octavo.engine.step_log import StepRecord
from support.load_runs import load_run, record

RATES = MachineRates(read_bytes_s=1e9, int8_ops_s=1e9, bf16_flops_s=1e9, fp32_flops_s=1e9, cpus=(0,))


def steps() -> list[StepRecord]:
    """Ten a second for 10 s; the 50th has a prompt in it, and takes three times as long."""
    made, now = [], 0.0
    for number in range(1, 101):
        chunk = {"tokens": 33, "prefill_tokens": 32, "prefills": 1} if number == 50 else {"tokens": 1}
        seconds = 0.3 if number == 50 else 0.1
        now += seconds
        pool = {"running": 1, "kv_usage": 0.5, "kv_held_bytes": 100, "kv_live_bytes": 80 if number < 50 else 60}
        made.append(StepRecord(step=number, time=now, seconds=seconds, decodes=1, sampled=1, **chunk, **pool))
    return made


def samples() -> list[Sample]:
    totals = {"preemptions": 4.0, "prefix_queries": 100.0, "prefix_hits": 10.0}
    return [Sample(time=-1, **totals), Sample(time=11, preemptions=6.0, prefix_queries=300.0, prefix_hits=60.0)]


def test_what_an_octavo_tells() -> None:
    log = steps()
    run = load_run([record([step.time + 0.001 for step in log])], seconds=10.2)
    side = server_side(run, Observation(engine="octavo", version="0.1.0", samples=samples(), steps=log), rates=RATES)
    result = side.result
    assert result == json.loads(json.dumps(result))
    assert (result["engine"], result["version"], result["kv_usage"], result["preemptions"]) == ("octavo", "0.1.0", 0.5, 2)
    assert result["cache_hit_rate"] == pytest.approx(50 / 200)
    # 0.8 from 0.1 to 5.2 s, and 0.6 to 10.2 s.
    assert result["kv_efficiency"] == pytest.approx((0.8 * 5.1 + 0.6 * 5.0) / 10.1)
    (cause, *_) = result["spikes"]["causes"]
    assert result["spikes"]["count"] == 1 and (cause["cause"], cause["spikes"]) == ("prefill chunk", 1)
    assert result["percent_of_roofline"] is None  # it does not tell what a step costs
    charts = {chart.title: chart for chart in side.section.charts}
    assert len({chart.group for chart in charts.values()}) == 1 and all(chart.series for chart in charts.values())
    assert [series.name for series in charts["KV pool"].series] == ["in use", "efficiency (live / held)", "fragmentation"]
    assert [series.name for series in charts["Requests at the server"].series] == ["running", "waiting"]
    (spikes,) = charts["Spikes between tokens, by cause"].series
    assert spikes.name == "prefill chunk" and spikes.labels is not None and "step" in spikes.labels[0]
    means, causes = side.section.tables
    assert ("preemptions", 2) in means.rows and causes.rows[0][:2] == ("prefill chunk", 1)
    assert "octavo 0.1.0" in side.section.text[0]


def test_a_server_that_says_nothing_leaves_the_clients_own_part() -> None:
    run = load_run([record([1.0, 1.1, 1.2, 1.3, 2.0], sent=0.5)])
    side = server_side(run, Observation(notes=["the server has no /metrics (HTTP 404): its side is not seen"]), rates=RATES)
    assert side.result["engine"] is None and side.result["kv_efficiency"] is None and side.result["spikes"]["count"] == 1
    assert [chart.title for chart in side.section.charts] == ["Spikes between tokens, by cause"]
    assert side.section.text == ["the server has no /metrics (HTTP 404): its side is not seen"]


def test_a_run_without_answers_is_no_error() -> None:
    side = server_side(load_run([record([], failure="refused")]), Observation(engine="vllm", samples=samples()))
    assert side.result["spikes"]["count"] == 0 and side.section.charts == []


def test_what_cannot_be_made_sense_of_is_a_note_and_costs_nothing_else() -> None:
    log = steps()
    log[3].time = "soon"  # type: ignore[assignment]
    run = load_run([record([1.0, 1.1, 1.2, 1.3, 2.0], sent=0.5)])
    side = server_side(run, Observation(engine="octavo", version="9", samples=samples(), steps=log), rates=RATES)
    assert (side.result["engine"], side.result["kv_usage"], side.result["partial"]) == ("octavo", None, True)
    assert side.result["spikes"]["count"] == 1 and "cannot be laid beside the run" in side.result["notes"][-1]
    assert side.result["notes"][-1] in side.section.text


def test_another_clock_is_stated() -> None:
    run = load_run([record([1.0, 1.1])])
    side = server_side(run, Observation(engine="octavo", clock_offset=0.25, clock_error=0.002))
    assert "+250.0 ms" in side.section.text[1] and "2.0 ms" in side.section.text[1]
    assert (side.result["clock_offset_ms"], side.result["clock_error_ms"]) == (250, 2)


def test_the_slo_is_the_limit_of_a_spike() -> None:
    run = load_run([record([1.0, 1.1, 1.2, 1.35])])
    result = server_side(run, Observation(), itl_limits=[0.12, 0.5]).result
    assert (result["spikes"]["limit_ms"], result["spikes"]["count"]) == (120, 1)
