"""The last steps, for people who want to see what an engine does."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from octavo.outputs import EngineStats

LENGTH = 512
"""Steps remembered."""


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step, and the engine after it."""

    step: int
    """Counted from 1."""
    time: float
    """Its end, in seconds since the epoch."""
    seconds: float
    """How long it took."""
    tokens: int
    """Tokens computed."""
    preemptions: int
    """Of this step."""
    moved_blocks: int
    """Moved by compaction, before this step."""
    stats: EngineStats

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers. ``kv_bytes``: held, live, tail, reserved, stale, cached, free and external, over all groups; ``fragmentation``: of
        the group that is worst off."""
        groups = self.stats.kv["groups"]
        return {
            "step": self.step,
            "time": self.time,
            "seconds": self.seconds,
            "tokens": self.tokens,
            "running": self.stats.running,
            "waiting": self.stats.waiting,
            "preemptions": self.preemptions,
            "moved_blocks": self.moved_blocks,
            "kv_bytes": {name: sum(group["bytes"][name] for group in groups) for name in groups[0]["bytes"] if name != "total"},
            "fragmentation": max(group["fragmentation"] for group in groups),
        }


@dataclass(slots=True)
class StepLog:
    """A ring buffer; adding a step costs O(1), and what is seldom asked for is added up when it is."""

    _records: deque[StepRecord] = field(default_factory=lambda: deque(maxlen=LENGTH))
    _preemptions: int = 0
    """In all, up to the last step."""

    def add(self, step: int, seconds: float, tokens: int, moved_blocks: int, time: float, stats: EngineStats) -> None:
        preemptions = stats.preemptions - self._preemptions
        self._records.append(StepRecord(step, time, seconds, tokens, preemptions, moved_blocks, stats))
        self._preemptions = stats.preemptions

    def as_list(self) -> list[dict[str, Any]]:
        """Oldest first."""
        return [record.as_dict() for record in self._records]
