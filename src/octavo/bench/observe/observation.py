"""What a server told of itself during a load run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from octavo.engine.step_log import StepRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """/metrics at one time; None: the engine does not say. Counts since the server's start are totals."""

    time: float
    """Seconds after the run's start."""
    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None
    """Share of the KV pool in use, 0 to 1."""
    kv_efficiency: float | None = None
    """Live / held: what of it holds tokens; None also where nothing is held."""
    fragmentation: float | None = None
    preemptions: float | None = None
    prefix_queries: float | None = None
    """Prompt tokens looked up in the prefix cache, and found."""
    prefix_hits: float | None = None
    prompt_tokens: float | None = None
    """Computed, or found in the prefix cache."""
    generation_tokens: float | None = None
    gc_seconds: float | None = None
    """Of the engine's and the server's process, in Python's garbage collector."""


@dataclass(kw_only=True)
class Observation:
    """All that was seen, on the clock of the load run."""

    engine: str | None = None
    """"octavo", "vllm", "llama.cpp", "sglang"; None: not recognised, or no /metrics."""
    version: str | None = None
    samples: list[Sample] = field(default_factory=list)
    steps: list[StepRecord] = field(default_factory=list)
    """In order; their ``time`` is in seconds after the run's start. Octavo's alone."""
    steps_until: float = math.inf
    """When the log of steps was last read: later ones are not in it."""
    lost_steps: int = 0
    """Between the first and the last, that nobody saw."""
    facts: dict[str, Any] | None = None
    """What GET /admin/engine says."""
    clock_offset: float = 0.0
    """Seconds that the server's clock is ahead of the client's, and how far off that may be."""
    clock_error: float = 0.0
    notes: list[str] = field(default_factory=list)
    """What could not be seen, and why, a line each."""
    partial: bool = False
    """Something that there should be is missing."""

    def within(self, seconds: float) -> list[Sample]:
        """The samples of the run's window, 0 to ``seconds``."""
        return [sample for sample in self.samples if 0 <= sample.time <= seconds]

    def steps_within(self, seconds: float) -> list[StepRecord]:
        """The steps that ended in the window."""
        return [step for step in self.steps if 0 <= step.time <= seconds]

    def grown(self, name: str) -> float | None:
        """How much a total grew from the last sample before the run to the last of all; None where it is not told."""
        told = [(sample.time, getattr(sample, name)) for sample in self.samples if getattr(sample, name) is not None]
        if not told:
            return None
        before = [value for time, value in told if time <= 0]
        growth: float = told[-1][1] - (before[-1] if before else told[0][1])
        return max(growth, 0.0)


SERIES: Sequence[str] = tuple(f.name for f in fields(Sample) if f.name != "time")
"""What a Sample may tell."""
