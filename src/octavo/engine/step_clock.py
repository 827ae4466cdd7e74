"""Where the time of steps goes, and the time between them."""

from __future__ import annotations

import time
from dataclasses import dataclass

from octavo.engine.garbage import GARBAGE
from octavo.outputs import EngineStats
from octavo.scheduler.output import RunnerOutput


@dataclass(slots=True)
class StepTimes:
    """How a step's time, and the time before it, was spent; see octavo.engine.step_log, StepRecord."""

    seconds: float
    schedule_seconds: float
    transfer_seconds: float
    native_seconds: float
    gc_seconds: float
    idle_before: float
    gc_before: float


class StepClock:
    """Followed by one engine: ``woken`` when a request comes; ``begin``, ``planned``, ``end``, ``accounted`` in each step."""

    def __init__(self) -> None:
        GARBAGE.start()
        self._step_seconds = self._schedule_seconds = self._transfer_seconds = self._idle_seconds = 0.0
        self._idle_since: float | None = time.perf_counter()
        self._idle_before = 0.0
        self._began = self._planned = 0.0
        self._first_garbage = self._garbage = GARBAGE.seconds
        self._garbage_before = 0.0

    def woken(self) -> None:
        """A request came."""
        if self._idle_since is not None:
            self._idle_before += time.perf_counter() - self._idle_since
            self._idle_since = None

    def begin(self) -> None:
        garbage = GARBAGE.seconds
        self._garbage_before, self._garbage = garbage - self._garbage, garbage
        self._began = time.perf_counter()

    def planned(self) -> None:
        self._planned = time.perf_counter()

    def end(self, executed: RunnerOutput, busy: bool) -> StepTimes:
        """The step is over. ``busy``: another one has something to do."""
        now, garbage = time.perf_counter(), GARBAGE.seconds
        times = StepTimes(
            now - self._began,
            self._planned - self._began,
            executed.transfer_seconds,
            executed.native_seconds,
            garbage - self._garbage,
            self._idle_before,
            self._garbage_before,
        )
        self._step_seconds += times.seconds
        self._schedule_seconds += times.schedule_seconds
        self._transfer_seconds += times.transfer_seconds
        self._idle_seconds += times.idle_before
        self._idle_since, self._idle_before, self._garbage = None if busy else now, 0.0, garbage
        return times

    def accounted(self, seconds: float) -> None:
        """So long the last step's accounts took: they are part of what steps cost, though its tokens did not wait for them."""
        self._step_seconds += seconds

    def tell(self, stats: EngineStats) -> None:
        """The totals since the start."""
        stats.step_seconds, stats.schedule_seconds = self._step_seconds, self._schedule_seconds
        stats.transfer_seconds, stats.idle_seconds = self._transfer_seconds, self._idle_seconds
        stats.gc_seconds = GARBAGE.seconds - self._first_garbage
