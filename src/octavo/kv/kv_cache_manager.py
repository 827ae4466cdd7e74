"""KVCacheManager: the one door between the scheduler and the KV pools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from octavo.kv.block_hash import extend_chain, root_hash
from octavo.kv.block_map import map_blocks
from octavo.kv.block_pool import BlockPool
from octavo.kv.interfaces import NO_BLOCKS, BlockIds, Compacting, KVGroup, Move, PoolSpec
from octavo.kv.policies import choose
from octavo.kv.request_blocks import Ledger, RequestBlocks
from octavo.kv.swap import SwapSpace
from octavo.kv.transfers import CopyBlocks, LoadBlocks, StoredPrefix, Transfer
from octavo.kv.usage import GroupUsage, KVUsage
from octavo.request import Request


@dataclass(frozen=True, slots=True)
class PrefixHit:
    """The first ``num_tokens`` tokens of a request need not be computed: found, not yet taken.

    Valid until blocks are allocated or the cache is reset.
    """

    blocks: list[BlockIds]
    """Per group, the cached blocks of the first of these tokens."""
    num_tokens: int
    num_loaded: int = 0
    """Of these tokens the last, which are not in ``blocks`` but in ``stored``."""
    stored: StoredPrefix | None = None

    @property
    def num_shared(self) -> int:
        """Tokens in ``blocks``."""
        return self.num_tokens - self.num_loaded

    def loaded_blocks(self, block_size: int) -> list[tuple[int, int]]:
        """Per group, the positions [start, end) of the blocks to be loaded."""
        shared, end = self.num_shared // block_size, -(-self.num_tokens // block_size)
        return [] if self.stored is None else [(max(shared, first), end) for first, _ in self.stored.parts]


class Allocation:
    """The growth of one request's blocks in every group. It is tentative until ``commit``; ``rollback`` undoes it.

    To be done with one or the other before that request grows again.
    """

    __slots__ = ("_first", "_manager", "_request_id", "new_blocks")

    def __init__(self, manager: KVCacheManager | None, request_id: str, first: int, new_blocks: list[BlockIds]) -> None:
        self._manager = manager
        self._request_id = request_id
        self._first = first
        self.new_blocks = new_blocks
        """Per group: the blocks appended, shared ones included."""

    def commit(self) -> None:
        self._manager = None

    def rollback(self) -> None:
        if self._manager is not None:
            self._manager._undo(self._request_id, self._first)
            self._manager = None


class KVCacheManager:
    """Grants slots to requests, shares computed blocks between them, and accounts for every slot.

    A request is known here from its first ``allocate_slots`` until ``free``. Layer groups have pools of their own; a request's tables
    have the same number of entries in each.

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
    ) -> None:
        """``num_blocks`` per group; what placement is told besides: see PoolSpec.

        ``swap_bytes``: of host memory for preempted requests. ``compaction_blocks``: most that compaction moves in a step.

        Raises:
            InvalidRequestError: for policies that are unknown, clash, or cannot serve such a pool.
        """
        chosen = choose(policies, compaction=bool(compaction_blocks))
        self.groups = list(groups)
        self.block_size = block_size
        self.numerics_id = numerics_id
        self.pools = [BlockPool(PoolSpec(count, block_size, max_num_seqs, max_model_len), chosen) for count in num_blocks]
        self.swap = SwapSpace(self.groups, swap_bytes)
        self.transfers: list[Transfer] = []
        """Blocks to move before the next step, in order; the scheduler takes them."""
        self._compaction_blocks = compaction_blocks
        self._admission = chosen.admission
        self._caches = chosen.caches
        self._records: dict[str, RequestBlocks] = {}
        self._ledger = Ledger()
        no_blocks = [NO_BLOCKS] * len(self.groups)
        self._no_hit = PrefixHit(no_blocks, 0)
        self._no_growth = Allocation(None, "", 0, no_blocks)

    # What could be

    @property
    def caches(self) -> bool:
        """Whether prefixes are looked up at all."""
        return self._caches

    @property
    def capacity(self) -> int:
        """Most tokens that one request can store, with the pool to itself."""
        return min(pool.placement.max_request_blocks for pool in self.pools) * self.block_size

    def can_ever_fit(self, num_tokens: int) -> bool:
        """Whether a request that stores ``num_tokens`` could run alone; all its tokens are stored but the last."""
        return num_tokens <= self.capacity

    def get_computed_blocks(self, request: Request) -> PrefixHit:
        """What a request that is not running need not compute: its longest cached prefix, and what was kept of it beyond that when it was
        preempted. Never its last token, whose logits are needed.
        """
        hit = self._find_cached(request)
        stored = self.swap.find(request.request_id)
        if stored is None or stored.num_tokens <= hit.num_tokens:
            return hit
        return PrefixHit(hit.blocks, stored.num_tokens, stored.num_tokens - hit.num_tokens, stored)

    def _find_cached(self, request: Request) -> PrefixHit:
        """In the prefix index. Prompt log-probabilities need the logits of every prompt token: who wants them finds nothing."""
        if not self._caches or request.sampling_params.prompt_logprobs is not None:
            return self._no_hit
        num_blocks = (request.num_tokens - 1) // self.block_size
        self._hash_blocks(request, num_blocks)
        hashes = request.block_hashes[1 : num_blocks + 1]
        found = [pool.index.lookup(hashes) for pool in self.pools]
        shared = min(map(len, found))
        return PrefixHit([blocks[:shared] for blocks in found], shared * self.block_size)

    def can_start(self, request: Request, hit: PrefixHit, without: Iterable[Request] = ()) -> bool:
        """Whether admission lets a waiting request start; ``without``: if these running ones were preempted first."""
        gone = [other.request_id for other in without]
        spared = [self._records[request_id] for request_id in gone]
        shared = hit.num_shared // self.block_size
        to_prefill = self._blocks_for(request.num_tokens) - shared
        in_all = self._blocks_for(request.max_num_tokens - 1)
        to_complete = in_all - shared
        unfilled = self._ledger.unfilled_prefill - sum(record.unfilled_prefill for record in spared)
        promised = self._ledger.promised - sum(record.promised for record in spared)
        held = sum(record.num_blocks for record in spared)
        num_running = len(self._records) - len(spared)
        for pool, blocks in zip(self.pools, hit.blocks, strict=True):
            idle = pool.count_idle(blocks)
            available = pool.num_available + held - unfilled
            running = (record.lengths for request_id, record in self._records.items() if request_id not in gone)
            if not self._admission.admits(to_prefill + idle, to_complete + idle, available, promised, num_running, running):
                return False
            if not pool.placement.has_room(in_all, gone):
                return False
        return True

    # What a request holds

    def allocate_slots(self, request: Request, num_new_tokens: int, hit: PrefixHit | None = None) -> Allocation | None:
        """Blocks for the next ``num_new_tokens`` tokens, tentatively; None (and nothing changed) if they cannot be had now.

        ``hit``: for a request that starts; its blocks come first, and the new tokens after them. If a policy raises, nothing changed.
        """
        record = self._records.get(request.request_id)
        if record is None:
            record = self._open(request)
        computed = request.num_computed_tokens if hit is None else hit.num_tokens
        num_blocks = -(-(computed + num_new_tokens) // self.block_size)
        if num_blocks <= record.num_blocks:
            return self._no_growth
        first = record.num_blocks
        granted = False
        try:
            granted = self._grow(request.request_id, record, num_blocks, hit or self._no_hit)
        finally:
            if not granted:
                self._shrink(request.request_id, first)
        if not granted:
            return None
        if hit is not None and hit.stored is not None:
            self._load(request.request_id, record, hit, hit.stored)
        return Allocation(self, request.request_id, first, [table.view(first).copy() for table in record.tables])

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
        if full > record.num_offered and self._caches:
            self._hash_blocks(request, full)
            for pool, table in zip(self.pools, record.tables, strict=True):
                pool.cache(request.block_hashes, record.num_offered, table.view(record.num_offered, full))
            record.num_offered = full

    def finished(self, request: Request) -> None:
        """A request came to its end by itself: admission may learn from it."""
        stated = request.max_num_tokens - request.num_prompt_tokens
        self._admission.finished(stated, min(request.num_output_tokens, stated))  # drafts may have gone past the end

    def started(self, request: Request, hit: PrefixHit) -> None:
        """The growth by which a request started, or resumed, with ``hit`` is final: nothing of it need be kept outside the pool."""
        loaded = hit.loaded_blocks(self.block_size)
        self.swap.blocks_in += sum(end - start for start, end in loaded)
        self.swap.drop(request.request_id)

    def preempt(self, request: Request) -> int:
        """Take all blocks of a running request; how many of its computed tokens are saved in the swap space, for when it resumes."""
        tables = [table.view(0, self._blocks_for(request.num_computed_tokens)) for table in self._records[request.request_id].tables]
        saves = self.swap.save(request.request_id, request.num_computed_tokens, tables)
        self.transfers += saves
        self._shrink(request.request_id, 0)
        return request.num_computed_tokens if saves else 0

    def free(self, request: Request) -> None:
        """Give back all that a request holds, which may be nothing; what is cached stays until it is evicted."""
        self.swap.drop(request.request_id)
        self._shrink(request.request_id, 0)

    def lacks_run(self, request: Request) -> bool:
        """Whether a waiting request has enough free blocks, but not in one piece as its placement wants them."""
        wanted = self._blocks_for(request.max_num_tokens - 1)
        return any(pool.placement.largest_free_run < wanted <= pool.num_free for pool in self.pools)

    def compact(self, head: Request | None) -> list[tuple[int, Move]]:
        """Move blocks towards a run for ``head``, and what is on its way in any case: (group, move) each. Transfers copy them."""
        wanted = 0 if head is None else self._blocks_for(head.max_num_tokens - 1)
        left, moved = self._compaction_blocks, []
        for group, pool in enumerate(self.pools):
            if not left or not isinstance(pool.placement, Compacting):
                continue
            for move in pool.placement.compact(wanted, left):
                pool.move(move.src, move.dst)
                self._records[move.owner].tables[group].put(move.first, move.dst)
                self.transfers.append(CopyBlocks(group, move.src, move.dst, move.owner))
                moved.append((group, move))
                left -= len(move.src)
        return moved

    def take_transfers(self) -> list[Transfer]:
        """What the step that is now planned has to move first."""
        taken, self.transfers = self.transfers, []
        return taken

    def blocks_wanted(self, request: Request, num_tokens: int, hit: PrefixHit | None = None) -> int:
        """How many blocks more than can be had now it takes to store a request's first ``num_tokens`` tokens; at least 0.

        Of the group that is shortest.
        """
        record = self._records.get(request.request_id)
        held = record.num_blocks if record else 0
        shared = hit.num_shared // self.block_size if hit else 0
        available = min(pool.num_available for pool in self.pools)
        return max(0, self._blocks_for(num_tokens) - held - shared - available)

    def blocks_freed_by(self, request: Request) -> int:
        """Blocks that others could have if this running request were preempted: those that it alone uses. Of the group with the fewest."""
        tables = self._records[request.request_id].tables
        return min(pool.count_private(table.view()) for pool, table in zip(self.pools, tables, strict=True))

    def block_ids(self, request: Request) -> list[BlockIds]:
        """Per group, its blocks in order of position."""
        return [table.view().copy() for table in self._records[request.request_id].tables]

    def reset_prefix_cache(self) -> int:
        """Forget all cached blocks, and say how many. Running requests keep what they hold, but nobody finds it any more."""
        return sum(pool.clear_cache() for pool in self.pools)

    # What is where

    def usage(self, head: Request | None = None) -> KVUsage:
        """Every slot's place, in O(groups); ``head`` is the waiting request whose want of a run counts as external."""
        wanted = 0 if head is None else self._blocks_for(head.max_num_tokens - 1)
        pairs = zip(self.groups, self.pools, strict=True)
        return KVUsage(tuple(self._group_usage(group, pool, wanted) for group, pool in pairs))

    def block_map(self) -> tuple[list[str], list[BlockIds]]:
        """Who has which block: see octavo.kv.block_map. O(pool)."""
        return map_blocks(self.pools, self._records)

    def check_integrity(self, running: Iterable[Request] | None = None) -> None:
        """Recount everything from the block tables, O(pool). ``running``: exactly these requests should hold blocks.

        Raises:
            AssertionError: if a count or a state differs.
        """
        if running is not None:
            assert self._records.keys() == {request.request_id for request in running}, "blocks of a request that does not run"
            assert not self._records.keys() & self.swap.request_ids, "blocks of a running request are kept in the swap space"
        self.swap.check_integrity()
        ledger = Ledger()
        for record in self._records.values():
            ledger.add(record, self.block_size)
            assert all(len(table) == record.num_blocks for table in record.tables), "tables differ in length"
            assert record.num_computed <= record.num_blocks * self.block_size, "computed tokens without a slot"
            assert record.num_offered * self.block_size <= record.num_computed, "a block was shared before it was computed"
        assert ledger.as_tuple() == self._ledger.as_tuple(), "the ledger differs from the records"
        for i, pool in enumerate(self.pools):
            owned = [record.tables[i].view() for record in self._records.values()]
            assert all(len(np.unique(blocks)) == len(blocks) for blocks in owned), "a request holds a block twice"
            pool.check_integrity(np.bincount(np.concatenate([NO_BLOCKS, *owned]), minlength=pool.num_blocks))
            pool.check_reserved([pool.placement.reserved_blocks(request_id) for request_id in self._records])

    def _blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def _hash_blocks(self, request: Request, num_blocks: int) -> None:
        chain = request.block_hashes
        if not chain:
            chain.append(root_hash(self.block_size, self.numerics_id, request.cache_salt, request.adapter))
        extend_chain(chain, request.all_token_ids, num_blocks, self.block_size)

    def _open(self, request: Request) -> RequestBlocks:
        record = RequestBlocks(len(self.groups), self._blocks_for(request.num_tokens), self._blocks_for(request.max_num_tokens - 1))
        self._records[request.request_id] = record
        self._ledger.add(record, self.block_size)
        return record

    def _grow(self, request_id: str, record: RequestBlocks, num_blocks: int, hit: PrefixHit) -> bool:
        """Bring every table to ``num_blocks`` entries; False or an exception leaves it to the caller to shrink them back."""
        for pool, table, shared in zip(self.pools, record.tables, hit.blocks, strict=True):
            pool.share(shared)  # first, so that making room does not evict them
            table.append(shared)
            blocks = pool.allocate(request_id, num_blocks - len(table), record.max_blocks)
            if blocks is None:
                return False
            table.append(blocks)
        self._ledger.remove(record, self.block_size)
        record.num_blocks = num_blocks
        record.num_computed += hit.num_shared
        record.num_offered += hit.num_shared // self.block_size
        self._ledger.add(record, self.block_size)
        return True

    def _load(self, request_id: str, record: RequestBlocks, hit: PrefixHit, stored: StoredPrefix) -> None:
        """Have what was kept outside the pool loaded into the blocks behind the shared ones."""
        ranges = hit.loaded_blocks(self.block_size)
        for group, (table, (start, end), (first, source)) in enumerate(zip(record.tables, ranges, stored.parts, strict=True)):
            self.transfers.append(LoadBlocks(group, table.view(start, end).copy(), source, start - first, request_id))

    def _undo(self, request_id: str, num_blocks: int) -> None:
        """A growth did not come about: nothing is loaded into it."""
        self.transfers = [each for each in self.transfers if not (isinstance(each, LoadBlocks) and each.request_id == request_id)]
        self._shrink(request_id, num_blocks)

    def _shrink(self, request_id: str, num_blocks: int) -> None:
        """Release every block past the first ``num_blocks``; with none left the record goes too."""
        record = self._records.get(request_id)
        if record is None:
            return
        self._ledger.remove(record, self.block_size)
        for pool, table in zip(self.pools, record.tables, strict=True):
            pool.release(request_id, table.view(num_blocks))
            table.truncate(num_blocks)
        record.num_blocks = num_blocks
        if num_blocks:
            self._ledger.add(record, self.block_size)
        else:
            del self._records[request_id]

    def _group_usage(self, group: KVGroup, pool: BlockPool, wanted: int) -> GroupUsage:
        size = self.block_size
        free, idle = pool.num_free, pool.num_idle
        largest_run = pool.placement.largest_free_run
        held = (pool.num_blocks - free - idle) * size
        live = self._ledger.num_computed - (pool.num_references - pool.num_owned) * size  # a shared block is full, and counts once
        return GroupUsage(
            name=group.name,
            block_size=size,
            bytes_per_block=group.bytes_per_block,
            total=pool.num_blocks * size,
            held=held,
            live=live,
            tail=self._ledger.tail,
            reserved=held - live - self._ledger.tail,
            stale=0,
            cached=idle * size,
            free=free * size,
            external=free * size if largest_run < wanted <= free else 0,
            largest_free_run=largest_run * size,
        )
