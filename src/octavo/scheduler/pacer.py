"""Pacing: how much prefill a step may hold, so that those who decode get their next token in time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from octavo.request import Request, RequestStatus
from octavo.scheduler.step_cost import StepCostModel, StepWork

MIN_PREFILL_TOKENS = 16
"""Prefill that a step holds at least, if any waits for it: prefills go on however slow the decodes are."""
HEADROOM = 0.9
"""The part of the limit that a step is planned for at most; delivery needs the rest."""
SHORT = 0.65
"""The part of what the decodes leave of such a step that prefill gets while little of it waits: what stops the whole machine for a moment
then seldom makes a token late."""
FEW, MANY = 6, 20
"""Limits that the prefill at hand would take by itself: up to so many it gets SHORT, from so many on all that is left, since long steps pay
for their decodes less often."""


class Pacer:
    """Plans each step to last no longer than a limit on the time between tokens.

    Decodes come first: each gets its token in every step. Prefill gets what the limit leaves by the cost model and its margin of error,
    and MIN_PREFILL_TOKENS at least. Where nobody decodes there is nothing to protect, and the limit does not bind. A request may start only
    if the batch with it could still decode, with the least prefill beside it, inside the limit: so under overload it is the queue that
    grows, not the time between tokens.
    """

    def __init__(self, limit: float | None) -> None:
        """``limit``: seconds between tokens; None: the model is fitted, and nothing is bounded."""
        self.limit = limit
        self.cost = StepCostModel()
        self.predicted_seconds = 0.0
        """Of all steps that were predicted, in total; and how long they took, and by how much each was off."""
        self.observed_seconds = 0.0
        self.absolute_error_seconds = 0.0
        self._most_rows = 0
        self._decode_seconds = 0.0
        """Of the last step that only decoded."""

    def plan(self, running: Iterable[Request], waiting_tokens: int = 0) -> StepPlan:
        """For the next step; ``running`` as it stands before it, ``waiting_tokens`` of the prompts that have not started."""
        return StepPlan(self, running, waiting_tokens)

    def observe(self, work: StepWork, seconds: float) -> None:
        """A step of this work ended so long after the one before it."""
        if work.tokens == 0:
            return
        if self.cost.num_observed:
            predicted = self.cost.predict(work)
            self.predicted_seconds += predicted
            self.observed_seconds += seconds
            self.absolute_error_seconds += abs(predicted - seconds)
        self.cost.observe(work, seconds)
        self._most_rows = max(self._most_rows, work.rows)
        if work.tokens == work.waiting_decodes:
            self._decode_seconds = seconds

    def explores(self, rows: int) -> bool:
        """Whether a batch of so many sequences is to be tried although it seems too slow: one more than was ever seen, where decoding what
        there is takes no more than half of what a step may. Without it, an engine that never saw more would never learn what more cost."""
        return rows == self._most_rows + 1 and 0 < self._decode_seconds <= self.target / 2

    def stats(self) -> dict[str, float]:
        """The fields of EngineStats; empty before a step was predicted."""
        if not self.predicted_seconds:
            return {}
        return {
            "predicted_seconds": self.predicted_seconds,
            "observed_seconds": self.observed_seconds,
            "prediction_error_seconds": self.absolute_error_seconds,
            "prediction_margin_s": self.cost.margin(self.limit or 0.0),
        }

    def least_or(self, tokens: int) -> int:
        """``tokens``, or the least that a step holds of prefill."""
        return max(tokens, MIN_PREFILL_TOKENS)

    @property
    def target(self) -> float:
        """Seconds that a step is planned for at most; with the margin it ends inside the limit."""
        assert self.limit is not None
        most = HEADROOM * self.limit
        return most - min(self.cost.margin(most), most / 2)

    def target_with(self, decodes: StepWork, at_hand: StepWork) -> float:
        """Seconds that a step of ``decodes`` and some prefill is planned for, while there is so much prefill in all: longer for more."""
        assert self.limit is not None
        limits = self.cost.predict_more(at_hand) / self.limit
        part = SHORT + (1 - SHORT) * min(max((limits - FEW) / (MANY - FEW), 0.0), 1.0)
        longest = self.target
        return longest - (1 - part) * max(longest - self.cost.predict(decodes), 0.0)


class StepPlan:
    """One step's share-out. The decodes' part is set aside from the start, whoever's turn it is."""

    def __init__(self, pacer: Pacer, running: Iterable[Request], waiting_tokens: int) -> None:
        self.work = StepWork()
        """What the step was given so far."""
        self._pacer = pacer
        self._limited = pacer.limit is not None
        self._protects = False
        if not self._limited:
            return
        self._promised = StepWork()
        """All decodes of the step, and the prefill it was given so far."""
        self._decodes_to_come = 0
        self._batch = StepWork(tokens=MIN_PREFILL_TOKENS)
        """Everybody decoding, with the least prefill beside them: what comes of this batch."""
        self._prefill_tokens = 0
        at_hand = StepWork(tokens=waiting_tokens)
        for request in running:
            self._batch.add(request.num_tokens, 1, True)
            if is_decode(request):
                self._promised.add(request.num_computed_tokens, 1, True)
                self._decodes_to_come += 1
            else:
                at_hand.add(0, request.num_tokens, False)
        self._target = pacer.target_with(self._promised, at_hand)
        self._protects = self._promised.rows > 0

    def prefill_tokens(self, computed: int, wanted: int, budget: int) -> int:
        """How many of the ``wanted`` tokens of a prefill, with ``computed`` before them, this step may hold; 0: none in this step.

        ``budget``: tokens left to the step, which have to do for the decodes to come as well.
        """
        if not self._protects:
            return min(wanted, budget)
        most = self._pacer.cost.most_tokens(self._promised, computed, wanted, self._target)
        return max(min(wanted, max(most, MIN_PREFILL_TOKENS - self._prefill_tokens), budget - self._decodes_to_come), 0)

    def may_start(self, request: Request) -> bool:
        """Whether the batch with ``request`` could decode inside the limit once its prefill is done. The first always may."""
        if not self._limited or not self._batch.rows:
            return True
        batch = replace(self._batch)
        batch.add(request.num_tokens, 1, True)
        return self._pacer.cost.predict(batch) <= self._pacer.target or self._pacer.explores(batch.rows)

    def take(self, request: Request, computed: int, count: int) -> None:
        """The step computes ``count`` more tokens of ``request``, after ``computed``."""
        samples = computed + count == request.num_tokens + request.num_output_placeholders
        decode = request.status is RequestStatus.RUNNING and is_decode(request)
        self.work.add(computed, count, samples, decode=decode)
        if not self._limited:
            return
        if decode:
            self._decodes_to_come -= 1
        else:
            self._promised.add(computed, count, samples)
            self._prefill_tokens += count
            if request.status is not RequestStatus.RUNNING:
                self._batch.add(request.num_tokens, 1, True)

    def leave(self, request: Request) -> None:
        """A running request that has not had its turn is preempted."""
        if not self._limited:
            return
        self._batch.remove(request.num_tokens)
        if is_decode(request):
            self._promised.remove(request.num_computed_tokens)
            self._decodes_to_come -= 1
            self._protects = self._promised.rows > 0


def is_decode(request: Request) -> bool:
    """Whether the request's next token follows its last one: somebody waits for it."""
    return request.num_output_tokens + request.num_output_placeholders > 0 and request.num_uncomputed_tokens <= 1
