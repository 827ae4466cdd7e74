"""Predicted admission: the peak of expected lengths must fit (the rule of the Past-Future scheduler, Gong et al., ASPLOS 2025).

Clients state a max_tokens that few requests reach. The mean ratio r of true to stated output length is learned from requests that end:

    r = 1 at first;    r ← r + (generated / stated − r) / 32    for each that ends by itself; aborted ones teach nothing

A request that may still take m blocks is expected to take r × m. All grow at one pace, so the pool is fullest just before one
of them ends: with h blocks held and e expected,

    peak = max over k of  Σ (h[i] + e[k])  over the requests i with e[i] ≥ e[k]

At r = 1 that is what all hold if each runs to its limit, less what those give back that end sooner. Short requests end
first, so r starts low after an idle time; whoever is admitted wrongly is preempted and resumes.
"""

from __future__ import annotations

from collections.abc import Iterable

_WEIGHT = 1 / 32
"""Of the latest request in the mean ratio."""


class PredictedAdmission:
    """A request starts when the expected peak with it fits, and each running request can still take a block."""

    def __init__(self) -> None:
        self.ratio = 1.0
        """Mean of generated / stated."""

    def admits(
        self,
        needed_now: int,
        needed_at_most: int,
        available: int,
        promised: int,
        num_running: int,
        running: Iterable[tuple[int, int]],
    ) -> bool:
        if needed_now + min(num_running, promised) > available:
            return False
        lengths = [*running, (needed_now, needed_at_most - needed_now)]
        held = sum(now for now, _ in lengths)
        return self.expected_peak(lengths) <= available + held - needed_now

    def finished(self, stated: int, generated: int) -> None:
        self.ratio += (generated / stated - self.ratio) * _WEIGHT

    def expected_peak(self, lengths: Iterable[tuple[int, int]]) -> float:
        """Most blocks that requests (held, may still take) are expected to hold together."""
        peak = held = 0.0
        for count, (more, now) in enumerate(sorted(((self.ratio * more, now) for now, more in lengths), reverse=True), 1):
            held += now
            peak = max(peak, held + count * more)
        return peak
