"""The blocks of one layer group, and the state of each.

                 allocate                   release by the last user
      ┌──────┐ ───────────► ┌─────────┐ ─────────────────────────────► ┌──────┐
      │ free │              │  owned  │        not in the index        │ free │
      └──────┘              └─────────┘                                └──────┘
          ▲                   ▲     │
          │ evict       share │     │ release by the last user, in the index
          │                   │     ▼
          │               ┌─────────────┐
          └────────────── │ idle cached │
                          └─────────────┘

A block is owned while ref_counts > 0, idle while ref_counts == 0 and indexed, else free, or reserved by the placement for a request
that has yet to take it. Which block is given, which is evicted
and which is found again are the policies' business; that each block is in one state is this class's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.errors import InvalidRequestError
from octavo.kv.guard import PolicyError
from octavo.kv.interfaces import NO_BLOCKS, BlockHash, BlockIds, Eviction, Placement, PoolSpec, PrefixIndex
from octavo.kv.placement.paged import PagedPlacement
from octavo.kv.policies import BUILT_IN, FALLBACKS, Policies

logger = logging.getLogger(__name__)

Spill = Callable[[list[BlockHash], BlockIds], None]
"""Takes the hashes and ids of blocks that are evicted from the index, before they are given away."""


class BlockPool:
    """Bulk operations on block states. Each costs O(blocks named), as array work."""

    def __init__(self, spec: PoolSpec, policies: Policies) -> None:
        self.num_blocks = spec.num_blocks
        self._spec = spec
        self._policies = policies
        self.replaced: dict[str, str] = {}
        """Seam → the built-in policy that has taken the place of a plugin: see ``recover``."""
        self.placement: Placement = policies.placement(spec)
        self.index: PrefixIndex = policies.prefix_index(spec)
        self.eviction: Eviction = policies.eviction(spec)
        self._ref_counts: npt.NDArray[np.int32] = np.zeros(spec.num_blocks, np.int32)
        self._indexed: npt.NDArray[np.bool_] = np.zeros(spec.num_blocks, np.bool_)
        self._spill: Spill | None = None
        self._hash_of: list[BlockHash] = []  # of cached blocks, by id; kept only for ``_spill``
        self.num_references = 0
        """Sum of the reference counts."""
        self.num_owned = 0
        """Blocks with a reference."""

    @property
    def num_free(self) -> int:
        return self.placement.num_free

    @property
    def num_idle(self) -> int:
        return len(self.eviction)

    @property
    def num_available(self) -> int:
        """Blocks that requests can get: free, idle and so evictable, or reserved for the request that gets them."""
        return self.placement.num_free + self.placement.num_reserved + len(self.eviction)

    def count_idle(self, blocks: BlockIds) -> int:
        """How many of these cached blocks no request uses: sharing them takes that many from ``num_available``."""
        return len(blocks) - int(np.count_nonzero(self._ref_counts[blocks]))

    def count_private(self, blocks: BlockIds) -> int:
        """How many of these blocks one request alone uses; negative ids are none."""
        return int(np.count_nonzero(self._ref_counts[blocks[blocks >= 0]] == 1))

    def num_users(self, block: int) -> int:
        """How many requests hold this block."""
        return int(self._ref_counts[block])

    def allocate(self, owner: str, count: int, reserve: int) -> BlockIds | None:
        """``count`` blocks with one reference each, evicting as needed; None if they cannot be had (see Placement.allocate)."""
        if not count:
            return NO_BLOCKS
        shortfall = count - self.placement.num_free - self.placement.num_reserved
        if shortfall > len(self.eviction):
            return None
        if shortfall > 0:
            self._evict(shortfall)
        blocks = self.placement.allocate(owner, count, reserve)
        if blocks is not None:
            self._ref_counts[blocks] = 1
            self.num_references += count
            self.num_owned += count
        return blocks

    def share(self, blocks: BlockIds) -> None:
        """One more reference to each of these distinct cached blocks."""
        if not len(blocks):
            return
        idle = blocks[self._ref_counts[blocks] == 0]
        self.eviction.found(blocks)
        self.eviction.remove(idle)
        self._ref_counts[blocks] += 1
        self.num_references += len(blocks)
        self.num_owned += len(idle)

    def release(self, owner: str, blocks: BlockIds) -> None:
        """One reference less to each of these distinct blocks, which are in order of position: the last is the first to be evicted."""
        if not len(blocks):
            return
        self._ref_counts[blocks] -= 1
        left = blocks[self._ref_counts[blocks] == 0]
        self.num_references -= len(blocks)
        self.num_owned -= len(left)
        try:
            self.placement.free(owner, left[~self._indexed[left]])
            if len(idle := left[self._indexed[left]]):
                self.eviction.add(idle)
        except PolicyError as error:
            self.recover(error)

    def move(self, src: BlockIds, dst: BlockIds) -> None:
        """The references to ``src``, which are not cached, are to ``dst`` now; a block may be in both."""
        counts = self._ref_counts[src]
        self._ref_counts[src] = 0
        self._ref_counts[dst] = counts

    def cache(self, chain: list[BlockHash], first: int, blocks: BlockIds) -> None:
        """Let owned blocks, whose tokens are all computed, be found by their hashes; see PrefixIndex.insert."""
        remembered = self.index.insert(chain, first, blocks)
        if not len(remembered):
            return
        self._indexed[remembered] = True
        positions = np.arange(len(blocks)) if len(remembered) == len(blocks) else np.flatnonzero(np.isin(blocks, remembered))
        if self._spill is not None:  # before a plugin may raise: the index knows these blocks already
            for block, position in zip(remembered.tolist(), positions.tolist(), strict=True):
                self._hash_of[block] = chain[first + position + 1]
        self.eviction.cached(remembered, first + positions)

    def holds(self, blocks: BlockIds) -> bool:
        """Whether these are cached, still."""
        return bool(self._indexed[blocks].all())

    def clear_cache(self) -> int:
        """Forget all cached blocks, and say how many: idle ones become free, owned ones are not found again."""
        num_cached = len(self.index)
        try:
            idle = self.eviction.evict(len(self.eviction))
            self.index.clear()
            self._indexed[:] = False
            self.placement.free("", idle)
        except PolicyError as error:
            self._replace(error)
        return num_cached

    def recover(self, error: PolicyError) -> None:
        """After ``error`` of one of this pool's policies: the plugin stays if its books, and all others, still agree with the pool's.

        If they do not, nobody knows what it has done, and a built-in policy takes its place; what was cached is forgotten, what requests
        hold is not touched. O(pool).
        """
        try:
            self.check_integrity(self._ref_counts.astype(np.int64))
        except (AssertionError, PolicyError):
            self._replace(error)

    def _replace(self, error: PolicyError) -> None:
        """Put built-in policies in the place of what failed, from what the pool itself knows."""
        seams = {error.seam}
        idle = np.flatnonzero((self._ref_counts == 0) & self._indexed).astype(np.int32)
        self._indexed[:] = False
        self.index = self._fresh("prefix_index", seams)
        self.eviction = self._fresh("eviction", seams)
        if "placement" not in seams:
            try:
                self.placement.free("", idle)
                self.check_integrity(self._ref_counts.astype(np.int64))
            except (AssertionError, PolicyError):
                seams.add("placement")
        if "placement" in seams:
            self.placement = PagedPlacement(self._spec, free=np.flatnonzero(self._ref_counts == 0).astype(np.int32))
        self.replaced |= {seam: FALLBACKS[seam] for seam in seams if seam in FALLBACKS}
        in_use = ", ".join(f"kv_{seam} is {name}" for seam, name in self.replaced.items()) or "the same policies are built anew"
        logger.error("%s; its books differ from the pool's, and what is cached is forgotten: %s from now on", error, in_use)

    def _fresh(self, seam: str, failed: set[str]) -> Any:
        """A new policy of a seam: the chosen one's like, or the one that takes its place."""
        if seam not in failed and seam not in self.replaced:
            try:
                return getattr(self._policies, seam)(self._spec)
            except InvalidRequestError:
                failed.add(seam)
        return BUILT_IN[seam][FALLBACKS[seam]](self._spec)

    def check_integrity(self, references: npt.NDArray[np.int64]) -> None:
        """Raise AssertionError unless the states add up; ``references`` [num_blocks] are counted from the block tables."""
        for policy in (self.placement, self.index, self.eviction):
            policy.check_integrity()
        assert np.array_equal(self._ref_counts, references), "reference counts differ from the block tables"
        assert self.num_references == references.sum(), "the number of references is wrong"
        assert self.num_owned == np.count_nonzero(references), "the number of owned blocks is wrong"
        assert len(self.index) == np.count_nonzero(self._indexed), "the index and the pool disagree on what is cached"
        unused = references == 0
        idle, free = self.eviction.idle_blocks(), self.placement.free_blocks()
        assert np.array_equal(np.sort(idle), np.flatnonzero(unused & self._indexed)), "idle blocks are those cached and unused"
        assert len(idle) == len(self.eviction) and len(free) == self.placement.num_free, "a policy miscounts"
        assert unused[free].all() and not self._indexed[free].any(), "a free block is in use or cached"
        num_reserved = np.count_nonzero(unused & ~self._indexed) - len(free)
        assert num_reserved == self.placement.num_reserved, "an unused block is neither free nor cached nor reserved"

    def check_reserved(self, reserved: list[BlockIds]) -> None:
        """Raise AssertionError unless these, per owner, are all the blocks that are reserved."""
        blocks = np.concatenate([NO_BLOCKS, *reserved, self.placement.free_blocks()])
        assert len(np.unique(blocks)) == len(blocks), "a reserved block is free, or reserved twice"
        assert sum(map(len, reserved)) == self.placement.num_reserved, "reserved blocks that are nobody's"
        assert not self._ref_counts[blocks].any(), "a reserved block is in use"

    def spill_to(self, spill: Spill) -> None:
        """From now on, tell ``spill`` of evicted blocks; nothing is cached yet."""
        self._spill = spill
        self._hash_of = [BlockHash(b"")] * self.num_blocks

    def cached_blocks(self) -> tuple[list[BlockHash], BlockIds]:
        """Hashes and ids of all cached blocks, those that are the first to be evicted first; for who spills."""
        idle = self.eviction.idle_blocks()
        used = np.flatnonzero(self._indexed & (self._ref_counts > 0)).astype(np.int32)
        blocks = np.concatenate([idle, used])
        return [self._hash_of[block] for block in blocks.tolist()], blocks

    def _evict(self, count: int) -> None:
        blocks = self.eviction.evict(count)
        if self._spill is not None:
            self._spill([self._hash_of[block] for block in blocks.tolist()], blocks)
        self.index.remove(blocks)
        self._indexed[blocks] = False
        self.placement.free("", blocks)
