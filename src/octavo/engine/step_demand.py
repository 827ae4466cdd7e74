"""What a step has to do: its rows and chunks, and how much context they attend to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from octavo.scheduler.output import SchedulerOutput
from octavo.scheduler.step_cost import pairs


class StepDemand(NamedTuple):
    """One step's work; the last two have an entry a window, in the order asked for."""

    tokens: int
    prefill_tokens: int
    """Of chunks of more than one token: prompts, and what is computed again after a preemption."""
    prefills: int
    """Requests that have such a chunk."""
    decodes: int
    """Requests that compute one token."""
    attended: tuple[int, ...]
    """Pairs of a token and a position that it attends to, its own included."""
    kv_reads: tuple[int, ...]
    """Positions whose K and V are read, once a request."""


def step_demand(scheduled: SchedulerOutput, windows: Sequence[int]) -> StepDemand:
    """What a planned step demands, for attention with these windows (0: all positions).

    Of a step that only decodes at full attention the scheduler has it all; otherwise it takes a few additions a request.
    """
    counts, tokens = scheduled.num_scheduled_tokens, scheduled.work.tokens
    if tokens == len(counts):
        seen = tuple(_decode_positions(scheduled, window) if window else scheduled.work.pairs for window in windows)
        return StepDemand(tokens, 0, 0, tokens, seen, seen)
    spans = [(entry.num_computed_tokens, counts[entry.request_id]) for entry in scheduled.running]
    spans += [(entry.num_computed_tokens, counts[entry.request_id]) for entry in scheduled.new]
    chunks = [count for _, count in spans if count > 1]
    attended = tuple(sum([attended_pairs(start, count, window) for start, count in spans]) for window in windows)
    reads = tuple(sum([kv_positions(start, count, window) for start, count in spans]) for window in windows)
    return StepDemand(tokens, sum(chunks), len(chunks), len(spans) - len(chunks), attended, reads)


def _decode_positions(scheduled: SchedulerOutput, window: int) -> int:
    """Positions that one token of each request sees."""
    computed = [entry.num_computed_tokens for entry in scheduled.running] + [entry.num_computed_tokens for entry in scheduled.new]
    return sum([min(before + 1, window) for before in computed])


def attended_pairs(start: int, count: int, window: int) -> int:
    """Pairs of ``count`` tokens from position ``start`` on and the positions each sees: itself and those before it, ``window`` at most."""
    if not window:
        return pairs(start, count)
    growing = min(max(window - start, 0), count)
    return growing * start + growing * (growing + 1) // 2 + (count - growing) * window


def kv_positions(start: int, count: int, window: int) -> int:
    """Different positions that those tokens see."""
    return min(start + count, window + count - 1) if window else start + count
