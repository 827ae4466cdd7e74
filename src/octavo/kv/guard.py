"""What stands between the KV core and a policy of another package: no error or broken promise of its gets past.

Each guard is the policy, as far as the core can see. It turns an exception into a PolicyError that names the plugin, and checks what the
plugin answers, before anybody acts on it, against books of its own: which blocks the plugin was given or told of, and has not taken back.
So a block is not given twice, an index does not pass off one text's blocks as another's, and a number that the core reads is true.
Arrays cross as copies. A check costs O(blocks named), as array work; the prefix index's, which compares hashes, a Python loop.

After a PolicyError of a method that changes things it is unknown whether the plugin has changed: see BlockPool.recover.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.errors import OctavoError
from octavo.kv.interfaces import BlockHash, BlockIds, PoolSpec, VictimCandidate


class PolicyError(OctavoError):
    """A policy of another package raised, or broke its contract; the message names plugin and package."""

    def __init__(self, message: str, seam: str) -> None:
        super().__init__(message)
        self.seam = seam


Blame = Callable[[str], PolicyError]
"""The error for what a plugin did, e.g. "raised KeyError(3) in free()"."""


class _Guard:
    """Calls of the plugin, and checks of what comes back."""

    def __init__(self, policy: Any, blame: Blame) -> None:
        self._policy = policy
        self._blame = blame

    def _call(self, method: str, *args: Any) -> Any:
        try:
            return getattr(self._policy, method)(*args)
        except Exception as error:
            raise self._blame(f"raised {error!r} in {method}()") from error

    def _read(self, name: str) -> Any:
        """A property's value, or __len__'s."""
        try:
            return len(self._policy) if name == "__len__" else getattr(self._policy, name)
        except Exception as error:
            raise self._blame(f"raised {error!r} in {name}") from error

    def _number(self, name: str, most: int) -> int:
        value = self._read(name)
        if not isinstance(value, (int, np.integer)) or not 0 <= value <= most:
            raise self._blame(f"says {name} is {value!r}, which is none of 0 to {most}")
        return int(value)

    def _truth(self, method: str, *args: Any) -> bool:
        value = self._call(method, *args)
        if not isinstance(value, (bool, np.bool_)):
            raise self._blame(f"returned {value!r} from {method}(), not True or False")
        return bool(value)


class _BlockGuard(_Guard):
    """One that deals in blocks; ``_marked`` are those that the plugin must not, or may only, name."""

    def __init__(self, policy: Any, blame: Blame, spec: PoolSpec) -> None:
        super().__init__(policy, blame)
        self._marked: npt.NDArray[np.bool_] = np.zeros(spec.num_blocks, np.bool_)
        self._num_marked = 0

    def _blocks(self, method: str, found: Any, count: int | None = None, marked: bool | None = None) -> BlockIds:
        """A copy of what a method returned, if these are ``count`` distinct blocks of the pool, all marked or all not."""
        if not isinstance(found, np.ndarray) or found.dtype != np.int32 or found.ndim != 1:
            what = f"{found.dtype} [{', '.join(map(str, found.shape))}]" if isinstance(found, np.ndarray) else type(found).__name__
            raise self._blame(f"returned {what} from {method}(), not int32 [blocks]")
        if count is not None and len(found) != count:
            raise self._blame(f"returned {len(found)} blocks from {method}(), not {count}")
        blocks: BlockIds = found.copy()
        if not len(blocks):
            return blocks
        if not 0 <= blocks.min() <= blocks.max() < len(self._marked):
            raise self._blame(f"returned blocks {blocks.min()} to {blocks.max()} from {method}(); the pool has {len(self._marked)}")
        if len(np.unique(blocks)) != len(blocks):
            raise self._blame(f"returned a block twice from {method}()")
        if marked is not None and (wrong := blocks[self._marked[blocks] != marked]).size:
            raise self._blame(f"returned block {wrong[0]} from {method}(), which is not its to give")
        return blocks

    def _mark(self, blocks: BlockIds, value: bool) -> None:
        self._marked[blocks] = value
        self._num_marked += len(blocks) if value else -len(blocks)

    def check_integrity(self) -> None:
        """Raise AssertionError if the plugin does, for whatever reason, or counts other blocks than this guard."""
        try:
            self._call("check_integrity")
            self._recount("check_integrity")
        except PolicyError as error:
            raise AssertionError(str(error)) from error

    def _recount(self, method: str) -> None:
        """Raise PolicyError unless the plugin counts as many blocks as this guard does, after ``method``."""
        if (length := self._number("__len__", len(self._marked))) != self._num_marked:
            raise self._blame(f"counts {length} blocks after {method}(), not {self._num_marked}")


class GuardedPlacement(_BlockGuard):
    """Marked: blocks that were given. What can be read without a call is read after each that may change it."""

    def __init__(self, policy: Any, blame: Blame, spec: PoolSpec) -> None:
        super().__init__(policy, blame, spec)
        self.num_free = self.num_reserved = self.largest_free_run = 0
        self._recount("__init__")
        self.max_request_blocks = self._number("max_request_blocks", spec.num_blocks)
        self.reserves = bool(self._read("reserves"))

    def _recount(self, method: str) -> None:
        left = len(self._marked) - self._num_marked
        free, reserved = self._number("num_free", left), self._number("num_reserved", left)
        if free + reserved != left:
            raise self._blame(f"counts {free} free and {reserved} reserved blocks after {method}(), of {left} that are not in use")
        self.num_free, self.num_reserved, self.largest_free_run = free, reserved, self._number("largest_free_run", free)

    def has_room(self, reserve: int, without: Collection[str] = ()) -> bool:
        return self._truth("has_room", reserve, list(without))

    def allocate(self, owner: str, count: int, reserve: int) -> BlockIds | None:
        found = self._call("allocate", owner, count, reserve)
        if found is None:
            self._recount("allocate")
            return None
        blocks = self._blocks("allocate", found, count, marked=False)
        self._mark(blocks, True)
        try:
            self._recount("allocate")
        except PolicyError:
            self._mark(blocks, False)
            raise
        return blocks

    def free(self, owner: str, blocks: BlockIds) -> None:
        self._call("free", owner, blocks.copy())
        self._mark(blocks, False)
        self._recount("free")

    def reserved_blocks(self, owner: str) -> BlockIds:
        return self._blocks("reserved_blocks", self._call("reserved_blocks", owner), marked=False)

    def free_blocks(self) -> BlockIds:
        return self._blocks("free_blocks", self._call("free_blocks"), self.num_free, marked=False)


class GuardedIndex(_BlockGuard):
    """Marked: blocks that are known, each under the hash that it was first told with."""

    def __init__(self, policy: Any, blame: Blame, spec: PoolSpec) -> None:
        super().__init__(policy, blame, spec)
        self._hashes: dict[int, BlockHash] = {}
        self._recount("__init__")

    def lookup(self, hashes: list[BlockHash]) -> BlockIds:
        blocks = self._blocks("lookup", self._call("lookup", list(hashes)), marked=True)
        if len(blocks) > len(hashes):
            raise self._blame(f"returned {len(blocks)} blocks from lookup(), for {len(hashes)} hashes")
        for block, wanted in zip(blocks.tolist(), hashes, strict=False):
            self._expect_hash("lookup", block, wanted)
        return blocks

    def find(self, hashes: list[BlockHash]) -> BlockIds:
        found = self._call("find", list(hashes))
        if not isinstance(found, np.ndarray) or found.dtype != np.int32 or found.shape != (len(hashes),):
            raise self._blame(f"returned {found!r} from find(), not int32 [blocks], one for each of {len(hashes)} hashes")
        known = found >= 0
        for block, wanted in zip(self._blocks("find", found[known], marked=True).tolist(), np.flatnonzero(known).tolist(), strict=True):
            self._expect_hash("find", block, hashes[wanted])
        return np.where(known, found, -1).astype(np.int32)

    def insert(self, chain: list[BlockHash], first: int, blocks: BlockIds) -> BlockIds:
        remembered = self._blocks("insert", self._call("insert", list(chain), first, blocks.copy()), marked=False)
        hashes = dict(zip(blocks.tolist(), chain[first + 1 :], strict=False))
        if not hashes.keys() >= set(remembered.tolist()):
            raise self._blame("returned blocks from insert() that it was not given")
        self._mark(remembered, True)
        self._hashes |= {block: hashes[block] for block in remembered.tolist()}
        self._recount("insert")
        return blocks[np.isin(blocks, remembered)]  # in the order of the chain, whatever the plugin's

    def remove(self, blocks: BlockIds) -> None:
        self._call("remove", blocks.copy())
        self._mark(blocks, False)
        for block in blocks.tolist():
            del self._hashes[block]
        self._recount("remove")

    def clear(self) -> None:
        self._call("clear")
        self._mark(np.flatnonzero(self._marked).astype(np.int32), False)
        self._hashes.clear()
        self._recount("clear")

    def __len__(self) -> int:
        return self._num_marked

    def _expect_hash(self, method: str, block: int, wanted: BlockHash) -> None:
        if self._hashes[block] != wanted:
            raise self._blame(f"returned block {block} from {method}(), which holds other tokens")


class GuardedEviction(_BlockGuard):
    """Marked: idle blocks."""

    def __init__(self, policy: Any, blame: Blame, spec: PoolSpec) -> None:
        super().__init__(policy, blame, spec)
        self._recount("__init__")

    def cached(self, blocks: BlockIds, positions: npt.NDArray[np.int64]) -> None:
        self._call("cached", blocks.copy(), positions.copy())

    def found(self, blocks: BlockIds) -> None:
        self._call("found", blocks.copy())

    def add(self, blocks: BlockIds) -> None:
        self._call("add", blocks.copy())
        self._mark(blocks, True)
        self._recount("add")

    def remove(self, blocks: BlockIds) -> None:
        self._call("remove", blocks.copy())
        self._mark(blocks, False)
        self._recount("remove")

    def evict(self, count: int) -> BlockIds:
        blocks = self._blocks("evict", self._call("evict", count), count, marked=True)
        self._mark(blocks, False)
        try:
            self._recount("evict")
        except PolicyError:
            self._mark(blocks, True)
            raise
        return blocks

    def idle_blocks(self) -> BlockIds:
        return self._blocks("idle_blocks", self._call("idle_blocks"), self._num_marked, marked=True)

    def __len__(self) -> int:
        return self._num_marked


class GuardedAdmission(_Guard):
    """Its answer is a yes or a no."""

    def admits(
        self,
        needed_now: int,
        needed_at_most: int,
        available: int,
        promised: int,
        num_running: int,
        running: Iterable[tuple[int, int]],
    ) -> bool:
        return self._truth("admits", needed_now, needed_at_most, available, promised, num_running, running)

    def finished(self, stated: int, generated: int) -> None:
        self._call("finished", stated, generated)


class GuardedVictim(_Guard):
    """Its answer is one of those that it was offered."""

    def choose(self, candidates: Sequence[VictimCandidate], needed: int) -> int:
        index = self._call("choose", list(candidates), needed)
        if not isinstance(index, (int, np.integer)) or not 0 <= index < len(candidates):
            raise self._blame(f"returned {index!r} from choose(), with {len(candidates)} to choose from")
        return int(index)


GUARDS: dict[str, Callable[..., Any]] = {
    "placement": GuardedPlacement,
    "prefix_index": GuardedIndex,
    "eviction": GuardedEviction,
    "admission": GuardedAdmission,
    "victim": GuardedVictim,
}
"""A seam's guard: built from policy, blame, and the PoolSpec where there is one."""
