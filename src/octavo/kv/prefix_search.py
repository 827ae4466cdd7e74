"""What of a waiting request is there already: in the prefix index, in the swap space, on disk."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from octavo.kv.block_hash import extend_chain, root_hash
from octavo.kv.block_pool import BlockPool
from octavo.kv.disk.tier import DiskTier, StillReading
from octavo.kv.interfaces import NO_BLOCKS
from octavo.kv.prefix_hit import PrefixHit, find_prefix
from octavo.kv.reach import Reach
from octavo.kv.swap import SwapSpace
from octavo.kv.transfers import StoredPrefix
from octavo.request import Request


class PrefixSearch:
    """Prompt log-probabilities need the logits of every prompt token: who wants them finds nothing in the index or on disk."""

    def __init__(
        self,
        pools: Sequence[BlockPool],
        reaches: Sequence[Reach],
        block_size: int,
        numerics_id: str,
        swap: SwapSpace,
        disk: DiskTier | None,
        caches: bool,
    ) -> None:
        """``caches``: whether there is a prefix index."""
        self._pools, self._reaches = pools, reaches
        self._block_size, self._numerics_id = block_size, numerics_id
        self._swap, self._disk = swap, disk
        self.caches = caches
        """Whether prefixes are looked up at all, and entered."""
        self.no_hit = PrefixHit([NO_BLOCKS] * len(pools), [0] * len(pools), 0)

    def find(self, request: Request, *, patient: bool) -> PrefixHit | None:
        """See KVCacheManager.get_computed_blocks. ``patient``: nobody runs, so there is time to read from the disk."""
        hit = self._find_cached(request)
        try:
            stored = self._swap.find(request.request_id) or self._find_on_disk(request, hit, patient)
        except StillReading:
            return None
        if stored is None or stored.num_tokens <= hit.num_tokens:
            return hit
        return hit.extended(stored, self._reaches)

    def hash_blocks(self, request: Request, num_blocks: int) -> None:
        """Extend the request's chain of hashes to its first ``num_blocks`` blocks."""
        chain = request.block_hashes
        if not chain:
            chain.append(root_hash(self._block_size, self._numerics_id, request.cache_salt, request.adapter))
        extend_chain(chain, request.all_token_ids, num_blocks, self._block_size)

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """Nothing is looked up, or entered."""
        caches, self.caches = self.caches, False
        try:
            yield
        finally:
            self.caches = caches

    def _find_cached(self, request: Request) -> PrefixHit:
        if not self.caches or request.sampling_params.prompt_logprobs is not None:
            return self.no_hit
        num_blocks = (request.num_tokens - 1) // self._block_size
        self.hash_blocks(request, num_blocks)
        hashes = request.block_hashes[1 : num_blocks + 1]
        return find_prefix([pool.index for pool in self._pools], self._reaches, hashes, self._block_size)

    def _find_on_disk(self, request: Request, hit: PrefixHit, patient: bool) -> StoredPrefix | None:
        if self._disk is None or not self.caches or request.sampling_params.prompt_logprobs is not None:
            return None
        hashes = request.block_hashes[1 : (request.num_tokens - 1) // self._block_size + 1]
        return self._disk.find(request.request_id, hashes, hit.num_shared // self._block_size, self._reaches, patient=patient)
