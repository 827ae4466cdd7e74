"""Run requests through an engine in this process, one step after the other, and note when each token came."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
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
    """One request: when it was handed over, and when each of its tokens came. Seconds on one monotonic clock."""

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

    def __init__(self, engine: StepEngine, clock: Callable[[], float] = time.perf_counter) -> None:
        self._engine = engine
        self._clock = clock
        self._stats = EngineStats()

    def run(self, requests: Iterable[EngineCoreRequest], max_concurrency: int | None = None) -> Run:
        """Hand ``requests`` over at once, or as many as ``max_concurrency`` allows, and step until all are done.

        Raises StepError when a request fails; the engine is then of no more use.
        """
        waiting = iter(requests)
        running: dict[str, Timeline] = {}
        timelines: list[Timeline] = []
        meter, before = _KVMeter(), self._stats
        start = now = self._clock()
        while True:
            while max_concurrency is None or len(running) < max_concurrency:
                if (request := next(waiting, None)) is None:
                    break
                timelines.append(self._submit(request))
                running[request.request_id] = timelines[-1]
            if not running:
                break
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

    def _submit(self, request: EngineCoreRequest) -> Timeline:
        timeline = Timeline(len(request.prompt_token_ids), self._clock())
        self._engine.add(request)
        return timeline

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
