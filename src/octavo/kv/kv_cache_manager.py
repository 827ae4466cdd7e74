"""KVCacheManager: the one door between the scheduler and the KV pools."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence

from octavo.errors import InvalidRequestError
from octavo.kv.allocation import Allocation
from octavo.kv.block_map import map_blocks
from octavo.kv.block_pool import BlockPool
from octavo.kv.books import check_pools, check_records
from octavo.kv.compaction import compact
from octavo.kv.disk.tier import DiskTier
from octavo.kv.guard import PolicyError
from octavo.kv.interfaces import NO_BLOCKS, BlockHash, BlockIds, KVGroup, Move, PoolSpec
from octavo.kv.policies import choose
from octavo.kv.pool_usage import pool_usage
from octavo.kv.prefix_hit import PrefixHit
from octavo.kv.prefix_search import PrefixSearch
from octavo.kv.reach import UNBOUNDED, Reach
from octavo.kv.request_blocks import Ledger, RequestBlocks
from octavo.kv.swap import SwapSpace
from octavo.kv.transfers import CopyBlocks, LoadBlocks, SaveBlocks, Transfer
from octavo.kv.usage import KVUsage
from octavo.kv.window_slots import WindowSlots
from octavo.request import Request

logger = logging.getLogger(__name__)


class KVCacheManager:
    """Grants slots to requests, shares computed blocks between them, and accounts for every slot.

    A request is known here from its first ``allocate_slots`` until ``free``. Layer groups have pools of their own; a request's tables
    have the same number of entries in each. Where a group has a sliding window, the blocks wholly behind it go back to the pool when the
    steps that read them have come back, and their entries are -1 (unless the placement reserves: see Placement.reserves).

    Blocks are found by others only once ``mark_computed`` has confirmed their tokens, so with steps in flight nothing is shared
    that a step has yet to write. And an indexed block is not written again: a request writes at positions from its
    num_computed_tokens on, in blocks that it alone owns.
    """

    def __init__(
        self,
        groups: Sequence[KVGroup],
        num_blocks: Sequence[int],
        block_size: int,
        policies: Mapping[str, str],
        numerics_id: str,
        max_num_seqs: int = 1,
        max_model_len: int | None = None,
        swap_bytes: int = 0,
        compaction_blocks: int = 0,
        max_tokens_in_flight: int = UNBOUNDED,
        disk: DiskTier | None = None,
    ) -> None:
        """``num_blocks`` per group; what placement is told besides: see PoolSpec.

        ``swap_bytes``: of host memory for preempted requests. ``compaction_blocks``: most that compaction moves in a step.
        ``max_tokens_in_flight``: most tokens in steps that have not come back, which a sliding window cannot give back yet.
        ``disk``: where cached blocks go that are evicted.

        Raises:
            InvalidRequestError: for policies that are unknown, clash, or cannot serve such a pool.
        """
        chosen = choose(policies, compaction=bool(compaction_blocks))
        self.groups = list(groups)
        self.block_size = block_size
        self.pools = [
            BlockPool(PoolSpec(count, block_size, max_num_seqs, max_model_len, group.window), chosen)
            for group, count in zip(self.groups, num_blocks, strict=True)
        ]
        self.reaches = [
            Reach.of(block_size, group.window, not pool.placement.reserves, max_tokens_in_flight)
            for group, pool in zip(self.groups, self.pools, strict=True)
        ]
        self._windows = self._count_windows(policies)
        self.swap = SwapSpace(self.groups, swap_bytes)
        self.disk = disk
        self.transfers: list[Transfer] = []
        """Blocks to move before the next step, in order; the scheduler takes them."""
        self._compaction_blocks = compaction_blocks
        self._admission = chosen.admission
        self._prefixes = PrefixSearch(self.pools, self.reaches, block_size, numerics_id, self.swap, disk, chosen.caches)
        self._records: dict[str, RequestBlocks] = {}
        self._ledger = Ledger(block_size, self.reaches)
        self._no_growth = Allocation(None, "", 0, [NO_BLOCKS] * len(self.groups))
        if disk is not None:
            for group, pool in enumerate(self.pools):
                pool.spill_to(functools.partial(self._spill, disk, group))

    def _count_windows(self, policies: Mapping[str, str]) -> dict[int, WindowSlots]:
        """Of each group with a sliding window."""
        windows = {i: reach for i, reach in enumerate(self.reaches) if reach.window}
        if policies["prefix_index"] != "none" and any(not reach.slides for reach in windows.values()):
            raise InvalidRequestError(
                f"kv_placement = {policies['placement']!r}: it reserves, and in a model with sliding windows that goes with prefix index "
                f"'none' only, not {policies['prefix_index']!r}",
                field="kv_placement",
            )
        size = self.block_size
        return {i: WindowSlots(size, reach.window, self.pools[i].num_users, shares=reach.slides) for i, reach in windows.items()}

    # What could be

    @property
    def caches(self) -> bool:
        """Whether prefixes are looked up at all."""
        return self._prefixes.caches

    @property
    def capacity(self) -> int:
        """Most tokens that one request can store, with the pool to itself; UNBOUNDED if that is no limit."""
        blocks = (pool.placement.max_request_blocks for pool in self.pools)
        most = min(UNBOUNDED if count >= reach.most_in_prefill else count for count, reach in zip(blocks, self.reaches, strict=True))
        return UNBOUNDED if most == UNBOUNDED else most * self.block_size

    def can_ever_fit(self, num_tokens: int) -> bool:
        """Whether a request that stores ``num_tokens`` could run alone; all its tokens are stored but the last."""
        return num_tokens <= self.capacity

    def get_computed_blocks(self, request: Request) -> PrefixHit | None:
        """What a request that is not running need not compute: its longest cached prefix, and beyond that what was kept of it when it was
        preempted, or else what is on disk. Never its last token, whose logits are needed. None: it is being read, ask again.
        """
        return self._prefixes.find(request, patient=not self._records)

    def can_start(self, request: Request, hit: PrefixHit, without: Iterable[Request] = ()) -> bool:
        """Whether admission lets a waiting request start; ``without``: if these running ones were preempted first."""
        gone = [other.request_id for other in without]
        spared = [self._records[request_id] for request_id in gone]
        num_running = len(self._records) - len(spared)
        prefill_blocks, max_blocks = self._blocks_for(request.num_tokens), self._blocks_for(request.max_num_tokens - 1)
        for i, (pool, reach, ledger) in enumerate(zip(self.pools, self.reaches, self._ledger.groups, strict=True)):
            now, later = reach.needs(hit.firsts[i], hit.num_shared // self.block_size, prefill_blocks, max_blocks)
            used = len(hit.blocks[i]) - pool.count_idle(hit.blocks[i])  # by others: they cost nothing
            given_up = [record.needs(i, reach) for record in spared]
            available = pool.num_available - ledger.unfilled + sum(blocks for blocks, _ in given_up)
            promised = ledger.promised - sum(blocks for _, blocks in given_up)
            running = (record.needs(i, reach) for request_id, record in self._records.items() if request_id not in gone)
            if not self._admission.admits(now - used, now + later - used, available, promised, num_running, running):
                return False
            if not pool.placement.has_room(reach.most(max_blocks), gone):
                return False
        return True

    # What a request holds

    def allocate_slots(self, request: Request, num_new_tokens: int, hit: PrefixHit | None = None) -> Allocation | None:
        """Blocks for the next ``num_new_tokens`` tokens, tentatively; None (and nothing changed) if they cannot be had now.

        ``hit``: for a request that starts; its blocks come first, and the new tokens after them. If a policy raises, nothing changed.
        """
        if hit is not None and not all(pool.holds(blocks) for pool, blocks in zip(self.pools, hit.blocks, strict=True)):
            return None  # what was found is forgotten by now
        record = self._records.get(request.request_id)
        if record is None:
            record = self._open(request)
        computed = request.num_computed_tokens if hit is None else hit.num_tokens
        num_blocks = -(-(computed + num_new_tokens) // self.block_size)
        if num_blocks <= record.num_blocks:
            return self._no_growth
        first = record.num_blocks
        granted = False
        self._ledger.remove(record)
        try:
            granted = self._grow(request.request_id, record, num_blocks, hit or self._prefixes.no_hit)
        finally:
            if granted:
                self._ledger.add(record)
            else:
                self._cut(request.request_id, record, first)
        if not granted:
            return None
        if hit is not None and hit.stored is not None:
            self.transfers += hit.loads(request.request_id, [table.view() for table in record.tables], self.block_size)
        return Allocation(self._undo, request.request_id, first, [table.view(first).copy() for table in record.tables])

    def mark_computed(self, request: Request, num_tokens: int) -> None:
        """The first ``num_tokens`` tokens of a running request are in its blocks: full ones can be shared from now on.

        To be called when the step that computed them has come back, with token ids up to there known.
        """
        record = self._records[request.request_id]
        block_size = self.block_size
        ledger = self._ledger
        ledger.num_computed += num_tokens - record.num_computed
        ledger.tail += -num_tokens % block_size - -record.num_computed % block_size
        record.num_computed = num_tokens
        full = num_tokens // block_size
        if full > record.num_offered and self._prefixes.caches:
            self._prefixes.hash_blocks(request, full)
            for pool, table in zip(self.pools, record.tables, strict=True):
                first = max(record.num_offered, table.first)
                pool.cache(request.block_hashes, first, table.view(first, full))
            record.num_offered = full
        for group in self._windows:
            self._slide(request.request_id, record, group)

    def finished(self, request: Request) -> None:
        """A request came to its end by itself: admission may learn from it."""
        stated = request.max_num_tokens - request.num_prompt_tokens
        try:
            self._admission.finished(stated, min(request.num_output_tokens, stated))  # drafts may have gone past the end
        except PolicyError as error:
            logger.error("%s; request %s ended well before", error, request.request_id)

    def started(self, request: Request, hit: PrefixHit) -> None:
        """The growth by which a request started, or resumed, with ``hit`` is final: nothing of it need be kept outside the pool."""
        if hit.stored is not None and hit.stored is self.swap.find(request.request_id):
            self.swap.blocks_in += sum(end - start for start, end in hit.loaded_blocks(self.block_size))
        elif self.disk is not None:
            self.disk.num_found += hit.num_loaded
        self._forget(request)

    def preempt(self, request: Request) -> int:
        """Take all blocks of a running request; how many of its computed tokens are saved in the swap space, for when it resumes."""
        tables = [table.view(0, self._blocks_for(request.num_computed_tokens)) for table in self._records[request.request_id].tables]
        saves = self.swap.save(request.request_id, request.num_computed_tokens, tables)
        self.transfers += saves
        self._shrink(request.request_id, 0)
        return request.num_computed_tokens if saves else 0

    def free(self, request: Request) -> None:
        """Give back all that a request holds, which may be nothing; what is cached stays until it is evicted."""
        self._forget(request)
        self._shrink(request.request_id, 0)

    def lacks_run(self, request: Request) -> bool:
        """Whether a waiting request has enough free blocks, but not in one piece as its placement wants them."""
        return any(group.external for group in self.usage(request).groups)

    def compact(self, head: Request | None) -> list[tuple[int, Move]]:
        """Move blocks towards a run for ``head``, and what is on its way in any case: (group, move) each. Transfers copy them."""
        wanted = 0 if head is None else self._blocks_for(head.max_num_tokens - 1)
        moved = list(compact(self.pools, self._records, wanted, self._compaction_blocks))
        self.transfers += [CopyBlocks(group, move.src, move.dst, move.owner) for group, move in moved]
        return moved

    def spill_cached(self, deadline: float) -> Iterator[list[SaveBlocks]]:
        """What to save, batch by batch, so that all cached blocks are on disk; until the deadline (time.monotonic)."""
        return iter(()) if self.disk is None else self.disk.spill_all([pool.cached_blocks() for pool in self.pools], deadline)

    def take_transfers(self) -> list[Transfer]:
        """What the step that is now planned has to move first."""
        taken, self.transfers = self.transfers, []
        return taken

    def blocks_wanted(self, request: Request, num_tokens: int, hit: PrefixHit | None = None) -> int:
        """How many blocks more than can be had now it takes to store a request's first ``num_tokens`` tokens; at least 0.

        Of the group that is shortest.
        """
        record = self._records.get(request.request_id)
        end = record.num_blocks if record else hit.num_shared // self.block_size if hit else 0
        firsts = hit.firsts if hit else self._prefixes.no_hit.firsts
        wanted = self._blocks_for(num_tokens)
        short = [
            min(wanted - end, reach.most_in_prefill - (end - first)) - pool.num_available
            for pool, reach, first in zip(self.pools, self.reaches, firsts, strict=True)
        ]
        return max(0, *short)

    def blocks_freed_by(self, request: Request) -> int:
        """Blocks that others could have if this running request were preempted: those that it alone uses. Of the group with the fewest."""
        tables = self._records[request.request_id].tables
        return min(pool.count_private(table.view()) for pool, table in zip(self.pools, tables, strict=True))

    def block_ids(self, request: Request) -> list[BlockIds]:
        """Per group, its blocks in order of position; -1 for those that a sliding window has left behind."""
        return [table.view().copy() for table in self._records[request.request_id].tables]

    def recover(self, error: PolicyError) -> None:
        """After ``error``, once the request that met it is gone: see BlockPool.recover."""
        logger.error("%s", error)
        for pool in self.pools:
            pool.recover(error)

    def without_caching(self) -> contextlib.AbstractContextManager[None]:
        """Nothing is looked up in the prefix index, on disk, or entered there."""
        return self._prefixes.suspended()

    def reset_prefix_cache(self) -> int:
        """Forget all cached blocks, those on disk too, and say how many there were in the pool.

        Running requests keep what they hold, but nobody finds it any more.
        """
        if self.disk is not None:
            self.disk.clear()
        return sum(pool.clear_cache() for pool in self.pools)

    # What is where

    def usage(self, head: Request | None = None) -> KVUsage:
        """Every slot's place, in O(groups); ``head`` is the waiting request whose want of a run counts as external."""
        wanted = 0 if head is None else self._blocks_for(head.max_num_tokens - 1)
        groups = [
            pool_usage(group, self.pools[i], self._ledger, self._windows.get(i), self.reaches[i].most(wanted))
            for i, group in enumerate(self.groups)
        ]
        return KVUsage(tuple(groups))

    def block_map(self) -> tuple[list[str], list[BlockIds]]:
        """Who has which block: see octavo.kv.block_map. O(pool)."""
        return map_blocks(self.pools, self._records)

    def check_integrity(self, running: Iterable[Request] | None = None) -> None:
        """Recount everything from the block tables, O(pool). ``running``: exactly these requests should hold blocks.

        Raises AssertionError if a count or a state differs.
        """
        if running is not None:
            assert self._records.keys() == {request.request_id for request in running}, "blocks of a request that does not run"
            assert not self._records.keys() & self.swap.request_ids, "blocks of a running request are kept in the swap space"
        self.swap.check_integrity()
        check_records(self._records, self._ledger, self.reaches, self.block_size)
        check_pools(self._records, self.pools, self._windows)

    def _blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def _open(self, request: Request) -> RequestBlocks:
        record = RequestBlocks(len(self.groups), self._blocks_for(request.num_tokens), self._blocks_for(request.max_num_tokens - 1))
        self._records[request.request_id] = record
        self._ledger.add(record)
        return record

    def _grow(self, request_id: str, record: RequestBlocks, num_blocks: int, hit: PrefixHit) -> bool:
        """Bring every table to ``num_blocks`` entries; False or an exception leaves it to the caller to cut them back."""
        for i, (pool, table) in enumerate(zip(self.pools, record.tables, strict=True)):
            if not record.num_blocks:
                table.skip(hit.firsts[i])
                pool.share(hit.blocks[i])  # first, so that making room does not evict them
                table.append(hit.blocks[i])
            blocks = pool.allocate(request_id, num_blocks - len(table), self.reaches[i].most(record.max_blocks))
            if blocks is None:
                return False
            table.append(blocks)
        if not record.num_blocks:
            record.num_computed = hit.num_shared
            record.num_offered = hit.num_shared // self.block_size
            for i, window in self._windows.items():
                window.users_changed(hit.blocks[i])
                window.update(record.tables[i], record.num_computed)
        record.num_blocks = num_blocks
        return True

    def _slide(self, request_id: str, record: RequestBlocks, group: int) -> None:
        """Give back the blocks of a group that are wholly behind the window by now."""
        table, window, reach = record.tables[group], self._windows[group], self.reaches[group]
        first = reach.first_block(record.num_computed)
        if first > table.first:
            ledger = self._ledger.groups[group]
            ledger.add(record, group, reach, sign=-1)
            window.leave(table)
            left = table.give_back(first)
            ledger.add(record, group, reach)
            self.pools[group].release(request_id, left)
            window.users_changed(left)
        window.update(table, record.num_computed)

    def _spill(self, disk: DiskTier, group: int, hashes: list[BlockHash], blocks: BlockIds) -> None:
        self.transfers += disk.spill(group, hashes, blocks)

    def _forget(self, request: Request) -> None:
        """What is kept outside the pool for a request that waited is not needed any more."""
        self.swap.drop(request.request_id)
        if self.disk is not None:
            self.disk.forget(request.request_id)

    def _undo(self, request_id: str, num_blocks: int) -> None:
        """A growth did not come about: nothing is loaded into it."""
        self.transfers = [each for each in self.transfers if not (isinstance(each, LoadBlocks) and each.request_id == request_id)]
        self._shrink(request_id, num_blocks)

    def _shrink(self, request_id: str, num_blocks: int) -> None:
        """Release every block past the first ``num_blocks``; with none left the record goes too."""
        record = self._records.get(request_id)
        if record is not None:
            self._ledger.remove(record)
            self._cut(request_id, record, num_blocks)

    def _cut(self, request_id: str, record: RequestBlocks, num_blocks: int) -> None:
        """The same for a record that is out of the ledger."""
        for i, (pool, table) in enumerate(zip(self.pools, record.tables, strict=True)):
            gone = table.held(num_blocks)
            window = self._windows.get(i)
            if window is not None and not num_blocks:
                window.leave(table)
            pool.release(request_id, gone)
            if window is not None:
                window.users_changed(gone)
            table.truncate(num_blocks)
        record.num_blocks = num_blocks
        if num_blocks:
            self._ledger.add(record)
        else:
            del self._records[request_id]
