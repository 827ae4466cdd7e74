"""From a run's steps to its measures: when the pool was full, and where its slots were meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PARTS = ("held", "live", "tail", "reserved", "stale", "cached", "free", "external")


@dataclass(frozen=True, kw_only=True)
class StepSample:
    """One step. The state of pool and queue is that after it, which /metrics shows too, but for what says otherwise."""

    start: float
    """Seconds since the run's start."""
    seconds: float
    running: int
    context_tokens: int
    """Of all running requests."""
    parts: Mapping[str, float]
    """PARTS, as shares of the pool's bytes."""
    fragmentation: float
    held_meanwhile: float
    """Shares of the pool while the step ran: held, its tokens' slots with it, and live, in which these are not yet."""
    live_meanwhile: float
    started_full: bool
    """Whether, once it was planned, the head of the queue waited for KV: tokens and seats were left, and still it could not start."""
    output_tokens: int
    """That it brought."""
    ended: int
    """Requests that it ended."""
    preemptions: int


@dataclass(frozen=True)
class Measures:
    """Averages over the window, each step counting for the time it took."""

    kv_efficiency: float
    """live / held."""
    live_of_total: float
    waste: dict[str, float]
    """tail, reserved, stale and external, as shares of the pool."""
    fragmentation: float
    concurrent: float
    """Running requests."""
    output_tok_s: float
    preemptions: int


@dataclass(frozen=True)
class Window:
    """The steps [first, last] that count."""

    first: int
    last: int
    saturated: bool
    """False: the pool was never full long enough, and all steps count."""

    def of(self, samples: Sequence[StepSample]) -> Sequence[StepSample]:
        """Those that count."""
        return samples[self.first : self.last + 1]


def find_window(samples: Sequence[StepSample]) -> Window:
    """Saturation, warm-up and drain cut off.

    It begins once the pool has been full (the head of the queue waits for KV, and for nothing else) and as many requests have ended as
    ran when it was first full: those that started together, all young, are then outnumbered. It ends when the head waits for KV for the
    last time.
    """
    full = [i for i, sample in enumerate(samples) if sample.started_full]
    if full:
        turnover, ended = samples[full[0]].running, 0
        for i, sample in enumerate(samples[: full[-1] + 1]):
            if i >= full[0] and ended >= turnover:
                return Window(i, full[-1], True)
            ended += sample.ended
    return Window(0, len(samples) - 1, False)


def measure(samples: Sequence[StepSample], window: Window) -> Measures:
    """Averages over a window that has a step of some length at least."""
    chosen = window.of(samples)
    parts = mean_parts(samples, window)
    return Measures(
        kv_efficiency=parts["live"] / parts["held"] if parts["held"] else 1.0,
        live_of_total=parts["live"],
        waste={name: parts[name] for name in ("tail", "reserved", "stale", "external")},
        fragmentation=_mean(chosen, lambda sample: sample.fragmentation),
        concurrent=_mean(chosen, lambda sample: sample.running),
        output_tok_s=sum(sample.output_tokens for sample in chosen) / sum(sample.seconds for sample in chosen),
        preemptions=sum(sample.preemptions for sample in chosen),
    )


def mean_parts(samples: Sequence[StepSample], window: Window) -> dict[str, float]:
    """PARTS, averaged over the window."""
    chosen = window.of(samples)
    return {name: _mean(chosen, lambda sample: sample.parts[name]) for name in PARTS}  # noqa: B023 (called at once)


def mean_length(samples: Sequence[StepSample], window: Window) -> float:
    """Tokens of a running request, averaged over requests and time."""
    chosen = window.of(samples)
    running = _mean(chosen, lambda sample: sample.running)
    return _mean(chosen, lambda sample: sample.context_tokens) / running if running else 0.0


def efficiency_meanwhile(samples: Sequence[StepSample], window: Window) -> float:
    """live / held if a token's slot is waste until its step is over: what the accounting says while steps run."""
    chosen = window.of(samples)
    held = _mean(chosen, lambda sample: sample.held_meanwhile)
    return _mean(chosen, lambda sample: sample.live_meanwhile) / held if held else 1.0


def shares(groups: Sequence[Mapping[str, Any]]) -> tuple[dict[str, float], float]:
    """PARTS as shares of the pool's bytes, and its fragmentation (groups weighted by their free bytes), from octavo.kv.usage's dicts."""
    total = sum(group["bytes"]["total"] for group in groups)
    parts = {name: sum(group["bytes"][name] for group in groups) / total for name in PARTS}
    free = sum(group["bytes"]["free"] for group in groups)
    fragmentation = sum(group["fragmentation"] * group["bytes"]["free"] for group in groups) / free if free else 0.0
    return parts, fragmentation


def _mean(samples: Sequence[StepSample], value: Callable[[StepSample], float]) -> float:
    """Over time: each step counts for as long as it took."""
    return sum(value(sample) * sample.seconds for sample in samples) / sum(sample.seconds for sample in samples)
