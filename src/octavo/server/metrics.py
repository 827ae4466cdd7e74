"""GET /metrics: everything measured, in Prometheus's text format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector
from starlette.responses import Response

from octavo.engine.garbage import GARBAGE
from octavo.metrics.engine import EngineCollector
from octavo.metrics.requests import PREFIX, RequestMetrics
from octavo.server.serving import ServedEngine


class MetricsRoute:
    """One application's metrics, in a registry of its own."""

    def __init__(self, engine: ServedEngine, model_name: str, phases: Mapping[str, float]) -> None:
        self.registry = CollectorRegistry()
        self.requests = RequestMetrics(self.registry, model_name)
        self.registry.register(EngineCollector(model_name, lambda: engine.stats, _facts(engine), phases))
        ProcessCollector(registry=self.registry)
        GARBAGE.start()
        self.registry.register(_PausesCollector())

    def show(self) -> Response:
        """All metrics as they stand."""
        return Response(generate_latest(self.registry), media_type=CONTENT_TYPE_LATEST)


class _PausesCollector(Collector):
    """What holds up the process that answers HTTP."""

    def collect(self) -> Iterator[Metric]:
        seconds = CounterMetricFamily(PREFIX + "server_gc_seconds", "Time of the HTTP process in Python's garbage collector.")
        seconds.add_metric([], GARBAGE.seconds)
        yield seconds


def _facts(engine: ServedEngine) -> dict[str, dict[str, str]]:
    info, args = engine.info, engine.args
    return {
        "engine": {"isa": info.isa, "threads": str(info.num_threads), "numerics_id": info.numerics_id},
        "cache_config": {
            "block_size": str(info.block_size),
            "num_gpu_blocks": "+".join(map(str, info.num_blocks)),
            "pool_tokens": str(info.pool_tokens),
            "pool_bytes": str(info.pool_bytes),
            "cache_dtype": info.kv_cache_dtype,
            "kv_scales": info.kv_scales,
            "enable_prefix_caching": str(args.enable_prefix_caching),
        }
        | {f"kv_{seam}": policy for seam, policy in args.kv_policies().items()},
    }
