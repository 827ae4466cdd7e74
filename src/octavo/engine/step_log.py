"""The last steps, for people who want to see what an engine does."""

from __future__ import annotations

import dataclasses
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
    running: int
    waiting: int
    preemptions: int
    """Of this step."""
    moved_blocks: int
    """Moved by compaction, before this step."""
    kv_bytes: dict[str, int]
    """held, live, tail, reserved, stale, cached, free and external, over all groups."""
    fragmentation: float
    """Of the group that is worst off."""


@dataclass(slots=True)
class StepLog:
    """A ring buffer; adding a step costs O(1)."""

    _records: deque[StepRecord] = field(default_factory=lambda: deque(maxlen=LENGTH))
    _preemptions: int = 0
    """In all, up to the last step."""

    def add(self, step: int, seconds: float, tokens: int, moved_blocks: int, time: float, stats: EngineStats) -> None:
        groups = stats.kv["groups"]
        self._records.append(
            StepRecord(
                step=step,
                time=time,
                seconds=seconds,
                tokens=tokens,
                running=stats.running,
                waiting=stats.waiting,
                preemptions=stats.preemptions - self._preemptions,
                moved_blocks=moved_blocks,
                kv_bytes={name: sum(group["bytes"][name] for group in groups) for name in groups[0]["bytes"] if name != "total"},
                fragmentation=max(group["fragmentation"] for group in groups),
            )
        )
        self._preemptions = stats.preemptions

    def as_list(self) -> list[dict[str, Any]]:
        """Oldest first."""
        return [dataclasses.asdict(record) for record in self._records]
