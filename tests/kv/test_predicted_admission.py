"""Predicted admission: the peak against a simulation of time, the ratio by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.kv.admission.predicted import PredictedAdmission
from support.simulation import Simulation


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30)), max_size=8))
def test_the_peak_is_that_of_a_simulation_of_time(lengths: list[tuple[int, int]]) -> None:
    peak = max((sum(held + time for held, more in lengths if more >= time) for time in range(31)), default=0)
    assert PredictedAdmission().expected_peak(lengths) == peak


def test_what_ends_sooner_makes_room() -> None:
    admission = PredictedAdmission()
    running = [(10, 2)]  # 12 at its end; the newcomer then has 3 + 2 of its 13: 17 in all
    assert admission.admits(needed_now=3, needed_at_most=13, available=7, promised=2, num_running=1, running=running)
    assert not admission.admits(needed_now=3, needed_at_most=13, available=6, promised=2, num_running=1, running=running)
    assert not admission.admits(needed_now=3, needed_at_most=4, available=3, promised=2, num_running=1, running=running)


def test_the_ratio_is_learned_from_what_ends() -> None:
    admission = PredictedAdmission()
    expected = 1.0
    for stated, generated in [(100, 50), (10, 10), (1000, 100)]:
        admission.finished(stated, generated)
        expected = expected * 31 / 32 + generated / stated / 32
    assert admission.ratio == pytest.approx(expected)
    for _ in range(500):
        admission.finished(200, 50)
    assert admission.ratio == pytest.approx(0.25, abs=1e-5)
    assert admission.expected_peak([(4, 40), (4, 8)]) == pytest.approx(14, abs=1e-2)  # 4 + 10, after the other ended at 6 + 6


def test_requests_that_end_early_teach_and_aborted_ones_do_not() -> None:
    sim = Simulation(admission="predicted")
    admission = sim.kv._admission
    sim.add("a", 8, max_tokens=40)
    sim.step()
    sim.scheduler.abort(["a"])
    sim.run()
    assert admission.ratio == 1.0
    sim.add("b", 8, max_tokens=40, stop_token_ids=list(range(50)))  # one of 40
    sim.run()
    assert admission.ratio == pytest.approx(31 / 32 + 1 / 40 / 32)
