"""When requests come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

PROCESSES = ("poisson", "gamma", "constant", "ramp", "at_once", "closed", "trace")
STEADY = ("poisson", "gamma", "constant")
"""Those of one rate."""


@dataclass(frozen=True, kw_only=True)
class Arrivals:
    """When requests come."""

    process: str
    """poisson, gamma, constant, ramp, at_once, trace: open loop, whatever the engine does. closed: each client sends when its last
    request has ended."""
    rate: float = 0.0
    """Requests a second; of a ramp, at its start."""
    burstiness: float = 1.0
    """Of gamma: the shape of the gaps' distribution. Under 1 they come in bursts, 1 is poisson, above it is more regular."""
    end_rate: float = 0.0
    """Of a ramp: at its end, and from then on."""
    duration: float | None = None
    """Of a ramp: seconds from its start to its end; None: until all requests are expected to have come."""
    concurrency: int = 0
    """Of closed: clients."""
    max_concurrency: int | None = None
    """In open loop, most requests in flight: what comes beyond waits at the client, and its latency counts meanwhile."""

    @property
    def closed(self) -> bool:
        """Whether clients wait for answers before they send again."""
        return self.process == "closed"

    @property
    def in_flight(self) -> int | None:
        """Most requests at a time, of whatever process; None: as many as come."""
        return self.concurrency if self.closed else self.max_concurrency

    @property
    def as_soon_as_possible(self) -> bool:
        """Whether no time is set for any request."""
        return self.process in ("closed", "at_once")

    def draw(self, random: np.random.Generator, count: int) -> npt.NDArray[np.float64]:
        """Seconds after the start at which each request comes, [count], rising; all 0 at once, and in a closed loop, where clients decide.

        A trace has times of its own: see octavo.bench.workload.trace.
        """
        if self.as_soon_as_possible:
            return np.zeros(count)
        if self.process == "ramp":
            return self._ramp(np.cumsum(random.exponential(size=count)))
        gaps = np.ones(count) if self.process == "constant" else random.gamma(self.burstiness, 1 / self.burstiness, count)
        return np.cumsum(gaps) / self.rate

    def expected(self, seconds: float, count: int) -> float:
        """Of a ramp: requests expected in its first ``seconds``, the integral of the rate, if ``count`` come in all."""
        length = self._length(count)
        inside = min(seconds, length)
        rising = self.rate * inside + (self.end_rate - self.rate) * inside * inside / (2 * length)
        return rising + self.end_rate * (seconds - inside)

    def _ramp(self, expected: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """When as many requests were ``expected`` [count]: the inverse of ``expected``.

        A Poisson process of rate 1, put through the inverse of the cumulated rate, has that rate (Çinlar 1975, Introduction to
        Stochastic Processes, 4.7): exact, without steps or thinning. The root is written so that nothing cancels as the slope goes to 0.
        """
        length = self._length(len(expected))
        slope = (self.end_rate - self.rate) / length
        whole = (self.rate + self.end_rate) / 2 * length
        inside = np.minimum(expected, whole)
        rising = 2 * inside / (self.rate + np.sqrt(np.maximum(self.rate**2 + 2 * slope * inside, 0.0)))
        return rising + (expected - inside) / self.end_rate

    def _length(self, count: int) -> float:
        return count / ((self.rate + self.end_rate) / 2) if self.duration is None else self.duration

    def as_toml(self) -> dict[str, Any]:
        values: dict[str, Any] = {"process": self.process}
        if self.process in (*STEADY, "ramp"):
            values["rate"] = self.rate
        if self.process == "gamma":
            values["burstiness"] = self.burstiness
        if self.process == "ramp":
            values |= {"end_rate": self.end_rate} | ({} if self.duration is None else {"duration": self.duration})
        if self.closed:
            values["concurrency"] = self.concurrency
        elif self.max_concurrency is not None:
            values["max_concurrency"] = self.max_concurrency
        return values
