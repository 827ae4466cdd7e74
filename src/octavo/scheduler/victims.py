"""Who gives way when a request needs room: the policy's choice, kept within bounds."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.kv.interfaces import Victim
from octavo.kv.kv_cache_manager import KVCacheManager
from octavo.kv.policies import choose_victim
from octavo.request import Request

MOST_CHOICES = 4
"""A policy's choice falls on a request this often at most, the times that it was last in rank anyway included."""


class Candidate:
    """octavo.kv.interfaces.VictimCandidate over a running request; what costs is computed when it is asked for."""

    __slots__ = ("_kv", "_request")

    def __init__(self, request: Request, kv: KVCacheManager) -> None:
        self._request, self._kv = request, kv

    @property
    def request_id(self) -> str:
        return self._request.request_id

    @property
    def num_computed_tokens(self) -> int:
        return self._request.num_computed_tokens

    @property
    def num_remaining_tokens(self) -> int:
        return self._request.max_num_tokens - 1 - self._request.num_computed_tokens

    @property
    def num_preemptions(self) -> int:
        return self._request.num_preemptions

    @property
    def blocks_freed(self) -> int:
        return self._kv.blocks_freed_by(self._request)


class VictimChooser:
    """Asks the policy, under rules that hold whatever it is.

    A request gives way only to one that ranks before it, and while requests of a lower class run, none of a higher one gives way.
    One that was preempted MOST_CHOICES times is no longer offered; when none is left to offer, the last in rank goes. So choices are
    finite in number, MOST_CHOICES a request, and what is preempted beside them follows the rule whose bound is proven at Scheduler.
    """

    def __init__(self, policy: str, kv: KVCacheManager) -> None:
        """Raises InvalidRequestError for a policy that is unknown."""
        self._policy: Victim = choose_victim(policy)
        self._kv = kv

    def choose(self, running: Sequence[Request], needed: int) -> Request:
        """One of ``running``, which all rank after the request that needs ``needed`` more blocks; in order of rank, at least one."""
        last = running[-1]
        offered = [request for request in running if request.service_class == last.service_class and request.num_preemptions < MOST_CHOICES]
        if not offered:
            return last
        index = self._policy.choose([Candidate(request, self._kv) for request in offered], needed)
        return offered[range(len(offered))[index]]
