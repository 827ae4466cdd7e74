"""Overload is answered at the door: 429 for one request, in place of a missed limit for all."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from octavo.config import EngineArgs
from octavo.engine.processor import PreparedRequest
from octavo.outputs import EngineStats
from octavo.server.errors import ApiError


class Gate:
    """Lets requests in as long as the queue is inside --max-queued-requests and their first token would come inside --ttft-slo-ms.

    It judges by the engine's last word (EngineStats, one step old at most) and by what was sent since, so it costs the engine nothing. Its
    own length alone refuses no request: one that would take most of the limit by itself may have half of it to wait.
    """

    def __init__(self, args: EngineArgs, stats: Callable[[], EngineStats], unseen: Callable[[], Sequence[int]]) -> None:
        """``unseen``: prompt tokens of each sequence sent that ``stats`` does not know of yet."""
        self._args = args
        self._stats = stats
        self._unseen = unseen

    def admit(self, prepared: Sequence[PreparedRequest]) -> None:
        """Let them in, all or none.

        Raises:
            ApiError: 429 with Retry-After, in seconds.
        """
        stats, unseen = self._stats(), self._unseen()
        self._check_queue(prepared, stats, len(unseen))
        self._check_first_token(prepared, stats, sum(unseen))

    def _check_queue(self, prepared: Sequence[PreparedRequest], stats: EngineStats, num_unseen: int) -> None:
        most = self._args.max_queued_requests
        if most is None:
            return
        seats = 0 if stats.waiting else max(self._args.max_num_seqs - stats.running, 0)
        ahead = stats.waiting + max(num_unseen - seats, 0)
        coming = sum(len(request.children) for request in prepared)
        if stats.waiting + max(num_unseen + coming - seats, 0) > most:
            message = f"max_queued_requests = {most}: {ahead} wait already, and this request brings {coming}"
            raise _overloaded(message, "queue_full", stats.seat_wait_s)

    def _check_first_token(self, prepared: Sequence[PreparedRequest], stats: EngineStats, unseen_tokens: int) -> None:
        limit, speed = self._args.ttft_slo_ms, stats.prefill_tokens_per_s
        ahead = stats.prefill_backlog + unseen_tokens
        if limit is None or not speed or not (ahead or stats.seat_wait_s):
            return
        own = sum(len(request.prompt_token_ids) for request in prepared) / speed
        wait = ahead / speed + stats.seat_wait_s
        if 1000 * wait > max(limit - 1000 * own, limit / 2):
            message = f"ttft_slo_ms = {limit:g}: by what is ahead of it, the first token would come after {1000 * (wait + own):,.0f} ms"
            raise _overloaded(message, "ttft_slo", wait + own - limit / 1000)


def _overloaded(message: str, code: str, seconds: float) -> ApiError:
    return ApiError(429, message, code=code, headers={"Retry-After": str(max(math.ceil(seconds), 1))})
