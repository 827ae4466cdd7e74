"""The scheduler's settings."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.config import EngineArgs
from octavo.errors import InvalidRequestError
from octavo.scheduler.queue import POLICIES


@dataclass(frozen=True, kw_only=True)
class SchedulerConfig:
    """What bounds a step; the fields are EngineArgs', with max_model_len resolved.

    Raises:
        InvalidRequestError: on construction, naming the field, its value and its limit.
    """

    max_num_seqs: int
    """Most requests that run at once."""
    max_num_batched_tokens: int
    """Most tokens in a step."""
    max_model_len: int
    """Most tokens of one sequence, prompt and output."""
    enable_chunked_prefill: bool = True
    scheduling_policy: str = "fcfs"
    preemption_victim: str = "last"
    itl_limit: float | None = None
    """Seconds between a request's tokens that steps are planned for; see octavo.scheduler.pacer."""
    ttft_limit: float | None = None
    """Seconds to the first token; whoever takes requests in refuses those that would not make it."""

    def __post_init__(self) -> None:
        if self.scheduling_policy not in POLICIES:
            known = ", ".join(POLICIES)
            raise InvalidRequestError(f"scheduling_policy = {self.scheduling_policy!r}: choose one of {known}", field="scheduling_policy")
        if self.itl_limit is not None and not self.enable_chunked_prefill:
            raise InvalidRequestError(
                f"itl_slo_ms = {1000 * self.itl_limit:g}: it needs chunked prefill, or a prompt holds up every decode", field="itl_slo_ms"
            )
        if not self.enable_chunked_prefill and self.max_num_batched_tokens < self.max_model_len:
            raise InvalidRequestError(
                f"max_num_batched_tokens = {self.max_num_batched_tokens}: without chunked prefill a prompt is computed in one step, so it "
                f"must be at least max_model_len, {self.max_model_len}",
                field="max_num_batched_tokens",
            )

    @classmethod
    def from_args(cls, args: EngineArgs, max_model_len: int) -> SchedulerConfig:
        """``max_model_len``: what the engine decided from args, model and pool."""
        return cls(
            max_num_seqs=args.max_num_seqs,
            max_num_batched_tokens=args.max_num_batched_tokens,
            max_model_len=max_model_len,
            enable_chunked_prefill=args.enable_chunked_prefill,
            scheduling_policy=args.scheduling_policy,
            preemption_victim=args.preemption_victim,
            itl_limit=_seconds(args.itl_slo_ms),
            ttft_limit=_seconds(args.ttft_slo_ms),
        )


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
