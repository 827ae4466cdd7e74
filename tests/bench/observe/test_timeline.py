"""Lines over time, and what they come to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.bench.observe.observation import Observation, Sample
from octavo.bench.observe.timeline import Line, in_flight, per_second, server_line, thinned, time_average
from octavo.engine.step_log import StepRecord
from support.load_runs import load_run, record


def step(number: int, time: float, held: int, live: int, **fields: float) -> StepRecord:
    return StepRecord(step=number, time=time, seconds=0.1, kv_held_bytes=held, kv_live_bytes=live, **fields)


def test_the_step_log_is_finer_and_goes_before_the_samples() -> None:
    samples = [Sample(time=1, running=9, kv_efficiency=0.1)]
    steps = [step(1, -0.5, 100, 50, running=1), step(2, 0.5, 100, 75, running=2), step(3, 1.5, 0, 0, running=0)]
    seen = Observation(samples=samples, steps=steps)
    assert server_line(seen, 2, "running") == Line([0.5, 1.5], [2, 0])
    assert server_line(seen, 2, "kv_efficiency") == Line([0.5, 1.5], [0.75, None])
    assert server_line(Observation(samples=samples), 2, "running") == Line([1], [9])
    assert not server_line(Observation(samples=samples), 2, "fragmentation").told


def test_efficiency_counts_while_anything_is_held() -> None:
    """0.5 for 1 s, 1.0 for 3 s, nothing held for 6 s: (0.5 + 3) / 4."""
    line = Line([0, 1, 4], [0.5, 1.0, None])
    assert time_average(line, 10) == pytest.approx(3.5 / 4)
    assert time_average(Line([0], [None]), 10) is None and time_average(Line([], []), 10) is None


def test_in_flight_goes_up_with_the_send_and_down_with_the_end() -> None:
    run = load_run([record([1.0, 3.0], sent=0.5), record([2.0], sent=2.0, ended=2.5), record([], sent=None, ended=None)])
    assert in_flight(run) == Line([0.0, 0.5, 2.0, 2.5, 3.0], [0, 1, 2, 1, 0])


@given(st.lists(st.tuples(st.floats(0, 10), st.one_of(st.none(), st.floats(0, 1))), min_size=1, max_size=60), st.integers(1, 20))
def test_a_thinned_line_has_the_same_average(points: list[tuple[float, float | None]], count: int) -> None:
    points.sort(key=lambda point: point[0])
    line = Line([time for time, _ in points], [value for _, value in points])
    thin = thinned(line, 10, count)
    assert len(thin.times) <= max(count, len(points)) and thin.times == sorted(thin.times)
    told = [value for value in thin.values if value is not None]
    known = [value for value in line.values if value is not None]
    assert not told or min(known) - 1e-9 <= min(told) <= max(told) <= max(known) + 1e-9
    if all(value is not None for value in line.values) and line.times[0] == 0:
        assert time_average(thin, 10) == pytest.approx(time_average(line, 10))


def test_each_second_by_itself() -> None:
    line = per_second([0.1, 0.9, 2.5, -1, 9], [3, 5, 7, 100, 100], 3.0, max)
    assert line == Line([0, 1, 2, 3], [5, None, 7, None])
    long = per_second([100.0 * i for i in range(40)], [1.0] * 40, 4000.0, sum)
    assert len(long.times) <= 401 and sum(value or 0 for value in long.values) == 40


def test_a_cell_whose_edge_is_not_exact_is_no_trap() -> None:
    """3 * 0.1 / 0.1 is under 3: a value that begins at the edge of a cell counts in one of its neighbours, and the next is gone to."""
    for end in (40.0, 0.7, 12.3, 10.000001):
        times = [end * place / 7 for place in range(8)] + [end * place / 400 for place in range(401)]
        thin = thinned(Line(sorted(times), [1.0] * len(times)), end, 400)
        assert all(value == pytest.approx(1.0) for value in thin.values if value is not None)
