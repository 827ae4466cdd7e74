"""A request's new blocks, until it is certain that it keeps them."""

from __future__ import annotations

from collections.abc import Callable

from octavo.kv.interfaces import BlockIds


class Allocation:
    """The growth of one request's blocks in every group. It is tentative until ``commit``; ``rollback`` undoes it.

    To be done with one or the other before that request grows again.
    """

    __slots__ = ("_first", "_request_id", "_undo", "new_blocks")

    def __init__(self, undo: Callable[[str, int], None] | None, request_id: str, first: int, new_blocks: list[BlockIds]) -> None:
        """``undo`` cuts a request's blocks back to the first so many; None: there is nothing to undo."""
        self._undo = undo
        self._request_id = request_id
        self._first = first
        self.new_blocks = new_blocks
        """Per group: the blocks appended, shared ones included; -1 for those of a prefix that a sliding window has left behind."""

    @property
    def tentative(self) -> bool:
        """Whether there is something to commit, or to roll back."""
        return self._undo is not None

    def commit(self) -> None:
        self._undo = None

    def rollback(self) -> None:
        if self._undo is not None:
            self._undo(self._request_id, self._first)
            self._undo = None
