"""The waiting requests, in the order in which they start."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable

from octavo.request import Request

POLICIES: dict[str, Callable[[Request], int]] = {"fcfs": lambda request: 0, "priority": lambda request: request.priority}
"""A request's class under each scheduling policy; a lower one is served first."""

_Place = tuple[int, bool, float, int]
_LEAST_COMPACTION = 64


class RequestQueue:
    """A heap ordered by class; in a class, those that were preempted come back first, in the order in which they first started, and
    then newcomers by arrival. So a preempted request resumes before a newcomer of its class starts, but never before a higher class.

    Adding and popping cost O(log n), removing O(1) amortized: a removed entry stays in the heap as a hole until it is passed, or until
    half of the heap is holes.
    """

    def __init__(self, policy: str) -> None:
        self._class_of = POLICIES[policy]
        self._heap: list[tuple[_Place, Request]] = []
        self._waiting: OrderedDict[str, Request] = OrderedDict()  # in the order in which they began to wait
        self.num_prompt_tokens = 0
        """Of all that wait."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, request: Request) -> None:
        """A newcomer, or one that was preempted (it has seniority)."""
        request.service_class = self._class_of(request)
        newcomer = not request.seniority
        order = request.arrival_time if newcomer else request.seniority
        heapq.heappush(self._heap, ((request.service_class, newcomer, order, request.arrival_index), request))
        self._waiting[request.request_id] = request
        self.num_prompt_tokens += request.num_prompt_tokens

    def peek(self) -> Request | None:
        """The next to start."""
        while self._heap:
            request = self._heap[0][1]
            if self._waiting.get(request.request_id) is request:
                return request
            heapq.heappop(self._heap)
        return None

    def pop(self) -> Request:
        """Take out the next to start; it may be added again."""
        request = self.peek()
        assert request is not None
        heapq.heappop(self._heap)
        del self._waiting[request.request_id]
        self.num_prompt_tokens -= request.num_prompt_tokens
        return request

    def remove(self, request: Request) -> None:
        """Take out a request that is in the queue and never comes back."""
        del self._waiting[request.request_id]
        self.num_prompt_tokens -= request.num_prompt_tokens
        if len(self._heap) > max(2 * len(self._waiting), _LEAST_COMPACTION):
            self._heap = [entry for entry in self._heap if self._waiting.get(entry[1].request_id) is entry[1]]
            heapq.heapify(self._heap)

    def longest_waiting(self) -> Request | None:
        """The one that has waited longest, whenever it may start."""
        return next(iter(self._waiting.values()), None)

    def check_integrity(self) -> None:
        """Raise AssertionError unless heap and table hold the same requests."""
        held = [request for _, request in self._heap if self._waiting.get(request.request_id) is request]
        assert len(held) == len({id(request) for request in held}) == len(self._waiting), "heap and table differ"
        assert self.num_prompt_tokens == sum(request.num_prompt_tokens for request in held), "the tokens of the waiting are miscounted"
