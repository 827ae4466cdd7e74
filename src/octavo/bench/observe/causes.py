"""Where an engine's time went, step by step: every moment is divided among causes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from octavo.engine.step_log import StepRecord

Cause = Literal[
    "prefill chunk",
    "preemption",
    "queueing",
    "compaction",
    "transfers",
    "garbage collection",
    "decode step",
    "between steps",
    "delivery",
    "client",
    "unexplained",
]
CAUSES: tuple[Cause, ...] = get_args(Cause)
PLACE: dict[Cause, int] = {cause: i for i, cause in enumerate(CAUSES)}

F64 = npt.NDArray[np.float64]

ROUNDING = 1e-9
"""Seconds that sums of floating-point numbers may be off by."""
NEIGHBOURS = 33
"""Steps whose median says what a step usually takes."""


class StepTime:
    """The time of steps, divided.

    A step's seconds are, one after the other and each as far as there are any left: transfers (compaction or transfers, by blocks), garbage
    collection, planning (between steps). What is left computed: as much as steps that only decode, with about as many rows and at about
    that time, usually take in it (their median) is the decode step's. The rest is the prefill chunk's if there is one, but for what was
    computed again after a preemption; without one it is unexplained.

    The time between two steps is garbage collection, idle (unexplained) or else between steps; where steps were lost it is unexplained.
    """

    def __init__(self, steps: Sequence[StepRecord]) -> None:
        """``steps``: in order, with their ends in ``time``."""
        self.ends = np.maximum.accumulate(np.array([step.time for step in steps], np.float64))
        starts = self.ends - np.array([step.seconds for step in steps], np.float64)
        self.starts = np.minimum(np.maximum(starts, np.concatenate([[-np.inf], self.ends[:-1]])), self.ends)
        shares = self._in_steps(steps)
        edges = np.stack([self.starts, self.ends], axis=1).reshape(-1)
        growth = np.zeros((2 * len(steps), len(CAUSES)))
        growth[1::2] = shares * (self.ends - self.starts)[:, None]
        growth[2::2] = self._between(steps)
        self._edges, self._spent = edges, np.ascontiguousarray(np.cumsum(growth, axis=0).T)

    def spent(self, start: F64, end: F64) -> F64:
        """Seconds [spans, causes] of each span from ``start`` to ``end``; what no step covers is unexplained."""
        found = np.empty((len(start), len(CAUSES)))
        for place, total in enumerate(self._spent):
            found[:, place] = np.interp(end, self._edges, total) - np.interp(start, self._edges, total)
        unexplained = PLACE["unexplained"]
        found[:, unexplained] = 0
        rest = end - start - found.sum(axis=1)
        found[:, unexplained] = np.where(rest > ROUNDING, rest, 0)
        return found

    def _in_steps(self, steps: Sequence[StepRecord]) -> F64:
        """Shares [steps, causes] of each step's time."""
        left = np.array([step.seconds for step in steps], np.float64)
        shares = np.zeros((len(steps), len(CAUSES)))

        def take(cause: Cause, seconds: F64 | Sequence[float]) -> None:
            taken = np.minimum(seconds, left)
            shares[:, PLACE[cause]] += taken
            np.subtract(left, taken, out=left)

        transfers = np.array([step.transfer_seconds for step in steps])
        moved = np.array([_part(step.moved_blocks, step.moved_blocks + step.saved_blocks + step.loaded_blocks) for step in steps])
        take("compaction", transfers * moved)
        take("transfers", transfers * (1 - moved))
        take("garbage collection", [step.gc_seconds for step in steps])
        take("between steps", [step.schedule_seconds for step in steps])
        take("decode step", usual_decode(steps, left))
        prefill = np.array([step.prefill_tokens > 0 for step in steps])
        again = np.array([min(_part(step.recomputed_tokens, step.prefill_tokens), 1.0) for step in steps])
        take("preemption", left * again)
        take("prefill chunk", left * prefill)
        take("unexplained", left.copy())
        seconds = shares.sum(axis=1, keepdims=True)
        divided: F64 = np.divide(shares, seconds, out=np.zeros_like(shares), where=seconds > 0)
        return divided

    def _between(self, steps: Sequence[StepRecord]) -> F64:
        """Seconds [steps - 1, causes] before each step but the first."""
        room = self.starts[1:] - self.ends[:-1]
        found = np.zeros((max(len(steps) - 1, 0), len(CAUSES)))
        known = np.array([after.step == before.step + 1 for before, after in itertools.pairwise(steps)], bool)
        idle = np.minimum([step.idle_before for step in steps[1:]], room)
        garbage = np.minimum([step.gc_before for step in steps[1:]], room - idle)
        found[:, PLACE["garbage collection"]] = np.where(known, garbage, 0)
        found[:, PLACE["between steps"]] = np.where(known, room - idle - garbage, 0)
        return found


def usual_decode(steps: Sequence[StepRecord], computing: F64) -> F64:
    """Seconds that decoding the rows of each step usually takes: the median of ``computing`` over the NEIGHBOURS steps nearest in time, of
    those that only decode, with the number of rows that comes nearest. Without any such step the rows have their share of the tokens.
    """
    rows = np.array([step.decodes for step in steps])
    pure = np.array([step.prefill_tokens == 0 and step.decodes > 0 for step in steps])
    if not pure.any():
        parts: F64 = computing * np.array([_part(step.decodes, step.tokens) for step in steps])
        return parts
    counts = np.unique(rows[pure])
    usual = np.zeros(len(steps))
    nearest = counts[np.argmin(np.abs(counts[:, None] - rows[None, :]), axis=0)]
    for count in counts:
        like = np.flatnonzero(pure & (rows == count))
        width = min(NEIGHBOURS, len(like))
        medians = np.median(np.lib.stride_tricks.sliding_window_view(computing[like], width), axis=1)
        asking = np.flatnonzero((nearest == count) & (rows > 0))
        place = np.searchsorted(like, asking) - width // 2
        usual[asking] = medians[np.clip(place, 0, len(medians) - 1)]
    return usual


def _part(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
