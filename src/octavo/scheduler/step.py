"""A step while it is being planned."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from octavo.kv.allocation import Allocation
from octavo.kv.prefix_hit import PrefixHit
from octavo.request import Request
from octavo.scheduler.output import NewRequestData, RunningRequestData, SchedulerOutput
from octavo.scheduler.pacer import StepPlan


class WaitReason(StrEnum):
    """Why the head of the queue does not start."""

    SEATS = "seats"
    """max_num_seqs requests run."""
    BLOCKS = "blocks"
    """Too few KV blocks are free, or admission keeps them for those that run."""
    RUN = "run"
    """Enough are free, but not in one piece, as the placement wants them."""
    TOKENS = "tokens"
    """Those that rank before it took the step's tokens."""
    DISK = "disk"
    """What it need not compute is being read from the prefix cache on disk."""
    PACE = "pace"
    """One more would make the steps longer than the limit on the time between tokens."""
    IN_FLIGHT = "in_flight"
    """It was preempted, and its last step has not come back."""


@dataclass(slots=True)
class Step:
    """What the step takes, tentatively: requests and queues learn of it at the commit, and ``growths`` can be rolled back."""

    output: SchedulerOutput
    budget: int
    """Tokens that can still be handed out."""
    plan: StepPlan
    """What of them may be prefill."""
    position: int = 0
    """The running requests before it have had their turn."""
    blocked: WaitReason | None = None
    """Why the head of the queue has to wait; nobody behind it may pass. None: it may still start."""
    ends: list[tuple[Request, int]] = field(default_factory=list)
    """Each request scheduled, and its num_computed_tokens after the step."""
    starts: list[tuple[Request, PrefixHit]] = field(default_factory=list)
    growths: list[Allocation] = field(default_factory=list)

    def hold(self, reason: WaitReason) -> None:
        """Nobody starts any more in this step."""
        self.blocked = reason

    def advance(self, request: Request, count: int, growth: Allocation) -> None:
        """A running request computes ``count`` more tokens."""
        computed = request.num_computed_tokens
        self.output.running.append(RunningRequestData(request.request_id, computed, growth.new_blocks))
        self._take(request, computed, count, growth)

    def start(self, request: Request, count: int, hit: PrefixHit, growth: Allocation) -> None:
        """A waiting request enters the batch with ``count`` tokens after those it found in the cache."""
        self.output.new.append(
            NewRequestData(
                request_id=request.request_id,
                token_ids=request.all_token_ids,
                num_prompt_tokens=request.num_prompt_tokens,
                sampling_params=request.sampling_params,
                num_computed_tokens=hit.num_tokens,
                block_ids=growth.new_blocks,
                eos_token_ids=request.eos_token_ids,
                num_prompt_logprobs_sent=request.num_prompt_logprobs_sent,
            )
        )
        self.starts.append((request, hit))
        self._take(request, hit.num_tokens, count, growth)

    def _take(self, request: Request, computed: int, count: int, growth: Allocation) -> None:
        self.output.num_scheduled_tokens[request.request_id] = count
        self.ends.append((request, computed + count))
        if growth.tentative:
            self.growths.append(growth)
        self.budget -= count
        self.plan.take(request, computed, count)

    def commit_growths(self) -> None:
        for growth in self.growths:
            growth.commit()

    def roll_back_growths(self) -> None:
        for growth in reversed(self.growths):
            growth.rollback()
