"""Run requests through an engine in this process, one step after the other, and note when each token came."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from octavo.bench.stats import TimeAverage
from octavo.engine.step_log import MOST_AT_ONCE
from octavo.errors import OctavoError
from octavo.outputs import EngineCoreOutputs, EngineStats
from octavo.request import EngineCoreRequest


class StepEngine(Protocol):
    """What a benchmark needs of octavo.engine.client.InProcessClient."""

    def add(self, request: EngineCoreRequest) -> None: ...

    def step(self) -> EngineCoreOutputs: ...

    def stats(self) -> EngineStats: ...

    def steps(self, after: int | None) -> dict[str, Any]: ...


@dataclass
class Timeline:
    """One request: when it was handed over, or was due, and when each of its tokens came. Seconds on one monotonic clock."""

    prompt_tokens: int
    submitted: float
    tokens: list[float] = field(default_factory=list)

    @property
    def ttft(self) -> float:
        """Time to the first token."""
        return self.tokens[0] - self.submitted

    @property
    def gaps(self) -> list[float]:
        """Times between neighbouring tokens."""
        return [b - a for a, b in zip(self.tokens, self.tokens[1:], strict=False)]


@dataclass
class Run:
    """All that was measured."""

    timelines: list[Timeline]
    """In the order of submission."""
    seconds: float
    """From the first submission to the last token."""
    python_share: float
    """1 - native time / step time, 0 to 1; the accounts of a step, which its tokens do not wait for, count too."""
    kv_efficiency: float
    """live / held, in bytes, averaged over the time of steps after which anything was held."""
    kv_peak: float
    """The highest live / total."""
    preemptions: int

    @property
    def output_tokens(self) -> int:
        return sum(len(t.tokens) for t in self.timelines)

    @property
    def prompt_tokens(self) -> int:
        return sum(t.prompt_tokens for t in self.timelines)


class _KVMeter:
    """Adds up what an engine's steps held in the KV pool, from its own log (octavo.engine.step_log), which costs a step nothing."""

    def __init__(self, engine: StepEngine) -> None:
        self._engine = engine
        self._last: int = engine.steps(None)["last"]
        self.efficiency = TimeAverage()
        self.peak = 0.0

    def catch_up(self) -> None:
        """Take in the steps since the last time, of which there may be no more than the log remembers."""
        while steps := self._engine.steps(self._last)["steps"]:
            for step in steps:
                if step.kv_held_bytes:
                    efficiency = step.kv_live_bytes / step.kv_held_bytes
                    self.efficiency.add(efficiency, step.seconds)
                    self.peak = max(self.peak, efficiency * step.kv_usage)
            self._last = steps[-1].step


class StepError(OctavoError):
    """A request failed during a benchmark."""


class Driver:
    """Runs one benchmark after the other on an engine that nobody else steps."""

    def __init__(
        self, engine: StepEngine, clock: Callable[[], float] = time.perf_counter, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._sleep = sleep
        self._num_steps = 0
        self._stats = EngineStats()
        """After the last run."""

    @property
    def allocations_after_ready(self) -> int:
        """Times that this process took native memory from when the engine was ready to the end of the last run."""
        return self._stats.resources.allocations - self._stats.resources_at_ready.allocations

    def run(
        self, requests: Iterable[EngineCoreRequest], max_concurrency: int | None = None, arrivals: Sequence[float] | None = None
    ) -> Run:
        """Hand each request over when it comes, or when ``max_concurrency`` allows, and step until all are done.

        ``arrivals``: seconds after the start, rising, one a request, from which its times count. None: they come as soon as they may, and
        each one's times count from when it was handed over.

        Raises StepError when a request fails; the engine is then of no more use.
        """
        running: dict[str, Timeline] = {}
        timelines: list[Timeline] = []
        meter, before = _KVMeter(self._engine), self._engine.stats()
        now = start = self._clock()
        dues = itertools.repeat(start) if arrivals is None else (start + arrival for arrival in arrivals)
        coming = deque(zip(requests, dues, strict=False))
        while coming or running:
            while coming and (max_concurrency is None or len(running) < max_concurrency):
                request, due = coming[0]
                if due > now:
                    break
                coming.popleft()
                timelines.append(self._submit(request, self._clock() if arrivals is None else due))
                running[request.request_id] = timelines[-1]
            if not running:
                self._sleep(coming[0][1] - now)
                now = self._clock()
                continue
            now = self._step(running)
            if self._num_steps % MOST_AT_ONCE == 0:
                meter.catch_up()
        meter.catch_up()
        self._stats = after = self._engine.stats()
        share, preemptions = _python_share(before, after), after.preemptions - before.preemptions
        return Run(timelines, now - start, share, meter.efficiency.value, meter.peak, preemptions)

    def _submit(self, request: EngineCoreRequest, submitted: float) -> Timeline:
        self._engine.add(request)
        return Timeline(len(request.prompt_token_ids), submitted)

    def _step(self, running: dict[str, Timeline]) -> float:
        """One step; returns when it ended."""
        outputs = self._engine.step()
        self._num_steps += 1
        now = self._clock()
        for output in outputs.outputs:
            if output.error is not None:
                raise StepError(f"request {output.request_id}: {output.error}")
            running[output.request_id].tokens.extend([now] * len(output.new_token_ids))
            if output.finish_reason is not None:
                del running[output.request_id]
        return now


def _python_share(before: EngineStats, after: EngineStats) -> float:
    seconds = after.step_seconds - before.step_seconds
    return 1 - (after.native_seconds - before.native_seconds) / seconds if seconds > 0 else 0.0
