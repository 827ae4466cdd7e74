"""What the prefix cache costs when nothing is ever found, with a real model: prompts share nothing, and the pool evicts all the time.

usage: python benchmarks/kv/bench_prefix_cache.py [MODEL]

For each kind of cache, rounds in turn. Of the step loop: the share spent on looking up, hashing, inserting, evicting and, for the tier on
disk, copying out, in CPU time of that thread (it is to be under 1 %). Tokens per second, against those without a cache, show what
the writer's thread costs besides, and are noisier.
"""

from __future__ import annotations

import contextlib
import functools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

from octavo.config import EngineArgs
from octavo.engine.core import EngineCore
from octavo.kv.block_pool import BlockPool
from octavo.kv.kv_cache_manager import KVCacheManager
from octavo.request import EngineCoreRequest
from octavo.runner import model_runner
from octavo.sampling_params import SamplingParams

ROUNDS = 3
REQUESTS = 10
PROMPT = 512
OUTPUT = 32
PARTS: tuple[tuple[Any, str], ...] = (
    (KVCacheManager, "get_computed_blocks"),
    (KVCacheManager, "_hash_blocks"),
    (BlockPool, "cache"),
    (BlockPool, "_evict"),
    (model_runner, "carry_out"),
)


class Stopwatch:
    """Time in any of PARTS, which may call each other."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._inside = False

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*args: Any) -> Any:
            if self._inside:
                return function(*args)
            self._inside, start = True, time.thread_time()
            try:
                return function(*args)
            finally:
                self._inside = False
                self.seconds += time.thread_time() - start

        return timed

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        originals = [getattr(owner, name) for owner, name in PARTS]
        for (owner, name), original in zip(PARTS, originals, strict=True):
            setattr(owner, name, self.wrap(original))
        try:
            yield
        finally:
            for (owner, name), original in zip(PARTS, originals, strict=True):
                setattr(owner, name, original)


def serve(core: EngineCore, number: int) -> tuple[float, float]:
    """One round of requests that nobody has seen: tokens per second, and the share of the loop's time that went into the cache."""
    params = SamplingParams(max_tokens=OUTPUT, temperature=0.0, ignore_eos=True, seed=0)
    for i in range(REQUESTS):
        prompt = [(1 + 31 * number + 7 * i + 13 * k * (1 + i)) % 40_000 + 20 for k in range(PROMPT)]
        core.add_request(EngineCoreRequest(f"{number} {i}", prompt, params))
    watch, start, started = Stopwatch(), time.perf_counter(), time.thread_time()
    with watch.running():
        while core.has_unfinished_requests:
            core.step()
    seconds = time.perf_counter() - start
    return REQUESTS * (PROMPT + OUTPUT) / seconds, watch.seconds / (time.thread_time() - started)


def main() -> None:
    model = sys.argv[1] if len(sys.argv) > 1 else "smollm2"
    with tempfile.TemporaryDirectory() as folder:
        kinds: dict[str, dict[str, Any]] = {
            "none": {"enable_prefix_caching": False},
            "hash": {},
            "radix": {"kv_prefix_index": "radix"},
            "hash, and on disk": {"prefix_cache_dir": folder},
        }
        common = {"model": model, "max_model_len": 1024, "max_num_seqs": 4, "num_gpu_blocks_override": 160}
        cores = {name: EngineCore(EngineArgs(**(common | settings))) for name, settings in kinds.items()}
        figures: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
        for number in range(1 + ROUNDS):
            for name, core in cores.items():
                figures[name].append(serve(core, number))
        for core in cores.values():
            assert core.stats().prefix_hits == 0
        plain = statistics.median(speed for speed, _ in figures["none"][1:])
        print(f"{'prefix cache':20} {'of the loop':>22} {'tok/s':>8} {'of none':>8}")
        for name, rounds in figures.items():
            speed = statistics.median(speed for speed, _ in rounds[1:])
            share = statistics.median(share for _, share in rounds[1:])
            print(f"{name:20} {share:22.3%} {speed:8.0f} {speed / plain:8.1%}")
        stats = cores["hash, and on disk"].stats()
        print(f"on disk: {stats.disk_spilled_blocks} blocks written, {stats.disk_dropped_blocks} dropped")
        for core in cores.values():
            core.close()


if __name__ == "__main__":
    main()
