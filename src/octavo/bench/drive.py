"""Run requests through an engine in this process, one step after the other, and note when each token came."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from octavo.bench.stats import TimeAverage
from octavo.errors import OctavoError
from octavo.outputs import EngineCoreOutputs, EngineStats
from octavo.request import EngineCoreRequest


class StepEngine(Protocol):
    """What a benchmark needs of octavo.engine.client.InProcessClient."""

    def add(self, request: EngineCoreRequest) -> None: ...

    def step(self) -> EngineCoreOutputs: ...


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
    """1 - native time / step time, 0 to 1."""
    kv_efficiency: float
    """live / held, in bytes, averaged over the time in which anything was held."""
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
    """Follows the engine's KV accounting (octavo.kv.usage) from step to step."""

    def __init__(self) -> None:
        self.efficiency = TimeAverage()
        self.peak = 0.0

    def note(self, stats: EngineStats, seconds: float) -> None:
        if stats.kv["held_of_total"] > 0:
            self.efficiency.add(stats.kv["efficiency"], seconds)
        self.peak = max(self.peak, stats.kv["live_of_total"])


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
        self._stats = EngineStats()

    @property
    def allocations_after_ready(self) -> int:
        """Times that this process took native memory from when the engine was ready to the end of its last step."""
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
        meter, before = _KVMeter(), self._stats
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
            previous, now = now, self._step(running)
            meter.note(self._stats, now - previous)
        return Run(
            timelines,
            now - start,
            _python_share(before, self._stats),
            meter.efficiency.value,
            meter.peak,
            self._stats.preemptions - before.preemptions,
        )

    def _submit(self, request: EngineCoreRequest, submitted: float) -> Timeline:
        self._engine.add(request)
        return Timeline(len(request.prompt_token_ids), submitted)

    def _step(self, running: dict[str, Timeline]) -> float:
        """One step; returns when it ended."""
        outputs = self._engine.step()
        now = self._clock()
        for output in outputs.outputs:
            if output.error is not None:
                raise StepError(f"request {output.request_id}: {output.error}")
            running[output.request_id].tokens.extend([now] * len(output.new_token_ids))
            if output.finish_reason is not None:
                del running[output.request_id]
        self._stats = outputs.stats or self._stats
        return now


def _python_share(before: EngineStats, after: EngineStats) -> float:
    seconds = after.step_seconds - before.step_seconds
    return 1 - (after.native_seconds - before.native_seconds) / seconds if seconds > 0 else 0.0
