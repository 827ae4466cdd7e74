"""What /metrics means: which engine speaks, and which of its names says what.

Names checked against each engine's own source or documentation: vLLM 0.32 (v1/metrics/loggers.py), llama.cpp b11434 (tools/server), SGLang
(docs, Production metrics).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

Read = Callable[["Values"], float | None]
"""One quantity from the values of one scrape."""

_RANKS = frozenset({"tp_rank", "pp_rank", "moe_ep_rank", "pid"})
"""Labels of processes that share the work of one request: each tells the same, so the largest counts."""


class Values:
    """The samples of one scrape, by name: one or several, with different labels."""

    def __init__(self) -> None:
        self._values: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}

    def add(self, name: str, labels: Mapping[str, str], value: float) -> None:
        """NaN and infinities are left out."""
        if math.isfinite(value):
            key = tuple(sorted(item for item in labels.items() if item[0] not in _RANKS))
            series = self._values.setdefault(name, {})
            series[key] = max(value, series.get(key, -math.inf))

    def __bool__(self) -> bool:
        return bool(self._values)

    def of(self, names: Sequence[str]) -> list[float]:
        """All values of the first of ``names`` that there is."""
        return next((list(self._values[name].values()) for name in names if name in self._values), [])


def total(*names: str) -> Read:
    """The sum over label sets (engines, groups) of the first name that there is."""
    return lambda values: sum(found) if (found := values.of(names)) else None


def mean(*names: str) -> Read:
    return lambda values: sum(found) / len(found) if (found := values.of(names)) else None


def largest(*names: str) -> Read:
    return lambda values: max(values.of(names), default=None)


def ratio(above: Read, below: Read) -> Read:
    """None also where ``below`` is 0."""

    def read(values: Values) -> float | None:
        numerator, denominator = above(values), below(values)
        return None if numerator is None or not denominator else numerator / denominator

    return read


def added(*parts: Read) -> Read:
    """None where one is not told."""

    def read(values: Values) -> float | None:
        found = [part(values) for part in parts]
        told = [value for value in found if value is not None]
        return sum(told) if len(told) == len(found) else None

    return read


@dataclass(frozen=True)
class Dialect:
    """How one engine speaks."""

    engine: str
    prefix: str
    """All its names begin with it."""
    reads: Mapping[str, Read]
    """By field of octavo.bench.observe.observation.Sample; what is not here the engine does not say."""
    version_path: str
    version_keys: Sequence[str]
    """Of the JSON that is there."""


DIALECTS: tuple[Dialect, ...] = (
    Dialect(
        "octavo",
        "octavo_",
        {
            "running": total("octavo_num_requests_running"),
            "waiting": total("octavo_num_requests_waiting"),
            "kv_usage": mean("octavo_kv_cache_usage_perc"),
            "kv_efficiency": ratio(total("octavo_kv_bytes_live"), total("octavo_kv_bytes_held")),
            "fragmentation": largest("octavo_kv_fragmentation"),
            "preemptions": total("octavo_num_preemptions_total"),
            "prefix_queries": total("octavo_prefix_cache_queries_total"),
            "prefix_hits": total("octavo_prefix_cache_hits_total"),
            "prompt_tokens": total("octavo_prompt_tokens_total"),
            "generation_tokens": total("octavo_generation_tokens_total"),
            "gc_seconds": added(total("octavo_engine_gc_seconds_total"), total("octavo_server_gc_seconds_total")),
        },
        "/version",
        ("version",),
    ),
    Dialect(
        "vllm",
        "vllm:",
        {
            "running": total("vllm:num_requests_running"),
            "waiting": total("vllm:num_requests_waiting"),
            "kv_usage": mean("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
            "preemptions": total("vllm:num_preemptions_total"),
            "prefix_queries": total("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
            "prefix_hits": total("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
            "prompt_tokens": total("vllm:prompt_tokens_total"),
            "generation_tokens": total("vllm:generation_tokens_total"),
        },
        "/version",
        ("version",),
    ),
    Dialect(
        "llama.cpp",
        "llamacpp:",
        {
            "running": total("llamacpp:requests_processing"),
            "waiting": total("llamacpp:requests_deferred"),
            "kv_usage": mean("llamacpp:kv_cache_usage_ratio"),
            "prefix_queries": added(total("llamacpp:prompt_tokens_total"), total("llamacpp:prompt_tokens_cached_total")),
            "prefix_hits": total("llamacpp:prompt_tokens_cached_total"),
            "prompt_tokens": added(total("llamacpp:prompt_tokens_total"), total("llamacpp:prompt_tokens_cached_total")),
            "generation_tokens": total("llamacpp:tokens_predicted_total"),
        },
        "/props",
        ("build_info",),
    ),
    Dialect(
        "sglang",
        "sglang:",
        {
            "running": total("sglang:num_running_reqs"),
            "waiting": total("sglang:num_queue_reqs"),
            "kv_usage": mean("sglang:token_usage"),
            "preemptions": total("sglang:num_retracted_requests_total"),
            "prefix_queries": total("sglang:prompt_tokens_total"),
            "prefix_hits": total("sglang:cached_tokens_total"),
            "prompt_tokens": total("sglang:prompt_tokens_total"),
            "generation_tokens": total("sglang:generation_tokens_total"),
        },
        "/get_server_info",
        ("version",),
    ),
)


def recognise(text: str) -> Dialect | None:
    """Whose /metrics this is, by the names in it."""
    return next((dialect for dialect in DIALECTS if text.startswith(dialect.prefix) or f"\n{dialect.prefix}" in text), None)


def read_values(text: str, dialect: Dialect) -> tuple[Values, int]:
    """The samples of one scrape, and how many of its lines could not be read."""
    values, broken = Values(), 0
    for line in text.splitlines():
        if not line.startswith(dialect.prefix) or "_bucket{" in line:
            continue
        try:
            for family in text_string_to_metric_families(line + "\n"):
                for sample in family.samples:
                    values.add(sample.name, sample.labels, sample.value)
        except (ValueError, IndexError, KeyError):
            broken += 1
    return values, broken
