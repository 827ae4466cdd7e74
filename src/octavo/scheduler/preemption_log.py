"""A line in the log for each preemption, so that thrash can be seen; when there are many, for some of them."""

from __future__ import annotations

import logging
from collections.abc import Callable

logger = logging.getLogger(__name__)

BURST = 10
"""Lines that may follow each other at once."""
SECONDS_PER_LINE = 1.0
"""After a burst."""


class PreemptionLog:
    """Logs at most BURST lines, and one more each second; what is left out is counted in the next line."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._allowed = float(BURST)
        self._last = clock()
        self._left_out = 0

    def preempted(self, request_id: str, computed: int, kept: int, before: float, after: float) -> None:
        """A request with ``computed`` tokens lost its blocks; ``kept`` are swapped out. Usage of the pool, 0 to 1, before and after."""
        now = self._clock()
        self._allowed = min(self._allowed + (now - self._last) / SECONDS_PER_LINE, float(BURST))
        self._last = now
        if self._allowed < 1:
            self._left_out += 1
            return
        self._allowed -= 1
        mode = "swap" if kept else "recompute"
        rest = f"; {self._left_out} more since the last such line" if self._left_out else ""
        logger.warning(
            "preempted %s (%s): %d tokens lost, %d kept; KV usage %.1f %% before, %.1f %% after%s",
            request_id,
            mode,
            computed - kept,
            kept,
            100 * before,
            100 * after,
            rest,
        )
        self._left_out = 0
