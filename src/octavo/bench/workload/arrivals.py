"""When requests come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

PROCESSES = ("poisson", "gamma", "constant", "closed")


@dataclass(frozen=True, kw_only=True)
class Arrivals:
    """When requests come."""

    process: str
    """poisson, gamma, constant: open loop, whatever the engine does. closed: each client sends when its last request has ended."""
    rate: float = 0.0
    """Requests a second."""
    burstiness: float = 1.0
    """Of gamma: the shape of the gaps' distribution. Under 1 they come in bursts, 1 is poisson, above it is more regular."""
    concurrency: int = 0
    """Of closed: clients."""

    def draw(self, random: np.random.Generator, count: int) -> npt.NDArray[np.float64]:
        """Seconds after the start at which each request comes, [count], rising; all 0 in a closed loop, where the clients decide."""
        if self.process == "closed":
            return np.zeros(count)
        gaps = np.ones(count) if self.process == "constant" else random.gamma(self.burstiness, 1 / self.burstiness, count)
        return np.cumsum(gaps) / self.rate

    def as_toml(self) -> dict[str, Any]:
        if self.process == "closed":
            return {"process": self.process, "concurrency": self.concurrency}
        burstiness = {"burstiness": self.burstiness} if self.process == "gamma" else {}
        return {"process": self.process, "rate": self.rate, **burstiness}
