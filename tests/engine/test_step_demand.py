"""What a step attends to, against a count position by position."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from octavo.engine.step_demand import attended_pairs, kv_positions, step_demand
from octavo.sampling_params import SamplingParams
from octavo.scheduler.output import NewRequestData, RunningRequestData, SchedulerOutput


def seen(start: int, count: int, window: int) -> list[range]:
    """The positions that each token of a chunk attends to."""
    return [range(max(0, p + 1 - window) if window else 0, p + 1) for p in range(start, start + count)]


@given(start=st.integers(0, 60), count=st.integers(1, 60), window=st.integers(0, 40))
def test_pairs_and_positions_are_those_counted_one_by_one(start: int, count: int, window: int) -> None:
    positions = seen(start, count, window)
    assert attended_pairs(start, count, window) == sum(map(len, positions))
    assert kv_positions(start, count, window) == len(set().union(*positions))


def planned(running: list[tuple[int, int]], new: list[tuple[int, int]]) -> SchedulerOutput:
    """A step of requests with (computed, count)."""
    output, none = SchedulerOutput(1), [np.empty(0, np.int32)]
    for i, (computed, count) in enumerate(running):
        output.running.append(RunningRequestData(f"r{i}", computed, none))
        output.num_scheduled_tokens[f"r{i}"] = count
        output.work.add(computed, count, True)
    for i, (computed, count) in enumerate(new):
        output.new.append(NewRequestData(f"n{i}", [1] * 200, 200, SamplingParams(), computed, none))
        output.num_scheduled_tokens[f"n{i}"] = count
        output.work.add(computed, count, True)
    return output


SPANS = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 3)), max_size=4)


@given(running=SPANS, new=SPANS)
def test_a_step_adds_up_its_requests(running: list[tuple[int, int]], new: list[tuple[int, int]]) -> None:
    work = step_demand(planned(running, new), [0, 8])
    spans = running + new
    chunks = [count for _, count in spans if count > 1]
    assert (work.tokens, work.prefill_tokens, work.prefills) == (sum(count for _, count in spans), sum(chunks), len(chunks))
    assert work.decodes == len(spans) - len(chunks)
    for window, pairs, reads in zip((0, 8), work.attended, work.kv_reads, strict=True):
        assert pairs == sum(len(positions) for span in spans for positions in seen(*span, window))
        assert reads == sum(len(set().union(*seen(*span, window))) for span in spans)
