"""Recompute cost × likelihood: the block whose loss is expected to cost least goes first.

    worth    = (1 + finds) × (1 + position × block_size / 8192)      position in its prefix, in blocks
    priority = clock + worth, set when it becomes idle; the least is evicted, and the clock goes on to its priority

This is GreedyDual-Size with Frequency (Cherkasova 1998, "Improving WWW proxies performance with Greedy-Dual-Size-Frequency caching
policy"; all blocks are of one size). The clock is what ages: a block that nobody finds is passed by those that came later.

Likelihood: finds so far. Cost: the linear layers cost the same for each token, and attention grows with the tokens before it. The
two weigh the same at about 6 × hidden size tokens (24 hidden² against 4 × hidden × tokens FLOPs a token and layer), which the
constant 8,192 stands for: kv/ knows no model, and the order depends on it weakly.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from octavo.kv.eviction.levels import LevelQueues
from octavo.kv.interfaces import BlockIds, PoolSpec

_EVEN_AT = 8192
"""Tokens before a token at which its attention costs as much as its linear layers."""
_WORTHS: npt.NDArray[np.float64] = 2 ** (np.arange(256) / 2)
"""By level; finds and positions are int32, so that no level is over 128."""


class CostEviction:
    """Worth is rounded down to a power of √2. Blocks of one worth go in the order in which they became idle: one queue a level.

    To lose a block is to lose all behind it, so of blocks that become idle together none is worth less than one behind it.
    """

    def __init__(self, spec: PoolSpec) -> None:
        self._queues = LevelQueues(spec)
        self._block_size = spec.block_size
        self._num_found: npt.NDArray[np.int32] = np.zeros(spec.num_blocks, np.int32)
        self._cost: npt.NDArray[np.float64] = np.ones(spec.num_blocks)
        self._priority: npt.NDArray[np.float64] = np.zeros(spec.num_blocks)
        self._clock = 0.0

    def cached(self, blocks: BlockIds, positions: npt.NDArray[np.int64]) -> None:
        self._num_found[blocks] = 0
        self._cost[blocks] = 1 + positions * (self._block_size / _EVEN_AT)

    def found(self, blocks: BlockIds) -> None:
        self._num_found[blocks] += 1

    def add(self, blocks: BlockIds) -> None:
        worth = (1 + self._num_found[blocks]) * self._cost[blocks]
        worth = np.maximum.accumulate(worth[::-1])[::-1]
        levels = (2 * np.log2(worth)).astype(np.int64)
        self._priority[blocks] = self._clock + _WORTHS[levels]
        self._queues.add(blocks, levels)

    def remove(self, blocks: BlockIds) -> None:
        self._queues.remove(blocks)

    def evict(self, count: int) -> BlockIds:
        candidates = self._queues.oldest(count)  # in each level priorities rise with age: they are sorted runs
        blocks = candidates[np.argsort(self._priority[candidates], kind="stable")[:count]]
        self._queues.evict(blocks)
        self._clock = float(self._priority[blocks].max(initial=self._clock))
        return blocks

    def idle_blocks(self) -> BlockIds:
        return self._queues.blocks()

    def __len__(self) -> int:
        return len(self._queues)

    def check_integrity(self) -> None:
        self._queues.check_integrity()
        assert (self._priority[self.idle_blocks()] >= self._clock).all(), "the clock passed an idle block"
