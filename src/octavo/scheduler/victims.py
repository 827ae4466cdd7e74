"""Who gives way when a request needs room: the policy's choice, kept within bounds.

**Preemption cannot thrash.** A request gives way only to one that ranks before it: of a class that is served first, or of its own
class and started earlier. It resumes before any newcomer of its class starts, and only when its whole prefill fits. Let the victim be
the last in rank. When it gives way, fewer blocks are left than its prefill needs (or the one that took them would have had enough
without it), and until a request ends the running only take more. So between two preemptions of a request, one that ranks before it
ends: it is preempted at most as often as requests that rank before it run during its life. Under fcfs those ran when it first
started: there are fewer than max_num_seqs. (One that finds its tokens in others' cached blocks, or in the swap space, may resume
with less to compute, but not with fewer blocks. Layers with a sliding window give blocks back when a prefill is done as well: in
such models each prefill of a request that ranks before it counts like an end.)

Another rule for the victim may choose a request that could resume at once, but each request MOST_CHOICES times at most. All other
victims are the last in rank, so between two of these preemptions of a request, one that ranks before it ends, or another request was
chosen: the number is bounded too, and when the choices are used up the proof above holds.
"""

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
    finite in number, MOST_CHOICES a request, and what is preempted beside them follows the rule whose bound is proven above.
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
