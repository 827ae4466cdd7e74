"""The seams of the KV core. Each is a small policy, chosen by name (octavo.kv.policies); kv/ knows no model.

Block ids are indices 0 … num_blocks - 1 of one layer group's pool; bulk operations pass them as int32 arrays, because a
128k context has 8,192 of them and must not cost a Python loop. Arrays that a policy returns belong to the caller; arrays that
it is given it must not keep or change.

Placement, prefix index and eviction are built once a layer group, from a PoolSpec; admission and the victim rule are built once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NewType, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from octavo.request import BlockHash as BlockHash

BlockId = NewType("BlockId", int)
BlockIds = npt.NDArray[np.int32]

NO_BLOCKS: BlockIds = np.zeros(0, np.int32)
NO_BLOCKS.flags.writeable = False


@dataclass(frozen=True)
class PoolSpec:
    """What a policy is told of the pool that it serves."""

    num_blocks: int
    block_size: int
    """Tokens in a block."""
    max_num_seqs: int = 1
    """Most requests that run at once."""
    max_model_len: int | None = None
    """Most tokens of one request; None: as many as the pool holds."""
    window: int = 0
    """If > 0, requests give back what lies further behind than so many tokens, and a prefix is found without its head."""


class KVGroup(Protocol):
    """Layers that share one block table, as the runner describes them."""

    @property
    def name(self) -> str: ...

    @property
    def bytes_per_block(self) -> int:
        """K and V of one block in all layers of the group, scales included."""

    @property
    def window(self) -> int:
        """If > 0, a query reads no more than this many positions, its own included."""


class Placement(Protocol):
    """Decides which free blocks a request gets. Mutated by allocate and free only."""

    def __init__(self, spec: PoolSpec) -> None: ...

    @property
    def num_free(self) -> int:
        """Free blocks."""

    @property
    def largest_free_run(self) -> int:
        """Longest run of neighbouring free blocks that one request could use; num_free when runs do not matter."""

    @property
    def num_reserved(self) -> int:
        """Blocks kept for owners that have not been given them yet: not free, and in no block table; 0 if it reserves nothing."""

    @property
    def max_request_blocks(self) -> int:
        """Most blocks that one request can hold, with the pool to itself."""

    @property
    def reserves(self) -> bool:
        """Whether an owner's room is taken whole with its first block and goes back whole with its last. If not, single blocks come and go,
        those at an owner's head too, when a sliding window has left them behind."""

    def has_room(self, reserve: int, without: Collection[str] = ()) -> bool:
        """Whether a new owner of up to ``reserve`` blocks would be placed, if enough are free; ``without``: were these owners gone."""

    def allocate(self, owner: str, count: int, reserve: int) -> BlockIds | None:
        """``count`` more blocks for ``owner``, or None (and nothing changed) if it cannot be served now.

        ``reserve`` is how many blocks the owner may hold in all when it completes: a placement that needs room for the whole
        request at its start takes it on the first call.
        """

    def free(self, owner: str, blocks: BlockIds) -> None:
        """Take back blocks nobody uses any more. Blocks that outlived their owner in the prefix cache come from owner ""."""

    def reserved_blocks(self, owner: str) -> BlockIds:
        """Blocks kept for this owner that it has not been given; none for one that is unknown. For maps."""

    def free_blocks(self) -> BlockIds:
        """All free blocks, in any order; for checks and maps, so it may cost O(num_blocks)."""

    def check_integrity(self) -> None:
        """Raise AssertionError if the books do not balance."""


@dataclass(frozen=True, slots=True)
class Move:
    """Blocks of one owner that changed their places: those from position ``first`` of its table on were ``src`` and are now ``dst``."""

    owner: str
    first: int
    src: BlockIds
    dst: BlockIds


@runtime_checkable
class Compacting(Protocol):
    """A placement that can close the gaps between what it has placed."""

    def compact(self, wanted: int, most: int) -> list[Move]:
        """Move up to ``most`` blocks that owners were given towards a free run of ``wanted`` blocks, and say which.

        The old places are free at once: to be copied move by move, and all blocks of a move as if at the same time. With 0 ``wanted``
        only what has begun goes on.
        """


class PrefixIndex(Protocol):
    """Remembers which computed blocks hold which tokens."""

    def __init__(self, spec: PoolSpec) -> None: ...

    def lookup(self, hashes: list[BlockHash]) -> BlockIds:
        """Blocks of the longest known prefix of ``hashes``, in order."""

    def find(self, hashes: list[BlockHash]) -> BlockIds:
        """The block of each, -1 where it is unknown. Groups with a sliding window ask this, who may need a prefix's tail only."""

    def insert(self, chain: list[BlockHash], first: int, blocks: BlockIds) -> BlockIds:
        """Remember computed full blocks, and return those remembered: a hash that is known already keeps its first block.

        ``chain``: the hashes of a request's blocks, after that of the root: ``blocks[i]`` has the hash ``chain[first + i + 1]``.
        """

    def remove(self, blocks: BlockIds) -> None:
        """Forget blocks that are being reused; all of them are known."""

    def clear(self) -> None:
        """Forget everything."""

    def __len__(self) -> int:
        """Blocks known."""

    def check_integrity(self) -> None:
        """Raise AssertionError if the books do not balance."""


class Eviction(Protocol):
    """Orders idle cached blocks: those only the prefix index still wants."""

    def __init__(self, spec: PoolSpec) -> None: ...

    def cached(self, blocks: BlockIds, positions: npt.NDArray[np.int64]) -> None:
        """These, in use, have just become known to the prefix index; each is the block of that position (0 is the first) in its prefix."""

    def found(self, blocks: BlockIds) -> None:
        """A request found these, idle or in use, and uses them from now on; ``remove`` follows for those that are idle."""

    def add(self, blocks: BlockIds) -> None:
        """These became idle, just now; the last of the array is the one to go first (a prefix's tail before its head)."""

    def remove(self, blocks: BlockIds) -> None:
        """These are in use again; all of them are idle."""

    def evict(self, count: int) -> BlockIds:
        """Take out ``count`` blocks, those to lose first; at least ``count`` are idle."""

    def idle_blocks(self) -> BlockIds:
        """All idle blocks, in any order; for checks and maps, so it may cost O(num_blocks)."""

    def __len__(self) -> int:
        """Idle blocks."""

    def check_integrity(self) -> None:
        """Raise AssertionError if the books do not balance."""


class Admission(Protocol):
    """Decides whether a waiting request may start."""

    def admits(
        self,
        needed_now: int,
        needed_at_most: int,
        available: int,
        promised: int,
        num_running: int,
        running: Iterable[tuple[int, int]],
    ) -> bool:
        """Whether it may start; all but num_running in blocks of one group.

        needed_now: what it takes from ``available`` for its whole prefill. needed_at_most: the same to completion. available: what
        is free, evictable or reserved for running requests, less what these need for the rest of their prefills. promised: what
        running requests may take after their prefills, if each runs to its limit. num_running: how many these are.
        running: of each (blocks it holds after its prefill or has now, blocks it may take besides); to be read once at most.
        """

    def finished(self, stated: int, generated: int) -> None:
        """A request that might have generated ``stated`` tokens came to its end with ``generated`` of them; aborted ones are not told."""


class VictimCandidate(Protocol):
    """A running request that may be preempted for another."""

    @property
    def request_id(self) -> str: ...

    @property
    def num_computed_tokens(self) -> int:
        """What it has computed or found, and may have to compute again."""

    @property
    def num_remaining_tokens(self) -> int:
        """Most tokens that it may still compute."""

    @property
    def num_preemptions(self) -> int:
        """Times that it was preempted."""

    @property
    def blocks_freed(self) -> int:
        """Blocks that others can have if it goes: those that it alone uses. Costs O(its blocks)."""


class Victim(Protocol):
    """Decides who is preempted when the pool is full. Built once.

    It is asked for one victim at a time, and again if that was not enough. Whatever it chooses, a request is its choice a bounded
    number of times, and only for one that ranks before it (octavo.scheduler.victims).
    """

    def choose(self, candidates: Sequence[VictimCandidate], needed: int) -> int:
        """Index of the one to preempt. ``candidates``, at least one, are in order of rank: the last to have started comes last.

        ``needed``: how many blocks more the one that asks could use now; 0 if it wants a seat.
        """
