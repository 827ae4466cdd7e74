"""Where every slot of the KV pool is, now.

held   slots in blocks that running requests own (a shared block counts once)
live   slots that hold a computed token some running request attends to (a shared one counts once)
tail   unfilled slots of each request's last block             reserved   slots held for tokens that have not come
stale  slots behind a sliding window, still held               cached     slots kept only by the prefix index (evictable)
free   the rest          external   the part of free that the head of the queue cannot use, for want of one run

held = live + tail + reserved + stale                          held + cached + free = total
"""

from __future__ import annotations

from typing import Any

import msgspec

_SLOTS = ("total", "held", "live", "tail", "reserved", "stale", "cached", "free", "external")


class GroupUsage(msgspec.Struct, frozen=True, gc=False):
    """One layer group's slots."""

    name: str
    block_size: int
    bytes_per_block: int
    total: int
    held: int
    live: int
    tail: int
    reserved: int
    stale: int
    cached: int
    free: int
    external: int
    largest_free_run: int

    @property
    def efficiency(self) -> float:
        """live / held: the share of what requests hold that holds tokens; 1.0 when nothing is held."""
        return self.live / self.held if self.held else 1.0

    @property
    def fragmentation(self) -> float:
        """1 − largest free run / free; 0.0 when runs do not matter, or nothing is free."""
        return 1.0 - self.largest_free_run / self.free if self.free else 0.0

    def nbytes(self, slots: int) -> int:
        """What so many slots take."""
        return slots * self.bytes_per_block // self.block_size

    def bytes_by_place(self) -> dict[str, int]:
        """The slots of each place, in bytes."""
        return {name: self.nbytes(getattr(self, name)) for name in _SLOTS}

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "block_size": self.block_size,
            "slots": {name: getattr(self, name) for name in _SLOTS},
            "bytes": self.bytes_by_place(),
            "efficiency": self.efficiency,
            "fragmentation": self.fragmentation,
        }


class KVUsage(msgspec.Struct, frozen=True):
    """All groups."""

    groups: tuple[GroupUsage, ...]

    @property
    def fragmentation(self) -> float:
        """Of the group that is worst off."""
        return max([group.fragmentation for group in self.groups])

    def held_live_total(self) -> tuple[int, int, int]:
        """Bytes of those places, over all groups."""
        groups = self.groups
        if len(groups) == 1:
            group = groups[0]
            return group.nbytes(group.held), group.nbytes(group.live), group.nbytes(group.total)
        each = [(group.nbytes(group.held), group.nbytes(group.live), group.nbytes(group.total)) for group in groups]
        held, live, total = map(sum, zip(*each, strict=True))
        return held, live, total

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers, as they go over the wire; each is worked out once.

        Shares are of bytes, because groups differ in what a slot weighs: ``efficiency`` is live / held (waste is what it lacks to 1),
        ``held_of_total`` what running requests hold of the pool, ``live_of_total`` the measure of the PagedAttention paper (Kwon et al.
        2023, figure 2).
        """
        held, live, total = self.held_live_total()
        return {
            "groups": [group.as_dict() for group in self.groups],
            "efficiency": live / held if held else 1.0,
            "held_of_total": held / total,
            "live_of_total": live / total,
        }
