"""The engine's own gauges and counters, read from its last EngineStats when Prometheus asks: nothing is done per step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from octavo.metrics.requests import PREFIX
from octavo.outputs import EngineStats, KVWrites, ResourceCounts

_GAUGES: tuple[tuple[str, str, Callable[[EngineStats], float]], ...] = (
    ("num_requests_running", "Sequences in the running batch.", lambda s: s.running),
    ("num_requests_waiting", "Sequences waiting for a place in the batch.", lambda s: s.waiting),
    ("kv_cache_usage_perc", "Share of the KV pool's blocks that running requests hold, 0 to 1.", lambda s: s.kv.get("held_of_total", 0.0)),
    (
        "kv_cache_token_usage_perc",
        "Share of the KV pool's slots that hold a token some running request attends to, 0 to 1.",
        lambda s: s.kv.get("live_of_total", 0.0),
    ),
    (
        "step_prediction_margin_seconds",
        "By how much steps exceed their prediction at a high percentile (--itl-slo-ms plans with it).",
        lambda s: s.prediction_margin_s,
    ),
    ("prefix_cache_disk_bytes", "Files in the folder of the prefix cache.", lambda s: s.disk_bytes),
    ("kv_swap_bytes", "Host memory that holds KV of preempted requests.", lambda s: s.swap_bytes),
)
_COUNTERS: tuple[tuple[str, str, Callable[[EngineStats], float]], ...] = (
    ("prompt_tokens", "Prompt tokens computed, or found in the prefix cache.", lambda s: s.prompt_tokens),
    ("generation_tokens", "Tokens generated.", lambda s: s.generation_tokens),
    ("num_preemptions", "Times a running request lost its blocks to others.", lambda s: s.preemptions),
    ("recomputed_tokens", "Tokens computed again after a preemption.", lambda s: s.recomputed_tokens),
    ("kv_swapped_out_blocks", "KV blocks of preempted requests saved to host memory.", lambda s: s.swapped_out_blocks),
    ("kv_swapped_in_blocks", "KV blocks of preempted requests loaded from host memory.", lambda s: s.swapped_in_blocks),
    ("kv_moved_blocks", "KV blocks moved by compaction.", lambda s: s.kv_moved_blocks),
    ("prefix_cache_queries", "Prompt tokens looked up in the prefix cache.", lambda s: s.prefix_queries),
    ("prefix_cache_hits", "Prompt tokens found in the prefix cache.", lambda s: s.prefix_hits),
    ("prefix_cache_disk_hits", "Tokens read from the prefix cache on disk rather than computed.", lambda s: s.disk_hits),
    ("prefix_cache_disk_spilled_blocks", "KV blocks written to the prefix cache on disk.", lambda s: s.disk_spilled_blocks),
    ("prefix_cache_disk_dropped_blocks", "KV blocks not written: the disk was too slow, or failed.", lambda s: s.disk_dropped_blocks),
    ("prefix_cache_disk_corrupt_files", "Damaged files met in the prefix cache on disk.", lambda s: s.disk_corrupt_files),
    ("engine_steps", "Steps run.", lambda s: s.steps),
    ("engine_step_seconds", "Time in steps.", lambda s: s.step_seconds),
    (
        "engine_predicted_step_seconds",
        "Of the steps predicted (--itl-slo-ms, --ttft-slo-ms): predictions.",
        lambda s: s.predicted_seconds,
    ),
    ("engine_predicted_steps_observed_seconds", "Of the same steps: how long they took.", lambda s: s.observed_seconds),
    (
        "engine_step_prediction_error_seconds",
        "Of the same steps: errors without sign, added.",
        lambda s: s.prediction_error_seconds,
    ),
    ("engine_native_seconds", "Of it, time in native code.", lambda s: s.native_seconds),
    ("engine_schedule_seconds", "Of it, time to plan them.", lambda s: s.schedule_seconds),
    ("engine_transfer_seconds", "Of it, time to move KV blocks: swap space, disk, compaction.", lambda s: s.transfer_seconds),
    ("engine_gc_seconds", "Time of the engine process in Python's garbage collector.", lambda s: s.gc_seconds),
    ("engine_idle_seconds", "Time of the engine without a request, up to the last one that came.", lambda s: s.idle_seconds),
)
_RESOURCES: tuple[tuple[str, str, Callable[[ResourceCounts], int]], ...] = (
    ("native_allocations", "Times that the process took memory for weights, KV, programs, sampling, or it grew", lambda r: r.allocations),
    ("native_allocated_bytes", "Bytes that the process took so", lambda r: r.allocated_bytes),
    ("programs_built", "Programs that the process built", lambda r: r.programs),
    ("threads_started", "Compute threads that the process started", lambda r: r.threads),
)
_KV_UNITS = {
    "slots": "KV slots (one token's place in all layers of the group)",
    "blocks": "KV blocks",
    "bytes": "KV bytes",
}
_KV_RATIOS = {
    "efficiency": "Live slots / held slots, 0 to 1; 1 when nothing is held.",
    "fragmentation": "1 - largest free run / free slots; 0 where runs do not matter.",
}


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
        yield self._oldest_waiting(stats)
        for name, doc, value in _COUNTERS:
            yield self._labelled(CounterMetricFamily(PREFIX + name, doc, labels=["model_name"]), value(stats))
        yield from self._resources(stats)
        yield from self._pools(stats.kv.get("groups", ()))
        yield from self._kv_writes(stats.kv_writes)
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

    def _oldest_waiting(self, stats: EngineStats) -> Metric:
        doc = "Longest wait of a request; reason: why the head of the queue waits (seats, blocks, run, tokens, pace, in_flight, disk)."
        family = GaugeMetricFamily(PREFIX + "oldest_waiting_seconds", doc, labels=["model_name", "reason"])
        family.add_metric([self._model_name, stats.waiting_reason or "none"], stats.oldest_waiting_s)
        return family

    def _resources(self, stats: EngineStats) -> Iterator[Metric]:
        """What was made before the engine was ready, and what while it served: which is to be nothing."""
        for name, doc, value in _RESOURCES:
            family = CounterMetricFamily(PREFIX + name, f"{doc}: before the engine was ready, and since.", labels=["model_name", "when"])
            family.add_metric([self._model_name, "start"], value(stats.resources_at_ready))
            family.add_metric([self._model_name, "serving"], value(stats.resources) - value(stats.resources_at_ready))
            yield family

    def _pools(self, groups: list[dict[str, Any]]) -> Iterator[Metric]:
        """Each layer group's pool by itself, in slots, blocks and bytes: what they are used for, as octavo.kv.usage tells it apart."""
        for unit, doc in _KV_UNITS.items():
            for state in next((group["slots"] for group in groups), ()):
                name = f"kv_{unit}" if state == "total" else f"kv_{unit}_{state}"
                yield self._by_group(name, f"{doc}: {state}.", {g["name"]: _in_unit(g, unit, state) for g in groups})
        for name, doc in _KV_RATIOS.items():
            yield self._by_group(f"kv_{name}", doc, {group["name"]: group[name] for group in groups})

    def _kv_writes(self, writes: KVWrites | None) -> Iterator[Metric]:
        """What became of 8-bit K and V as they were written, by layer; nothing of wider types."""
        if writes is None:
            return
        for name, doc, k, v in (
            ("written", "K or V vectors (of one token and head) written with 8-bit codes.", writes.vectors, writes.vectors),
            ("guarded", "Of them, those that got a scale of their own under kv_scales guarded.", writes.guarded_k, writes.guarded_v),
            ("clipped", "Numbers beyond the type's range under kv_scales static.", writes.clipped_k, writes.clipped_v),
        ):
            unit = "numbers" if name == "clipped" else "vectors"
            family = CounterMetricFamily(f"{PREFIX}kv_{name}_{unit}", doc, labels=["model_name", "layer", "part"])
            for part, counts in (("k", k), ("v", v)):
                for layer, count in enumerate(counts):
                    family.add_metric([self._model_name, str(layer), part], count)
            yield family

    def _by_group(self, name: str, doc: str, values: Mapping[str, float]) -> Metric:
        family = GaugeMetricFamily(PREFIX + name, doc, labels=["model_name", "group"])
        for group, value in values.items():
            family.add_metric([self._model_name, group], value)
        return family


def _in_unit(group: Mapping[str, Any], unit: str, state: str) -> float:
    """Blocks may be fractions: of a block whose slots are in different states, each has its share."""
    if unit == "blocks":
        blocks: float = group["slots"][state] / group["block_size"]
        return blocks
    count: float = group[unit][state]
    return count
