"""How long a newcomer would wait for its first token."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from octavo.request import Request
from octavo.scheduler.pacer import Pacer, is_decode
from octavo.scheduler.queue import RequestQueue
from octavo.scheduler.step import WaitReason
from octavo.scheduler.step_cost import StepWork

MEMORY = 0.9
"""What of the mean interval between ends is kept at each end."""
_FULL = (WaitReason.SEATS, WaitReason.BLOCKS, WaitReason.RUN, WaitReason.PACE)
"""The head of the queue waits for somebody to end."""


class WaitEstimate:
    """From the prefill ahead, the speed of prefill beside those who decode, and how often a running request ends.

    Cached prefixes are not foreseen, so the estimate is high where many prompts are in the cache.
    """

    def __init__(self, pacer: Pacer, most_tokens: int) -> None:
        """``most_tokens``: of one step."""
        self._pacer = pacer
        self._most_tokens = most_tokens
        self._last_end: float | None = None
        self._interval = 0.0

    def ended(self, now: float, busy: bool) -> None:
        """A running request ended, with others waiting (``busy``) or not: an idle engine's ends tell nothing of how fast it makes room."""
        if busy and self._last_end is not None:
            interval = now - self._last_end
            self._interval = MEMORY * self._interval + (1 - MEMORY) * interval if self._interval else interval
        self._last_end = now if busy else None

    def stats(self, waiting: RequestQueue, running: Sequence[Request], blocked: WaitReason | None) -> dict[str, float]:
        """What decides when a newcomer would get its first token: fields of EngineStats. ``blocked``: why the head of the queue waits."""
        started = sum(request.num_uncomputed_tokens for request in running if not is_decode(request))
        return {
            "prefill_backlog": waiting.num_prompt_tokens + started,
            "prefill_tokens_per_s": self.prefill_tokens_per_second(running, waiting.num_prompt_tokens),
            "seat_wait_s": self.seconds_for_seats(blocked, len(waiting)),
        }

    def prefill_tokens_per_second(self, running: Iterable[Request], waiting_tokens: int = 0) -> float:
        """Beside the decodes of ``running``, with so many tokens of prompts that wait; 0 as long as the cost of a step is not known."""
        cost = self._pacer.cost
        if not cost.num_observed:
            return 0.0
        decodes, at_hand = StepWork(), StepWork(tokens=waiting_tokens)
        for request in running:
            if is_decode(request):
                decodes.add(request.num_computed_tokens, 1, True)
            else:
                at_hand.add(0, request.num_tokens, False)
        count = max(self._most_tokens - decodes.tokens, 1)
        if self._pacer.limit is not None and decodes.rows:
            count = self._pacer.least_or(cost.most_tokens(decodes, 0, count, self._pacer.target_with(decodes, at_hand)))
        decodes.add(0, count, False)
        return count / max(cost.predict(decodes), 1e-9)

    def seconds_for_seats(self, blocked: WaitReason | None, num_waiting: int) -> float:
        """Until so many have been let in ahead of a newcomer, and it too; 0 where nothing but prefill is waited for."""
        return self._interval * (num_waiting + 1) if blocked in _FULL else 0.0
