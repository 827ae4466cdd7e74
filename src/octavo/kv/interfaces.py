"""The four seams of the KV core. Each is a small policy, chosen by name (octavo.kv.policies); kv/ knows no model.

Block ids are indices 0 … num_blocks - 1 of one layer group's pool; bulk operations pass them as int32 arrays, because a
128k context has 8,192 of them and must not cost a Python loop.
"""

from __future__ import annotations

from typing import NewType, Protocol

import numpy as np
import numpy.typing as npt

BlockId = NewType("BlockId", int)
BlockIds = npt.NDArray[np.int32]
BlockHash = NewType("BlockHash", bytes)


class Placement(Protocol):
    """Decides which free blocks a request gets. Mutated by allocate and free only."""

    @property
    def num_free(self) -> int:
        """Free blocks."""

    @property
    def largest_free_run(self) -> int:
        """Longest run of neighbouring free blocks that one request could use; num_free when runs do not matter."""

    def allocate(self, owner: str, count: int, reserve: int) -> BlockIds | None:
        """``count`` more blocks for ``owner``, or None (and nothing changed) if it cannot be served now.

        ``reserve`` is how many blocks the owner may hold in all when it completes: a placement that needs room for the whole
        request at its start takes it on the first call.
        """

    def free(self, owner: str, blocks: BlockIds) -> None:
        """Take back blocks nobody uses any more."""

    def check_integrity(self) -> None:
        """Raise AssertionError if the books do not balance."""


class PrefixIndex(Protocol):
    """Remembers which computed blocks hold which tokens."""

    def lookup(self, hashes: list[BlockHash]) -> BlockIds:
        """Blocks of the longest known prefix of ``hashes``, in order."""

    def insert(self, hashes: list[BlockHash], blocks: BlockIds) -> None:
        """Remember computed full blocks; a hash that is known already keeps its first block."""

    def remove(self, blocks: BlockIds) -> None:
        """Forget blocks that are being reused."""

    def clear(self) -> None:
        """Forget everything."""

    def check_integrity(self) -> None:
        """Raise AssertionError if the books do not balance."""


class Eviction(Protocol):
    """Orders idle cached blocks: those only the prefix index still wants."""

    def add(self, blocks: BlockIds) -> None:
        """These became idle, just now; the last of the array is the one to go first (a prefix's tail before its head)."""

    def remove(self, blocks: BlockIds) -> None:
        """These are in use again."""

    def evict(self, count: int) -> BlockIds:
        """Take out ``count`` blocks, those to lose first."""

    def __len__(self) -> int: ...


class Admission(Protocol):
    """Decides whether a waiting request may start."""

    def admits(self, needed_now: int, needed_at_most: int, available: int, promised: int) -> bool:
        """In blocks: what it needs for its whole prompt, to completion, what is free or evictable, and what running requests may yet take."""
