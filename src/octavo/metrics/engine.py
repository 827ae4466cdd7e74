"""The engine's own gauges and counters, read from its last EngineStats when Prometheus asks: nothing is done per step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from octavo.metrics.requests import PREFIX
from octavo.outputs import EngineStats

_GAUGES: tuple[tuple[str, str, Callable[[EngineStats], float]], ...] = (
    ("num_requests_running", "Sequences in the running batch.", lambda s: s.running),
    ("num_requests_waiting", "Sequences waiting for a place in the batch.", lambda s: s.waiting),
    ("oldest_waiting_seconds", "How long the first of the waiting has waited.", lambda s: s.oldest_waiting_s),
    ("kv_cache_usage_perc", "Share of the KV pool's blocks that running requests hold, 0 to 1.", lambda s: s.kv.get("held_of_total", 0.0)),
    (
        "kv_cache_token_usage_perc",
        "Share of the KV pool's slots that hold a token some running request attends to, 0 to 1.",
        lambda s: s.kv.get("live_of_total", 0.0),
    ),
    ("kv_cache_efficiency", "Live slots / held slots, 0 to 1, in bytes over all groups.", lambda s: s.kv.get("efficiency", 1.0)),
)
_COUNTERS: tuple[tuple[str, str, Callable[[EngineStats], float]], ...] = (
    ("prompt_tokens", "Prompt tokens computed, or found in the prefix cache.", lambda s: s.prompt_tokens),
    ("generation_tokens", "Tokens generated.", lambda s: s.generation_tokens),
    ("num_preemptions", "Times a running request lost its blocks to others.", lambda s: s.preemptions),
    ("recomputed_tokens", "Tokens computed again after a preemption.", lambda s: s.recomputed_tokens),
    ("prefix_cache_queries", "Prompt tokens looked up in the prefix cache.", lambda s: s.prefix_queries),
    ("prefix_cache_hits", "Prompt tokens found in the prefix cache.", lambda s: s.prefix_hits),
    ("engine_steps", "Steps run.", lambda s: s.steps),
    ("engine_step_seconds", "Time in steps.", lambda s: s.step_seconds),
    ("engine_native_seconds", "Of it, time in native code.", lambda s: s.native_seconds),
)


class EngineCollector(Collector):
    """Turns an engine's stats and facts into metrics at each scrape."""

    def __init__(
        self, model_name: str, stats: Callable[[], EngineStats], facts: Mapping[str, dict[str, str]], phases: Mapping[str, float]
    ) -> None:
        """
        Args:
            facts: name of an info metric → its labels, e.g. ``engine`` → the instruction set chosen.
            phases: seconds per phase of starting.
        """
        self._model_name = model_name
        self._stats = stats
        self._facts = facts
        self._phases = phases

    def collect(self) -> Iterator[Metric]:
        """All metrics as they stand."""
        stats = self._stats()
        for name, doc, value in _GAUGES:
            yield self._labelled(GaugeMetricFamily(PREFIX + name, doc, labels=["model_name"]), value(stats))
        for name, doc, value in _COUNTERS:
            yield self._labelled(CounterMetricFamily(PREFIX + name, doc, labels=["model_name"]), value(stats))
        yield from self._pools(stats.kv.get("groups", ()))
        for name, labels in self._facts.items():
            yield InfoMetricFamily(PREFIX + name, f"Facts about the {name.replace('_', ' ')}.", value=labels)
        phases = GaugeMetricFamily(PREFIX + "startup_phase_seconds", "Time of each phase of starting.", labels=["model_name", "phase"])
        for phase, seconds in self._phases.items():
            phases.add_metric([self._model_name, phase], seconds)
        yield phases

    def _labelled(self, family: Any, value: float) -> Metric:
        family.add_metric([self._model_name], value)
        metric: Metric = family
        return metric

    def _pools(self, groups: list[dict[str, Any]]) -> Iterator[Metric]:
        """Each layer group's pool by itself: what the slots are used for, as octavo.kv.usage tells them apart."""
        labels = ["model_name", "group", "state"]
        slots = GaugeMetricFamily(PREFIX + "kv_cache_slots", "KV slots (one token's place in all layers of a group).", labels=labels)
        sizes = GaugeMetricFamily(PREFIX + "kv_cache_bytes", "The same in bytes.", labels=labels)
        for group in groups:
            for state, count in group["slots"].items():
                slots.add_metric([self._model_name, group["name"], state], count)
            for state, size in group["bytes"].items():
                sizes.add_metric([self._model_name, group["name"], state], size)
        yield slots
        yield sizes
