from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.bench.measures.slo import METRICS, Slo, all_attained, parse_slos
from octavo.errors import InvalidRequestError
from support.load_runs import record


def test_slos_are_read():
    assert parse_slos("itl:p99<50ms,ttft:p99<2.5s") == (Slo("itl", "p99", 0.05), Slo("ttft", "p99", 2.5))
    assert parse_slos(" tpot : mean < 800us , e2e:max<1.s ") == (Slo("tpot", "mean", pytest.approx(0.0008)), Slo("e2e", "max", 1.0))
    assert parse_slos("ttft:p99.9<.5s")[0].per_mille == 999


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("", 1, "metric"),
        ("latency:p99<1s", 1, "ttft, itl, tpot, e2e"),
        ("itl<50ms", 4, "':'"),
        ("itl:p99.99<50ms", 5, "one decimal place"),
        ("itl:p49<50ms", 5, "p50 to p99.9"),
        ("itl:p100<50ms", 5, "p50 to p99.9"),
        ("itl:median<50ms", 5, "mean or max"),
        ("itl:p99>50ms", 8, "'<'"),
        ("itl:p99<=50ms", 9, "number"),
        ("itl:p99<0ms", 9, "above 0"),
        ("itl:p99<-1ms", 9, "number"),
        ("itl:p99<nan s", 9, "number"),
        ("itl:p99<50", 11, "us, ms or s"),
        ("itl:p99<50 min", 12, "us, ms or s"),
        ("itl:p99<50msx", 11, "us, ms or s"),
        ("itl:p99<50ms,", 14, "metric"),
        ("itl:p99<50ms;ttft:p99<1s", 11, "us, ms or s"),
        ("itl:p99<50ms,itl:p99<60ms", 14, "two limits"),
    ],
)
def test_a_bad_slo_is_one_line_with_the_place(text, place, said):
    with pytest.raises(InvalidRequestError) as caught:
        parse_slos(text)
    message = str(caught.value)
    assert f"character {place}," in message
    assert said in message
    assert "\n" not in message
    assert caught.value.field == "slo"


percentiles = st.integers(500, 999).map(lambda n: f"p{n // 10}" if n % 10 == 0 else f"p{n / 10}")
slos = st.builds(
    Slo,
    st.sampled_from(METRICS),
    st.one_of(st.sampled_from(["mean", "max"]), percentiles),
    st.integers(1, 10**8).map(lambda microseconds: microseconds / 1e6),
)


@given(st.lists(slos, min_size=1, max_size=4, unique_by=lambda slo: (slo.metric, slo.statistic)))
def test_what_is_written_is_read_back(wanted):
    read = parse_slos(", ".join(map(str, wanted)))
    assert [(slo.metric, slo.statistic) for slo in read] == [(slo.metric, slo.statistic) for slo in wanted]
    assert [slo.limit for slo in read] == pytest.approx([slo.limit for slo in wanted])


@given(st.text(alphabet="itlpoe2:<.,09msu x", max_size=24))
def test_any_text_is_slos_or_one_line(text):
    try:
        assert parse_slos(text)
    except InvalidRequestError as error:
        assert "\n" not in str(error)


def gaps_of(*milliseconds):
    """A request with these gaps, its first token at 0.1 s."""
    times = [0.1]
    for gap in milliseconds:
        times.append(times[-1] + gap / 1000)
    return record(times)


def test_of_63_gaps_p99_lets_one_be_over_and_not_two():
    slo = Slo("itl", "p99", 0.05)
    assert slo.attained(gaps_of(*[10] * 62, 80))
    assert not slo.attained(gaps_of(*[10] * 61, 80, 80))
    # 100 gaps: 1 % is one; 101: two.
    assert not slo.attained(gaps_of(*[10] * 98, 80, 80))
    assert slo.attained(gaps_of(*[10] * 99, 80, 80))


def test_a_request_whose_every_gap_is_over_misses():
    assert not Slo("itl", "p99", 0.05).attained(gaps_of(80))
    assert Slo("itl", "p99", 0.05).attained(gaps_of(80, 10))
    assert Slo("itl", "p99", 0.05).attained(gaps_of())  # one token: there is no gap to be late


def test_mean_and_max_of_gaps():
    request = gaps_of(10, 20, 90)
    assert Slo("itl", "mean", 0.041).attained(request)
    assert not Slo("itl", "mean", 0.039).attained(request)
    assert Slo("itl", "max", 0.091).attained(request)
    assert not Slo("itl", "max", 0.089).attained(request)
    assert Slo("itl", "p50", 0.015).attained(request)  # ceil(0.5 * 3) = 2 may be over


def test_ttft_tpot_and_e2e_are_the_requests_own_from_the_scheduled_send():
    request = record([1.5, 1.7, 1.9], scheduled=1.0, sent=1.4)
    assert Slo("ttft", "p99", 0.51).attained(request)
    assert not Slo("ttft", "p99", 0.49).attained(request)
    assert Slo("e2e", "p50", 0.91).attained(request)
    assert not Slo("e2e", "mean", 0.89).attained(request)
    assert not Slo("tpot", "max", 0.19).attained(request)
    assert Slo("tpot", "max", 0.21).attained(request)


@pytest.mark.parametrize("failure", ["refused", "failed", "expired"])
def test_what_did_not_complete_attains_nothing(failure):
    request = record([0.1, 0.2], failure=failure)
    assert not any(Slo(metric, "p99", 100.0).attained(request) for metric in METRICS)
    assert not all_attained(request, ())
    assert all_attained(record([0.1]), ())
