"""How far back a layer group's queries read, and so which blocks a request needs there, and how many at most.

full        ████████████████████████████                    every block, from the first on
window            ▒▒████████████████████                    those that the window of the next query reaches; ▒: its stale part
                  ▲        ▲           ▲
                first    computed    end of the steps in flight
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from octavo.kv.interfaces import BlockIds

UNBOUNDED = sys.maxsize
"""No limit to the blocks that a request may need."""

DECODE_TOKENS = 16
"""Most tokens that a request past its prefill has in steps that have not come back: one a step, or more from a runner that drafts."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Of one group. With ``slides``, a request's blocks that are wholly behind the window are given back."""

    block_size: int
    window: int
    """Positions that a query reads, its own included; 0: all."""
    slides: bool
    most_in_prefill: int = UNBOUNDED
    """Most blocks that a request holds while it is in prefill, and past it; UNBOUNDED: as many as it has tokens."""
    most_in_decode: int = UNBOUNDED

    @classmethod
    def of(cls, block_size: int, window: int, gives_back: bool, max_tokens_in_flight: int) -> Reach:
        """``gives_back``: whether the placement takes single blocks back; ``max_tokens_in_flight``: in steps that have not come back."""
        if not window or not gives_back:
            return cls(block_size, window, slides=False)

        def most(tokens: int) -> int:
            return _blocks_touched(window - 1 + tokens, block_size)

        return cls(block_size, window, True, most(max_tokens_in_flight), most(min(DECODE_TOKENS, max_tokens_in_flight)))

    def first_block(self, num_computed: int) -> int:
        """The first block that a query behind ``num_computed`` tokens reads."""
        return max(num_computed + 1 - self.window, 0) // self.block_size if self.slides else 0

    def needs(self, first: int, end: int, prefill_blocks: int, max_blocks: int) -> tuple[int, int]:
        """Of a request with blocks [first, end), of ``prefill_blocks`` for the tokens it started with and ``max_blocks`` at its limit: how
        many it needs until its prefill is done (or has, past that), and how many more it may need later. The sum never grows.
        """
        now = end - first
        if end < prefill_blocks:
            now = max(now, min(prefill_blocks - first, self.most_in_prefill))
        return now, max(min(max_blocks - first, self.most_in_decode) - now, 0)

    def most(self, max_blocks: int) -> int:
        """Most blocks that a request holds at once, of ``max_blocks`` in all."""
        return min(max_blocks, self.most_in_prefill)

    def covered(self, blocks: BlockIds) -> npt.NDArray[np.bool_]:
        """Of cached blocks by position, -1 where there is none: whether all that a query behind block i reads is there, for each i."""
        places = np.arange(len(blocks))
        last_gap = np.maximum.accumulate(np.where(blocks < 0, places, -1))
        first = np.maximum((places + 1) * self.block_size + 1 - self.window, 0) // self.block_size
        covers: npt.NDArray[np.bool_] = last_gap < first
        return covers


def _blocks_touched(num_tokens: int, block_size: int) -> int:
    """Most blocks that so many neighbouring positions lie in, wherever they begin."""
    return (num_tokens - 2) // block_size + 2
