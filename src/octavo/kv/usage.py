"""Where every slot of the KV pool is, now.

held   slots in blocks that running requests own (a shared block counts once)
live   slots that hold a computed token some running request attends to (a shared one counts once)
tail   unfilled slots of each request's last block             reserved   slots held for tokens that have not come
stale  slots behind a sliding window, still held               cached     slots kept only by the prefix index (evictable)
free   the rest          external   the part of free that the head of the queue cannot use, for want of one run

held = live + tail + reserved + stale                          held + cached + free = total
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_SLOTS = ("total", "held", "live", "tail", "reserved", "stale", "cached", "free", "external")


@dataclass(frozen=True, slots=True)
class GroupUsage:
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

    def as_dict(self) -> dict[str, Any]:
        slots = {name: getattr(self, name) for name in _SLOTS}
        weight, size = self.bytes_per_block, self.block_size
        return {
            "name": self.name,
            "block_size": self.block_size,
            "slots": slots,
            "bytes": {name: count * weight // size for name, count in slots.items()},
            "efficiency": self.efficiency,
            "fragmentation": self.fragmentation,
        }


@dataclass(frozen=True, slots=True)
class KVUsage:
    """All groups."""

    groups: tuple[GroupUsage, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers, as they go over the wire; made every step, so each is worked out once.

        Shares are of bytes, because groups differ in what a slot weighs: ``efficiency`` is live / held (waste is what it lacks to 1),
        ``held_of_total`` what running requests hold of the pool, ``live_of_total`` the measure of the PagedAttention paper (Kwon et al.
        2023, figure 2).
        """
        groups = [group.as_dict() for group in self.groups]
        total, held, live = (sum(group["bytes"][name] for group in groups) for name in ("total", "held", "live"))
        return {
            "groups": groups,
            "efficiency": live / held if held else 1.0,
            "held_of_total": held / total,
            "live_of_total": live / total,
        }
