"""The slots of a group with a sliding window: which are filled, and which of these are stale, exact at every step."""

from __future__ import annotations

from collections.abc import Callable, Collection

from octavo.kv.interfaces import BlockIds
from octavo.kv.request_blocks import BlockTable


class WindowSlots:
    """Sums over the tables of the group's requests, kept up to date so that reading them costs O(1).

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
        self._tables: dict[int, list[BlockTable]] = {}  # a block with stale slots → the tables whose first it is
        self._counted: dict[int, int] = {}  # of these blocks, those that are shared → what of them is in num_stale

    def update(self, table: BlockTable, num_computed: int) -> None:
        """There are ``num_computed`` tokens in a table's blocks now, or its blocks are others."""
        start = table.first * self._block_size
        filled = num_computed - start if num_computed > start else 0
        self.num_filled += filled - table.num_filled
        table.num_filled = filled
        stale = num_computed + 1 - self._window - start
        if stale <= 0:
            return
        if not table.num_stale and self._shares:
            table.num_stale = stale
            self._enter(table)
        elif table.num_stale and self._counted and table.first_id in self._counted:
            table.num_stale = stale
            self._recount(table.first_id)
        else:
            self.num_stale += stale - table.num_stale
            table.num_stale = stale

    def leave(self, table: BlockTable) -> None:
        """A table is about to give back its first block, or all."""
        if table.num_stale and self._shares:
            block = table.first_id
            self._tables[block].remove(table)
            if block in self._counted:
                self._recount(block)
            else:
                self.num_stale -= table.num_stale
            if not self._tables[block]:
                del self._tables[block]
                self._counted.pop(block, None)
        else:
            self.num_stale -= table.num_stale
        self.num_filled -= table.num_filled
        table.num_stale = table.num_filled = 0

    def users_changed(self, blocks: BlockIds) -> None:
        """These blocks have other numbers of users now."""
        if self._tables:
            for block in blocks.tolist():
                if block in self._tables:
                    self._recount(block)

    def check_integrity(self, tables: Collection[tuple[BlockTable, int]]) -> None:
        """Recount, from the tables of all requests and how many tokens each has computed.

        Raises:
            AssertionError: if a sum is wrong.
        """
        filled = 0
        stale: dict[int, int] = {}  # block → its stale slots
        for table, computed in tables:
            filled += max(computed - table.first * self._block_size, 0)
            for place, block in enumerate(table.held().tolist(), table.first):
                behind = min(max(computed + 1 - self._window - place * self._block_size, 0), self._block_size)
                stale[block] = min(behind, stale.get(block, behind))
        assert (self.num_filled, self.num_stale) == (filled, sum(stale.values())), "filled or stale slots are miscounted"

    def _enter(self, table: BlockTable) -> None:
        """A table's first block begins to have stale slots."""
        block = table.first_id
        self._tables.setdefault(block, []).append(table)
        if self._num_users(block) > 1:
            self._counted.setdefault(block, 0)
            self._recount(block)
        else:
            self.num_stale += table.num_stale

    def _recount(self, block: int) -> None:
        """A block that is shared, or was, or has just become so."""
        tables, users = self._tables[block], self._num_users(block)
        before = self._counted.pop(block) if block in self._counted else tables[0].num_stale
        now = min(table.num_stale for table in tables) if len(tables) == users else 0
        if users > 1:
            self._counted[block] = now
        self.num_stale += now - before
