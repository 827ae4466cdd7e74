"""Whether the scheduler's books balance; for an idle engine and for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from octavo.kv.kv_cache_manager import KVCacheManager
from octavo.request import Request, RequestStatus
from octavo.scheduler.config import SchedulerConfig
from octavo.scheduler.queue import RequestQueue


def check_books(
    config: SchedulerConfig, kv: KVCacheManager, requests: Mapping[str, Request], waiting: RequestQueue, running: Sequence[Request]
) -> None:
    """Recount everything, the KV pools included. Raises AssertionError if anything differs."""
    waiting.check_integrity()
    kv.check_integrity(running)
    assert [request.rank for request in running] == sorted({request.rank for request in running}), "running out of order"
    assert len(running) <= config.max_num_seqs, "more than max_num_seqs run"
    assert len(requests) == len(running) + len(waiting), "a request is neither running nor waiting"
    assert kv.swap.request_ids <= requests.keys(), "blocks are kept of a request that has ended"
    for request in requests.values():
        runs = request.status is RequestStatus.RUNNING
        assert runs == (request in running), "a status is wrong"
        assert 0 <= request.num_computed_tokens <= request.num_tokens + request.num_output_placeholders, "computed past the end"
        assert runs or not request.num_computed_tokens, "computed tokens of a request that does not run"
        placeholders = request.num_output_placeholders
        request.recount_placeholders()
        assert placeholders == request.num_output_placeholders, "placeholders differ from the steps in flight"
