"""Guaranteed admission: what has started is never short of blocks, so it is never preempted for want of them."""

from __future__ import annotations

from collections.abc import Iterable


class GuaranteedAdmission:
    """A request starts when it and all that runs fit, even if each takes max_tokens."""

    def admits(
        self,
        needed_now: int,
        needed_at_most: int,
        available: int,
        promised: int,
        num_running: int,
        running: Iterable[tuple[int, int]],
    ) -> bool:
        return needed_at_most <= available - promised

    def finished(self, stated: int, generated: int) -> None: ...
