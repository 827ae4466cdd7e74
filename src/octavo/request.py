"""A request: as it crosses to the engine (EngineCoreRequest) and as the scheduler keeps it (Request)."""

from __future__ import annotations

import time
from collections import deque
from enum import IntEnum
from typing import NewType

import msgspec

from octavo.outputs import FinishReason
from octavo.sampling_params import SamplingParams, stop_token_set

BlockHash = NewType("BlockHash", bytes)
"""Of a full KV block and all that comes before it; see octavo.kv.block_hash."""


class EngineCoreRequest(msgspec.Struct, omit_defaults=True):
    """All that decides a request's tokens. One that already has output resumes exactly where it stopped."""

    request_id: str
    prompt_token_ids: list[int]
    sampling_params: SamplingParams
    """``seed`` is set and ``max_tokens`` is a number by now."""
    output_token_ids: list[int] = msgspec.field(default_factory=list)
    arrival_time: float = msgspec.field(default_factory=time.monotonic)
    """Seconds of time.monotonic, which all processes of a machine share: setting the machine's clock moves no order and no deadline."""
    priority: int = 0
    """Lower is served first, as in vLLM."""
    deadline: float | None = None
    """On the same clock: after it nobody wants the request, which ends then, wherever it is."""
    cache_salt: str | None = None
    """Requests share prefix-cache blocks only with requests of the same salt."""
    adapter: str | None = None
    eos_token_ids: list[int] = msgspec.field(default_factory=list)
    """Tokens that end a generation by the tokenizer's account; the engine adds those that the model's config names."""


class RequestStatus(IntEnum):
    WAITING = 0
    RUNNING = 1
    PREEMPTED = 2
    FINISHED = 3


class Request:
    """The scheduler's view of a request. Only the scheduler mutates it (block_hashes excepted: they are the KV core's).

    Invariant: 0 <= num_computed_tokens <= num_tokens + num_output_placeholders. A step brings
    num_computed_tokens towards num_tokens; when it gets there, a token is sampled.
    """

    def __init__(self, core: EngineCoreRequest, eos_token_ids: tuple[int, ...] = ()) -> None:
        self.request_id = core.request_id
        self.prompt_token_ids = core.prompt_token_ids
        self.sampling_params = core.sampling_params
        self.output_token_ids: list[int] = list(core.output_token_ids)
        self.all_token_ids: list[int] = [*core.prompt_token_ids, *core.output_token_ids]
        self.num_prompt_tokens = len(core.prompt_token_ids)
        self.arrival_time = core.arrival_time
        self.priority = core.priority
        self.deadline = core.deadline
        self.cache_salt = core.cache_salt
        self.adapter = core.adapter
        self.eos_token_ids = tuple(dict.fromkeys((*eos_token_ids, *core.eos_token_ids)))
        self.stop_ids = stop_token_set(core.sampling_params, self.eos_token_ids)
        self.max_num_tokens = self.num_prompt_tokens + self.max_tokens
        """Prompt and output at most; the scheduler lowers it to max_model_len. All but the last are stored."""

        self.status = RequestStatus.WAITING
        self.finish_reason: FinishReason | None = None
        self.stop_reason: int | None = None
        self.arrival_index = 0
        """Tells apart requests of one arrival_time; the scheduler counts them as they come."""
        self.service_class = 0
        """Lower is served first; the scheduling policy sets it."""
        self.seniority = 0
        """In the order in which requests started first, from 1; 0 before that."""
        self.num_computed_tokens = 0
        """Tokens whose K and V are stored, or will be by steps in flight."""
        self.in_flight: deque[int] = deque()
        """num_computed_tokens after each step that has not come back, oldest first."""
        self.num_output_placeholders = 0
        """Tokens that scheduled steps will sample but whose ids have not come back yet."""
        self.num_cached_tokens = 0
        """Prompt tokens found in the prefix cache when the request first started."""
        self.block_hashes: list[BlockHash] = []
        """Chained, of its full blocks, after the chain's root."""
        self.num_preemptions = 0
        self.num_tokens_before_preemption = 0
        """Most tokens it had computed when it was preempted: up to there, computing is recomputing."""
        self.num_prompt_tokens_done = 0
        """Prompt tokens computed or found, the first time."""
        self.num_prompt_logprobs_sent = 0
        self.waiting_since = 0.0
        """When it was added, or preempted last; this and the next two on the scheduler's clock."""
        self.scheduled_time: float | None = None
        self.first_token_time: float | None = None

    @property
    def num_tokens(self) -> int:
        """Tokens whose ids are known: prompt and output."""
        return len(self.all_token_ids)

    @property
    def max_tokens(self) -> int:
        """Most output tokens; the client has made it a number."""
        assert self.sampling_params.max_tokens is not None
        return self.sampling_params.max_tokens

    @property
    def num_output_tokens(self) -> int:
        return len(self.output_token_ids)

    @property
    def num_uncomputed_tokens(self) -> int:
        """Tokens to compute next: known ones, and the one that a step in flight will sample. The last token of all is never computed."""
        known = len(self.all_token_ids) + self.num_output_placeholders
        return min(known, self.max_num_tokens - 1) - self.num_computed_tokens

    @property
    def rank(self) -> tuple[int, int]:
        """Order among requests that have started: those of a lower class first, then those that started earlier."""
        return self.service_class, self.seniority

    @property
    def finished(self) -> bool:
        return self.status == RequestStatus.FINISHED

    def append_output(self, token_id: int) -> None:
        self.output_token_ids.append(token_id)
        self.all_token_ids.append(token_id)

    def recount_placeholders(self) -> None:
        """Set num_output_placeholders from the steps in flight: one samples if it computes all tokens there are by then.

        Needed when a step brought several tokens: those behind it were planned for one, and end short of the last token now.
        """
        self.num_output_placeholders = 0
        for end in self.in_flight:
            if end == self.num_tokens + self.num_output_placeholders:
                self.num_output_placeholders += 1
