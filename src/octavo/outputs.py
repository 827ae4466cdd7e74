"""What generation gives back: to the user (RequestOutput …) and from the engine to its client (EngineCoreOutput …)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec


class FinishReason(StrEnum):
    """Why a request ended."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"
    TIMEOUT = "timeout"
    """Its deadline passed."""


@dataclass(slots=True)
class Logprob:
    """One token's log-probability (nats), its rank (1 is the likeliest) and its text."""

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


@dataclass(slots=True)
class CompletionOutput:
    """One completion of a prompt; its text, ids and logprobs always end at the same place."""

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None = None
    logprobs: list[dict[int, Logprob]] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None

    def finished(self) -> bool:
        return self.finish_reason is not None


@dataclass(slots=True)
class RequestOutput:
    """A request's prompt and its completions so far."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None
    num_cached_tokens: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    """Seconds since the epoch at ``arrival``, and at the end also ``queued``, ``scheduled``, ``first_token`` and ``finished``. They are
    read from a clock that nobody sets and dated once a request, so their differences hold."""


class TokenLogprobs(msgspec.Struct, array_like=True):
    """Log-probabilities at one position.

    ``token_ids[0]`` is the chosen (or prompt) token, with ``logprobs[0]`` and ``rank``; the likeliest
    tokens follow in falling order (the chosen one may stand among them again).
    """

    token_ids: list[int]
    logprobs: list[float]
    rank: int


class EngineCoreOutput(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """What one step brought one request."""

    request_id: str
    new_token_ids: list[int]
    new_logprobs: list[TokenLogprobs] | None = None
    new_prompt_logprobs: list[TokenLogprobs] | None = None
    """For prompt tokens 1, 2, …, in order, over one or more messages."""
    finish_reason: str | None = None
    stop_reason: int | None = None
    """The stop token id that ended it, when it was not an end-of-sequence token."""
    num_cached_tokens: int = 0
    error: str | None = None
    times: dict[str, float] | None = None
    """With the last message: time.monotonic at ``queued``, ``scheduled``, ``first_token``, ``finished``."""


class EngineCoreOutputs(msgspec.Struct, omit_defaults=True):
    """All that one step brought, and the engine's state after it; one message on the wire, which need not have the state each time."""

    outputs: list[EngineCoreOutput] = msgspec.field(default_factory=list)
    stats: EngineStats | None = None


class KVWrites(msgspec.Struct, array_like=True):
    """What writing 8-bit K and V met since the start, by layer. A vector is one token's K, or V, of one head."""

    vectors: list[int]
    """Of K; as many of V."""
    guarded_k: list[int]
    """Vectors that got a scale of their own under kv_scales "guarded"."""
    guarded_v: list[int]
    clipped_k: list[int]
    """Numbers beyond the type's largest under kv_scales "static"."""
    clipped_v: list[int]


class ResourceCounts(msgspec.Struct, array_like=True, frozen=True):
    """What an engine's process has made since its start of what is dear to make; serving is to make none of it."""

    allocations: int = 0
    """Times that memory which weights, KV, programs and the sampler work in was taken from the system, or grew."""
    allocated_bytes: int = 0
    programs: int = 0
    threads: int = 0
    """That compute."""


class EngineStats(msgspec.Struct, omit_defaults=True):
    """The engine after a step: gauges as they stand, counters as totals since the start."""

    running: int = 0
    waiting: int = 0
    added: int = 0
    """Requests that ever came in; a client that sent more knows how many the engine has not seen."""
    oldest_waiting_s: float = 0.0
    waiting_reason: str = ""
    """Why the head of the queue did not start in the last step (octavo.scheduler.step.WaitReason); "" if nobody waits."""
    steps: int = 0
    step_seconds: float = 0.0
    """Total time in steps, their accounts included; ``native_seconds`` of it in native code."""
    native_seconds: float = 0.0
    schedule_seconds: float = 0.0
    """Of it, planning; ``transfer_seconds`` moving KV blocks."""
    transfer_seconds: float = 0.0
    gc_seconds: float = 0.0
    """In Python's garbage collector, in steps and between them."""
    idle_seconds: float = 0.0
    """Without a request."""
    prompt_tokens: int = 0
    """Prompt tokens computed or found in the prefix cache, for the first time."""
    generation_tokens: int = 0
    preemptions: int = 0
    recomputed_tokens: int = 0
    swapped_out_blocks: int = 0
    """KV blocks of preempted requests saved to host memory, and loaded again."""
    swapped_in_blocks: int = 0
    swap_bytes: int = 0
    """Host memory that holds such blocks now."""
    kv_moved_blocks: int = 0
    """By compaction."""
    prefix_queries: int = 0
    """Prompt tokens looked up in the prefix index, and found."""
    prefix_hits: int = 0
    disk_hits: int = 0
    """Of the tokens that requests need not compute (found when they started or resumed), those read from the tier on disk."""
    disk_spilled_blocks: int = 0
    disk_dropped_blocks: int = 0
    """Blocks not written because the disk could not keep up."""
    disk_corrupt_files: int = 0
    disk_bytes: int = 0
    kv: dict[str, Any] = msgspec.field(default_factory=dict)
    """``KVUsage`` as a dict, see octavo.kv.usage."""
    predicted_seconds: float = 0.0
    """Where steps are predicted (octavo.scheduler.pacer), in total: the predictions, how long these steps took, how far they were off."""
    observed_seconds: float = 0.0
    prediction_error_seconds: float = 0.0
    prediction_margin_s: float = 0.0
    """By how much the last ones exceeded their prediction, at a high percentile."""
    prefill_backlog: int = 0
    """Under a limit on the time to the first token: tokens of prefill ahead of a newcomer, how fast they are computed, and how long it
    would wait for a place besides."""
    prefill_tokens_per_s: float = 0.0
    seat_wait_s: float = 0.0
    kv_writes: KVWrites | None = None
    """None where K and V have no scales."""
    resources: ResourceCounts = ResourceCounts()
    resources_at_ready: ResourceCounts = ResourceCounts()
    """What ``resources`` were when the engine was ready."""
