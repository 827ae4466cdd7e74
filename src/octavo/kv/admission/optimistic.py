"""Optimistic admission: pack requests by what they need now; when the pool runs full, the scheduler preempts."""

from __future__ import annotations

from collections.abc import Iterable


class OptimisticAdmission:
    """A request starts when its whole prefill fits, and each running request can still take a block.

    That block apiece is the headroom which keeps a newcomer from being preempted by the next steps' decodes.
    """

    def admits(
        self,
        needed_now: int,
        needed_at_most: int,
        available: int,
        promised: int,
        num_running: int,
        running: Iterable[tuple[int, int]],
    ) -> bool:
        return needed_now + min(num_running, promised) <= available

    def finished(self, stated: int, generated: int) -> None: ...
