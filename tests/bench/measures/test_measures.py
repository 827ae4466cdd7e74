from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.bench.load.records import Usage
from octavo.bench.measures.confidence import percentile_interval
from octavo.bench.measures.measures import measure, measure_run, pooled_statistic, pooled_values
from octavo.bench.measures.result import ServeResult, json_schema
from octavo.bench.measures.slo import Slo, parse_slos
from support.load_runs import load_run, record
from support.queues import BatchServer, OneQueue


def test_bm_01_a_chunk_of_two_tokens_is_two_tokens():
    # 10 tokens, 2 a chunk, chunks 100 ms apart: 9 gaps that sum to 400 ms.
    result = measure(load_run([record([1.0, 1.1, 1.2, 1.3, 1.4], tokens_per_chunk=2)]))
    assert result["itl_ms"]["mean"] == pytest.approx(400 / 9)
    assert result["tpot_ms"]["mean"] == pytest.approx(400 / 9)
    assert result["itl_ms"]["samples"] == 9
    assert result["itl_ms"]["max"] == pytest.approx(100)
    assert result["output_tokens"] == 10


def test_bm_08_the_share_that_keeps_every_slo_is_exact():
    # 100 latencies of 10, 20, …, 1000 ms; TTFT under 905 ms: the first 90. Of these, every ninth has a slow second token: 10.
    records = []
    for i in range(100):
        ttft = (i + 1) / 100
        slow = i % 9 == 8 and i < 90
        records.append(record([ttft, ttft + (0.2 if slow else 0.02)], index=i, output_tokens=2))
    result = measure(load_run(records, seconds=50.0), parse_slos("ttft:p99<905ms,itl:p99<50ms"))
    assert [slo["attained"] for slo in result["slos"]] == [90, 90]
    assert result["slo_attainment"] == 0.80
    assert result["goodput_rps"] == 80 / 50
    assert [slo["pooled_inside"] for slo in result["slos"]] == [False, False]
    assert result["slos"][0]["pooled_ms"] == pytest.approx(990)  # the 99th of 100, by nearest rank


def test_bm_10_throughput_is_the_mean_over_the_window_and_says_so():
    # All 100 tokens come in the first second of a window of ten: the median second has none, the best has all.
    run = load_run([record([i / 100 for i in range(1, 101)], prompt_tokens=300)], seconds=10.0)
    result = measure(run)
    assert result["output_tok_s"] == 10.0
    assert result["total_tok_s"] == 40.0
    assert result["window_s"] == 10.0
    assert "mean over the window" in result["method"]["throughput"]


def test_bm_10_of_a_poisson_run_throughput_is_rate_times_tokens():
    # 1,000 Poisson arrivals at 0.3 a second, 20 tokens each within 0.3 s: 6 tokens a second, whose standard error is 6 / √1000 = 0.19. Of
    # the single seconds most have none, and the best one many times the mean.
    run = BatchServer(fixed=0.01, each=0.001, prefill=0.05, seats=8, tokens=20)(0.3, 1000, seed=1)
    result = measure(run)
    assert result["output_tok_s"] == pytest.approx(6, abs=3 * 0.19)
    assert result["output_tok_s"] == pytest.approx(20_000 / run.seconds)
    seconds = np.bincount([int(chunk.time) for each in run.records for chunk in each.chunks], minlength=int(run.seconds) + 1)
    assert np.median(seconds) == 0 and seconds.max() >= 4 * 6


def test_bm_12_an_answer_of_another_length_is_flagged():
    records = [record([0.1] * 128, index=0, output_tokens=128), record([0.1] * 97, index=1, output_tokens=128)]
    result = measure(load_run(records))
    assert result["wrong_length"] == 1
    assert result["wrong_length_examples"] == [{"index": 1, "prompt_planned": 8, "prompt_seen": 8, "output_asked": 128, "output_seen": 97}]
    assert any("another length" in warning for warning in result["warnings"])


def test_bm_13_cached_prompt_tokens_are_reported():
    records = [record([0.1], cached=6), record([0.2], cached=0)]
    result = measure(load_run(records))
    assert result["cached_prompt_tokens"] == 6
    assert any("6 of 16 prompt tokens" in warning for warning in result["warnings"])
    assert measure(load_run([record([0.1])]))["cached_prompt_tokens"] is None


def test_statistics_are_numpys_over_completed_requests():
    ttfts = np.random.default_rng(0).exponential(size=300).tolist()
    records = [record([ttft], index=i) for i, ttft in enumerate(ttfts)] + [record([], failure="refused")]
    stats = measure(load_run(records))["ttft_ms"]
    for name, percent in {"p50": 50, "p90": 90, "p95": 95, "p99": 99, "max": 100}.items():
        assert stats[name] == pytest.approx(1000 * np.percentile(ttfts, percent))
    assert stats["mean"] == pytest.approx(1000 * np.mean(ttfts))
    assert stats["p99_ci95"][0] <= stats["p99"] <= stats["p99_ci95"][1]
    assert not stats["few"]


def test_failures_stand_apart_and_are_counted_by_what_was_said():
    records = [
        record([0.1, 0.2]),
        *[record([], failure="refused", message="queue is full", status=503) for _ in range(3)],
        record([0.1], failure="failed", message="connection closed", output_tokens=4),
        record([], failure="expired", message="no answer in 10 s"),
        record([], usage=None),  # ended well, with nothing in it
    ]
    result = measure(load_run(records))
    assert (result["requests"], result["completed"], result["failed"]) == (7, 1, 6)
    assert result["failures"][0] == {"kind": "refused", "message": "queue is full", "status": 503, "count": 3}
    assert result["errors"] == {"refused": 3, "failed": 2, "expired": 1}
    assert result["output_tokens"] == 2
    assert {failure["message"] for failure in result["failures"]} >= {"no text came"}


def test_a_failure_is_infinitely_late_in_a_pooled_statistic():
    records = [record([0.1, 0.11, 0.12]), record([0.1, 0.11], failure="failed", output_tokens=5)]
    assert sorted(pooled_values(records, "ttft")) == [pytest.approx(0.1), np.inf]
    gaps = pooled_values(records, "itl")
    assert np.isinf(gaps).sum() == 3  # four gaps were asked for, one came
    assert len(gaps) == 6
    result = measure(load_run(records), parse_slos("itl:p50<1s,itl:p99<1s"))
    assert [slo["pooled_ms"] for slo in result["slos"]] == [pytest.approx(10), None]  # 3 of 6 came in 10 ms


def test_a_partial_run_says_so_and_counts_what_was_sent():
    records = [record([0.1, 0.2]), record([0.3], ended=None), record([], sent=None, ended=None, usage=None)]
    result = measure(load_run(records, interrupted="the server closed the connection"), parse_slos("ttft:p99<1s"))
    assert result["partial"]
    assert result["not_sent"] == 1
    assert result["requests"] == 2
    assert result["errors"] == {"unfinished": 1}
    assert result["slo_attainment"] == 0.5
    assert result["warnings"][0].startswith("Partial")


def test_a_slow_client_makes_the_result_invalid():
    result = measure(load_run([record([0.1])], bottleneck="it used 98 % of its core"))
    assert not result["valid"]
    assert result["warnings"][0].startswith("Not valid")


def test_client_queueing_is_apart_and_part_of_ttft():
    result = measure(load_run([record([1.5], scheduled=1.0, sent=1.3)]))
    assert result["client"]["queueing_ms"]["max"] == pytest.approx(300)
    assert result["ttft_ms"]["max"] == pytest.approx(500)


def test_ttft_from_the_send_leaves_out_what_waited_in_the_client():
    client = measure(load_run([record([1.5], scheduled=1.0, sent=1.3)]))["client"]
    assert client["ttft_from_send_ms"]["max"] == pytest.approx(200)
    assert measure(load_run([record([1.5], scheduled=1.0, sent=1.3)], open_loop=False))["client"]["ttft_from_send_ms"] is None


def test_near_capacity_the_interval_of_a_p99_is_as_wide_as_it_is():
    # M/D/1 at 80 % of its capacity, where many in a row are late for one cause: 40 runs of 1,000. An interval ought to hold the true p99,
    # that of a run of 50,000. Drawn from single requests, it does so half as often as drawn from blocks.
    queue = OneQueue(10.0, exponential=False)
    truth = np.percentile([each.ttft for each in queue(8.0, 50_000, seed=999).records], 99)
    runs = [queue(8.0, 1000, seed) for seed in range(40)]
    stats = [measure(run)["ttft_ms"] for run in runs]
    naive = [percentile_interval(np.array([each.ttft for each in run.records]), np.arange(1000)) for run in runs]
    held = sum(low <= 1000 * truth <= high for low, high in (each["p99_ci95"] for each in stats))
    assert held >= 1.5 * sum(low <= truth <= high for low, high in naive) > 0
    assert all(each["clusters"] < 400 for each in stats)
    busy = measure(queue(9.5, 1000, seed=1))
    assert busy["ttft_ms"]["few"] and any("are worth" in warning for warning in busy["warnings"])


def test_of_requests_that_do_not_wait_for_each_other_each_is_a_sample():
    ttfts = np.random.default_rng(3).exponential(size=400)
    result = measure(load_run([record([float(ttft)], index=i) for i, ttft in enumerate(ttfts)]))
    assert result["ttft_ms"]["clusters"] == 400


def test_tokens_of_requests_that_kept_every_slo_are_told_apart():
    # 4 tokens in time, and 5 late ones, in 2 s.
    records = [record([0.1] * 4, index=0), record([2.0] * 5, index=1)]
    result = measure(load_run(records, seconds=2.0), parse_slos("ttft:p99<1s"))
    assert (result["output_tok_s"], result["goodput_tok_s"], result["slo_attainment"]) == (4.5, 2.0, 0.5)
    assert measure(load_run(records))["goodput_tok_s"] is None


def test_a_client_whose_lateness_is_a_part_of_itl_says_so():
    # Gaps of 10 ms, and a heartbeat that is 4 ms late: far under 50 ms, and yet two fifths of what is measured.
    run = load_run([record([0.01 * i for i in range(1, 101)])])
    run.client.loop_lag = [(0.01 * i, 0.004) for i in range(100)]
    result = measure(run)
    assert result["valid"] and any("4 ms late" in warning and "10 ms" in warning for warning in result["warnings"])
    run.client.loop_lag = [(0.01 * i, 0.001) for i in range(100)]
    assert not any("heartbeat" in warning for warning in measure(run)["warnings"])


def test_a_prompt_of_text_may_grow_by_a_template_and_not_by_hundreds():
    def wrong(seen, as_text=True):
        return measure(load_run([record([0.1], usage=Usage(seen, 1), prompt_tokens=50, prompt_as_text=as_text)]))["wrong_length"]

    assert [wrong(50), wrong(75), wrong(350), wrong(49)] == [0, 0, 1, 1]
    assert [wrong(50, as_text=False), wrong(51, as_text=False)] == [0, 1]


def test_offered_rate_is_of_the_schedule():
    records = [record([0.5 * i + 0.1], scheduled=0.5 * i) for i in range(1, 11)]
    assert measure(load_run(records))["offered_rate"] == pytest.approx(2.0)
    assert measure(load_run(records, open_loop=False))["offered_rate"] is None


def test_kinds_and_tenants_have_measures_of_their_own():
    records = [record([0.1], kind="chat", tenant="a"), record([0.3], kind="rag", tenant="a")]
    result = measure(load_run(records))
    assert {name: group["ttft_ms"]["mean"] for name, group in result["by_kind"].items()} == {
        "chat": pytest.approx(100),
        "rag": pytest.approx(300),
    }
    assert result["by_tenant"] == {}


def test_an_empty_run_has_a_result():
    result = measure(load_run([], interrupted="nothing was sent"), parse_slos("ttft:p99<1s"))
    assert (result["completed"], result["ttft_ms"], result["slo_attainment"]) == (0, None, None)


def test_results_are_valid_by_their_type_and_their_schema():
    records = [record([0.1 * i, 0.1 * i + 0.01], index=i, kind=f"k{i % 2}") for i in range(1, 40)] + [
        record([], failure="failed", message="x")
    ]
    result = measure(load_run(records), parse_slos("itl:p99<50ms,ttft:max<1s"))
    assert result["schema_version"] == 1
    again = msgspec.json.decode(msgspec.json.encode(result), type=ServeResult)
    assert msgspec.json.encode(again) == msgspec.json.encode(result)
    schema = json_schema()
    assert set(schema["$defs"]["ServeResult"]["properties"]) == set(result)


@given(st.lists(st.floats(0, 10), min_size=1, max_size=40), st.integers(500, 999), st.floats(0.01, 10))
def test_a_pooled_percentile_is_inside_exactly_when_the_share_over_is_allowed(values, per_mille, limit):
    slo = Slo("ttft", f"p{per_mille / 10:g}", limit)
    over = sum(value >= limit for value in values)
    assert (pooled_statistic(np.array(values), slo) < limit) == (1000 * over <= (1000 - per_mille) * len(values))


arrivals = st.lists(st.floats(0.001, 5), min_size=1, max_size=6)
requests = st.lists(st.tuples(st.floats(0, 20), arrivals), min_size=1, max_size=8)


def build(drawn):
    records = []
    for i, (scheduled, gaps) in enumerate(drawn):
        times = list(scheduled + np.cumsum(gaps))
        records.append(record(times, index=i, scheduled=scheduled))
    return records


@settings(max_examples=30, deadline=None)
@given(requests, st.randoms(use_true_random=False))
def test_the_order_of_requests_does_not_matter(drawn, random):
    records = build(drawn)
    slos = parse_slos("ttft:p90<1s,itl:p90<1s")
    first = measure_run(load_run(records), slos)
    random.shuffle(records)
    second = measure_run(load_run(records), slos)
    for name in ("completed", "output_tokens", "output_tok_s", "goodput_rps", "slo_attainment", "slos", "by_kind"):
        assert getattr(first, name) == getattr(second, name)
    for name in ("ttft_ms", "itl_ms", "e2e_ms"):
        one, two = getattr(first, name), getattr(second, name)
        assert one is two is None or (one.p50, one.p99, one.max) == (two.p50, two.p99, two.max)


@settings(max_examples=30, deadline=None)
@given(requests)
def test_how_tokens_are_chunked_does_not_change_totals(drawn):
    # The same tokens, with all that came after the first in one chunk at the end: TPOT, E2E, tokens and the sum of gaps are as before.
    single = build(drawn)
    joined = [
        record(
            [r.chunks[0].time, r.chunks[-1].time] if len(r.chunks) > 1 else [r.chunks[0].time],
            index=r.index,
            scheduled=r.scheduled,
            tokens_per_chunk=[1, len(r.chunks) - 1] if len(r.chunks) > 1 else 1,
        )
        for r in single
    ]
    one, two = measure_run(load_run(single)), measure_run(load_run(joined))
    assert (one.output_tokens, one.output_tok_s, one.ttft_ms, one.e2e_ms) == (two.output_tokens, two.output_tok_s, two.ttft_ms, two.e2e_ms)
    assert (one.tpot_ms is None) == (two.tpot_ms is None)
    if one.tpot_ms is not None:
        assert one.tpot_ms.mean == pytest.approx(two.tpot_ms.mean)
        assert one.itl_ms.mean == pytest.approx(two.itl_ms.mean)
        assert one.itl_ms.samples == two.itl_ms.samples


def test_a_server_that_gives_no_usage_counts_by_plan():
    result = measure(load_run([record([0.1], usage=None, prompt_tokens=50)]))
    assert result["prompt_tokens"] == 50
    assert measure(load_run([record([0.1], usage=Usage(51, 1), prompt_tokens=50)]))["wrong_length"] == 1
