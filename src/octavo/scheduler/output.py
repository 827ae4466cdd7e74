"""What the scheduler tells the runner, and what the runner answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from octavo.kv.transfers import Transfer
from octavo.outputs import KVWrites, TokenLogprobs
from octavo.sampling_params import SamplingParams
from octavo.scheduler.step_cost import StepWork

Int32Array = npt.NDArray[np.int32]


@dataclass(slots=True)
class NewRequestData:
    """A request that enters the runner's batch: fresh, or coming back after preemption with output already.

    The runner copies what it needs; the lists belong to the scheduler.
    """

    request_id: str
    token_ids: Sequence[int]
    """Prompt and output so far."""
    num_prompt_tokens: int
    sampling_params: SamplingParams
    num_computed_tokens: int
    block_ids: list[Int32Array]
    """Per layer group: all its blocks, in order of position."""
    eos_token_ids: tuple[int, ...] = ()
    num_prompt_logprobs_sent: int = 0
    """Prompt positions whose log-probabilities went out before a preemption; they are not sent again."""


@dataclass(slots=True)
class RunningRequestData:
    """A request that is in the runner's batch already."""

    request_id: str
    num_computed_tokens: int
    """Before this step."""
    new_block_ids: list[Int32Array]
    """Per layer group: blocks appended since the last step it was scheduled in; often empty."""


@dataclass(slots=True)
class MovedBlocks:
    """A request's blocks from position ``first`` on are these from now on; a transfer copies what they hold."""

    request_id: str
    group: int
    first: int
    block_ids: Int32Array


@dataclass(slots=True)
class SchedulerOutput:
    """One step: how many tokens each request advances. It holds counts, never sampled ids: the last ids live in the runner.

    The runner first carries out ``transfers``, in order, and drops ``removed_request_ids``, then adds ``new``, updates ``running`` and
    puts ``moved`` into the block tables. A request that a failed transfer names fails, and has no part in the step.
    A request samples a token in this step exactly if num_computed_tokens + its count == the tokens it has then
    (for the runner: the ids it knows, its own sampled ones included).
    """

    step_id: int
    new: list[NewRequestData] = field(default_factory=list)
    running: list[RunningRequestData] = field(default_factory=list)
    num_scheduled_tokens: dict[str, int] = field(default_factory=dict)
    """In the order of scheduling; the runner may lay the batch out in its own order."""
    removed_request_ids: list[str] = field(default_factory=list)
    """Finished, aborted or preempted since the last step."""
    transfers: list[Transfer] = field(default_factory=list)
    """Blocks that move since the last step."""
    moved: list[MovedBlocks] = field(default_factory=list)
    """Of requests in the batch, scheduled in this step or not."""
    work: StepWork = field(default_factory=StepWork)
    """What it computes, counted."""

    @property
    def total_num_scheduled_tokens(self) -> int:
        return sum(self.num_scheduled_tokens.values())

    @property
    def num_moved_blocks(self) -> int:
        return sum(len(moved.block_ids) for moved in self.moved)


@dataclass(slots=True)
class RunnerOutput:
    """What a step produced, by request id. A request whose prefill is not complete is absent from ``sampled``."""

    step_id: int
    sampled: dict[str, list[int]] = field(default_factory=dict)
    """New token ids: one, or several from a runner that drafts."""
    logprobs: dict[str, list[TokenLogprobs]] = field(default_factory=dict)
    """One entry a sampled token, for requests that asked."""
    prompt_logprobs: dict[str, list[TokenLogprobs]] = field(default_factory=dict)
    """For the prompt positions that this step computed, in order, for requests that asked."""
    errors: dict[str, str] = field(default_factory=dict)
    """Requests that failed by themselves (their other fields are absent); the rest of the step stands."""
    native_seconds: float = 0.0
    transfer_seconds: float = 0.0
    """Carrying out ``transfers``."""
    kv_writes: KVWrites | None = None
    """Since the start; None where K and V have no scales."""
