"""How the front reaches an engine: in this process (``InProcessClient``) or in one of its own (octavo.engine.remote)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from octavo.config import EngineArgs
from octavo.engine.info import EngineInfo
from octavo.engine.kv_report import with_lists
from octavo.outputs import EngineCoreOutputs, EngineStats
from octavo.request import EngineCoreRequest

if TYPE_CHECKING:
    from octavo.engine.core import EngineCore

STALL_SECONDS = 60.0
"""An engine with work that has not ended a step for so long is stuck."""


class EngineState(StrEnum):
    """What an engine is doing."""

    IDLE = "idle"
    BUSY = "busy"
    STUCK = "stuck"
    DEAD = "dead"


@dataclass(frozen=True)
class Health:
    """An engine's state as its client sees it."""

    state: EngineState
    seconds_since_step: float
    """Since the last step ended, or since the start when there was none."""
    open_requests: int
    reason: str = ""
    """Why it is dead."""


class EngineClient(Protocol):
    """What both kinds share. ``add`` and ``abort`` return at once; requests are checked already (octavo.engine.processor)."""

    @property
    def info(self) -> EngineInfo:
        """Facts about the engine, once it is ready."""

    def add(self, request: EngineCoreRequest) -> None:
        """Hand over a request. Raises EngineDeadError."""

    def abort(self, request_ids: list[str]) -> None:
        """Drop requests; unknown ids are ignored. Nothing more comes for them but what is on its way."""

    def health(self, stall_seconds: float = STALL_SECONDS) -> Health:
        """Dead, stuck, busy or idle. Never blocks."""

    def shutdown(self) -> None:
        """End the engine; its memory returns. Idempotent."""


class Progress:
    """Follows what is open and when the engine last moved: the facts of ``Health``."""

    def __init__(self) -> None:
        self._open: set[str] = set()
        self._last_step = self._moved = time.monotonic()

    def added(self, request_id: str) -> None:
        if not self._open:
            self._moved = time.monotonic()
        self._open.add(request_id)

    def aborted(self, request_ids: list[str]) -> None:
        self._open.difference_update(request_ids)

    def stepped(self, outputs: EngineCoreOutputs) -> None:
        self._last_step = self._moved = time.monotonic()
        self._open.difference_update(o.request_id for o in outputs.outputs if o.finish_reason is not None)

    def health(self, stall_seconds: float, dead: str = "") -> Health:
        now = time.monotonic()
        if dead:
            state = EngineState.DEAD
        elif not self._open:
            state = EngineState.IDLE
        else:
            state = EngineState.STUCK if now - self._moved > stall_seconds else EngineState.BUSY
        return Health(state, now - self._last_step, len(self._open), dead)


class InProcessClient:
    """An engine in this process; whoever holds it calls ``step`` until nothing is unfinished. Not for use by several threads."""

    def __init__(self, args: EngineArgs) -> None:
        from octavo.engine.core import EngineCore

        self._core: EngineCore = EngineCore(args)
        self._progress = Progress()

    @property
    def info(self) -> EngineInfo:
        return self._core.info

    @property
    def has_unfinished_requests(self) -> bool:
        return self._core.has_unfinished_requests

    def add(self, request: EngineCoreRequest) -> None:
        self._core.add_request(request)
        self._progress.added(request.request_id)

    def abort(self, request_ids: list[str]) -> None:
        self._core.abort(request_ids)
        self._progress.aborted(request_ids)

    def step(self) -> EngineCoreOutputs:
        """Run one step."""
        outputs = self._core.step()
        self._progress.stepped(outputs)
        return outputs

    def stats(self) -> EngineStats:
        """Gauges as they stand, and totals since the start."""
        return self._core.stats()

    def steps(self, after: int | None = None) -> dict[str, Any]:
        """What each step did, of those after number ``after``: see EngineCore.steps."""
        return self._core.steps(after)

    def kv_usage(self) -> dict[str, Any]:
        """The KV pool as it stands, and the last steps; see octavo.engine.kv_report."""
        return with_lists(self._core.kv_usage())

    def reset_prefix_cache(self) -> int:
        """Forget all cached blocks, and say how many."""
        return self._core.reset_prefix_cache()

    def health(self, stall_seconds: float = STALL_SECONDS) -> Health:
        return self._progress.health(stall_seconds)

    def shutdown(self) -> None:
        self._core.close()
