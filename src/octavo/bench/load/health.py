"""Whether the client kept up: if not, the run tells of the client, and is refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from octavo.bench.stats import percentile

HEARTBEAT_S = 0.01
MAX_CPU_SHARE = 0.9
"""Of one core; the client has no second one to use."""
SHORT_S = 1.0
"""A shorter run is mostly sending: its share of a core says nothing."""


class Heartbeat:
    """A callback every HEARTBEAT_S on the client's own event loop: as late as it is, so late is the client for an answer's bytes."""

    def __init__(self, started: float) -> None:
        self.lags: list[tuple[float, float]] = []
        """(seconds after the start, seconds late)."""
        self._started = started
        self._loop = asyncio.get_running_loop()
        self._cpu = time.process_time()
        self._due = started
        self._next = self._loop.call_at(started, self._beat)

    def stop(self, now: float) -> float:
        """No more beats, but one that is overdue counts. Gives the CPU time since it was made, in seconds, of all this process."""
        self._next.cancel()
        if now > self._due:
            self._note(now)
        return time.process_time() - self._cpu

    def _beat(self) -> None:
        self._note(self._loop.time())
        self._next = self._loop.call_at(self._due, self._beat)

    def _note(self, now: float) -> None:
        """All beats that ought to have been by now were late: a stall counts for as long as it lasted."""
        while self._due <= now:
            self.lags.append((self._due - self._started, now - self._due))
            self._due += HEARTBEAT_S


def bottleneck(
    send_lag: Sequence[float], loop_lag: Sequence[tuple[float, float]], cpu_share: float, max_lag: float, missed: str | None
) -> str | None:
    """Why the client was the bottleneck; None if it was not.

    It was if p99 of what it was late by, in sending or for its own heartbeat, is more than ``max_lag`` seconds, or if it used more than
    MAX_CPU_SHARE of a core; or for ``missed``, what else it did not reach.
    """
    for what, lags in (("requests were sent", send_lag), ("its event loop ran", [lag for _, lag in loop_lag])):
        if lags and (late := percentile(lags, 99)) > max_lag:
            return f"{what} {1000 * late:.0f} ms late (p99), over the {1000 * max_lag:g} ms of --max-client-lag-ms"
    if cpu_share > MAX_CPU_SHARE:
        return f"it used {100 * cpu_share:.0f} % of a core, over {100 * MAX_CPU_SHARE:.0f} %"
    return missed
