"""Which step made which token, and when the client could not take any."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from octavo.bench.observe.causes import F64
from octavo.engine.step_log import StepRecord

I64 = npt.NDArray[np.int64]

STALL_SECONDS = 0.001
"""A heartbeat that is less late says nothing."""
_UNBOUND = np.iinfo(np.int64).max // 2


class Makers:
    """Finds the step that made each token of a request.

    It is the last one that gave tokens and ended before the token came; and a request gets one token a step, so each token was made at
    least a step before the next. Tokens that come together are so counted backwards from the last. Steps that nobody saw may have given
    tokens, and count. What came after the log was last read is of no step in it.
    """

    def __init__(self, steps: Sequence[StepRecord], until: float, slack: float = 0.0) -> None:
        """``until``: when the log was last read. ``slack``: how much earlier than its step's end a token may seem to come, in seconds."""
        self._until, self._slack = until, slack
        self._places = np.flatnonzero([step.sampled > 0 for step in steps])
        self._ends = np.array([step.time for step in steps if step.sampled > 0], np.float64)
        missing = [step.step - steps[0].step - place for place, step in enumerate(steps)]
        self._counts = np.arange(len(self._places)) + np.array(missing, np.int64)[self._places]
        self._before = np.append(self._counts, self._counts[-1:] + 1) - 1
        """Most tokens that can have been given before the next step that is known to have given one."""

    def of(self, arrivals: F64) -> I64:
        """Places in the log of the steps that made tokens which came at ``arrivals``, in order; -1: not in the log."""
        if not len(self._places):
            return np.full(len(arrivals), -1)
        turns, known = np.arange(len(arrivals)), arrivals <= self._until
        following = np.searchsorted(self._ends, arrivals + self._slack, "right")
        at_most = self._before[following] - turns
        bound = np.where(known, at_most, _UNBOUND)
        count = np.minimum.accumulate(bound[::-1])[::-1] + turns
        found = np.minimum(np.searchsorted(self._counts, count), len(self._counts) - 1)
        places: I64 = np.where(known & (self._counts[found] == count), self._places[found], -1)
        return places


class Stalls:
    """When the client's event loop stood still: its heartbeat was due, and did not come."""

    def __init__(self, loop_lag: Sequence[tuple[float, float]]) -> None:
        """``loop_lag``: as ClientHealth has it."""
        edges, total = [0.0], [0.0]
        for due, late in sorted(loop_lag):
            start, end = max(due, edges[-1]), due + late
            if late > STALL_SECONDS and end > start:
                edges += [start, end]
                total += [total[-1], total[-1] + end - start]
        self._edges, self._total = np.array(edges), np.array(total)

    def within(self, start: F64, end: F64) -> F64:
        """Seconds of each span in which it stood still."""
        found: F64 = np.interp(end, self._edges, self._total) - np.interp(start, self._edges, self._total)
        return found
