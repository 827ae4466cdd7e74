"""Requests that nobody wants any more after a certain time."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from octavo.request import Request

_LEAST = 64


class Deadlines:
    """A heap by deadline. A request that ends before its own stays in it as a hole, until it is passed or half of the heap may be holes."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Request]] = []
        self._most = _LEAST
        """Entries at which holes are cleared away."""

    def add(self, request: Request) -> None:
        """Follow a request that has been given its arrival_index; one without a deadline is left out."""
        if request.deadline is not None:
            heapq.heappush(self._heap, (request.deadline, request.arrival_index, request))
            if len(self._heap) > self._most:
                self._heap = [entry for entry in self._heap if not entry[2].finished]
                heapq.heapify(self._heap)
                self._most = max(2 * len(self._heap), _LEAST)

    def __len__(self) -> int:
        return len(self._heap)

    def pass_by(self, now: float) -> Iterator[Request]:
        """Those that have not ended and whose deadline is ``now`` or earlier, each once."""
        while self._heap and (self._heap[0][0] <= now or self._heap[0][2].finished):
            request = heapq.heappop(self._heap)[2]
            if not request.finished:
                yield request
