"""Requests that nobody wants any more after a certain time."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from octavo.request import Request


class Deadlines:
    """A heap by deadline. Requests that end before theirs stay in it as holes until they are passed."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Request]] = []

    def add(self, request: Request) -> None:
        """Follow a request that has been given its arrival_index; one without a deadline is left out."""
        if request.deadline is not None:
            heapq.heappush(self._heap, (request.deadline, request.arrival_index, request))

    def pass_by(self, now: float) -> Iterator[Request]:
        """Those that have not ended and whose deadline is ``now`` or earlier (seconds since the epoch), each once."""
        while self._heap and (self._heap[0][0] <= now or self._heap[0][2].finished):
            request = heapq.heappop(self._heap)[2]
            if not request.finished:
                yield request
