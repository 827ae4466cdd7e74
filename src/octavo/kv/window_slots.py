"""The slots of a group with a sliding window: which are filled, and which of these are stale, exact at every step."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from octavo.kv.interfaces import BlockIds
from octavo.kv.request_blocks import BlockTable


class WindowSlots:
    """Sums over the group's requests, kept up to date so that reading them costs O(1).

    A slot is stale when it is behind the window of every request that holds its block. Only the first block that a request holds is in part
    behind its window. So a shared block has stale slots only if it is the first of all that hold it, as many as for the one that is least
    far. (Where a placement reserves, whole blocks are stale, and none is shared.)
    """

    def __init__(self, block_size: int, window: int, num_users: Callable[[int], int], shares: bool) -> None:
        """``num_users``: how many requests hold a block; ``shares``: whether it can be more than one."""
        self.num_filled = 0
        """Slots with a computed token in the blocks of requests; a shared one counts once for each."""
        self.num_stale = 0
        """Slots behind the window; a shared one counts once."""
        self._block_size, self._window = block_size, window
        self._num_users, self._shares = num_users, shares
        self._filled: dict[str, int] = {}
        self._first: dict[str, tuple[int, int]] = {}  # request → its first block, and the stale slots in it
        self._stale_of: dict[int, dict[str, int]] = {}  # a first block → the requests whose first it is, and their stale slots
        self._counted: dict[int, int] = {}  # a first block → what of it is in num_stale

    def update(self, request_id: str, table: BlockTable, num_computed: int) -> None:
        """A request has ``num_computed`` tokens in its blocks now, or other blocks."""
        start = table.first * self._block_size
        filled, stale = max(num_computed - start, 0), max(num_computed + 1 - self._window - start, 0)
        self.num_filled += filled - self._filled.get(request_id, 0)
        self._filled[request_id] = filled
        self._set_first(request_id, table.first_id if stale and self._shares else -1, stale)

    def forget(self, request_id: str) -> None:
        """A request holds no blocks any more, or never did."""
        self.num_filled -= self._filled.pop(request_id, 0)
        self._set_first(request_id, -1, 0)
        self._first.pop(request_id, None)

    def users_changed(self, blocks: BlockIds) -> None:
        """These blocks have another number of users now; it is enough to name those that still have some."""
        if self._stale_of:
            for block in blocks.tolist():
                if block in self._stale_of:
                    self._count(block)

    def check_integrity(self, tables: Mapping[str, tuple[BlockTable, int]]) -> None:
        """Recount, from the tables of all requests and how many tokens each has computed.

        Raises:
            AssertionError: if a sum is wrong.
        """
        filled = 0
        stale: dict[int, int] = {}  # block → its stale slots
        for table, computed in tables.values():
            filled += max(computed - table.first * self._block_size, 0)
            for place, block in enumerate(table.held().tolist(), table.first):
                behind = min(max(computed + 1 - self._window - place * self._block_size, 0), self._block_size)
                stale[block] = min(behind, stale.get(block, behind))
        assert self._filled.keys() == tables.keys(), "slots of a request that does not run"
        assert (self.num_filled, self.num_stale) == (filled, sum(stale.values())), "filled or stale slots are miscounted"

    def _set_first(self, request_id: str, block: int, stale: int) -> None:
        before, count = self._first.get(request_id, (-1, 0))
        if not self._shares:
            self.num_stale += stale - count
        elif before != block and before >= 0:
            del self._stale_of[before][request_id]
            if not self._stale_of[before]:
                del self._stale_of[before]
            self._count(before)
        self._first[request_id] = block, stale
        if block >= 0:
            self._stale_of.setdefault(block, {})[request_id] = stale
            self._count(block)

    def _count(self, block: int) -> None:
        firsts = self._stale_of.get(block, {})
        stale = min(firsts.values()) if firsts and len(firsts) == self._num_users(block) else 0
        self.num_stale += stale - self._counted.pop(block, 0)
        if stale:
            self._counted[block] = stale
