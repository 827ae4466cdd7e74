"""Optimistic admission: pack requests by what they need now; when the pool runs full, the scheduler preempts."""

from __future__ import annotations


class OptimisticAdmission:
    """A request starts when its whole prefill fits."""

    def admits(self, needed_now: int, needed_at_most: int, available: int, promised: int) -> bool:
        return needed_now <= available
