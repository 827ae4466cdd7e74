"""What the scheduler and the KV core cost, without a model.

usage: python benchmarks/kv/bench_scheduler.py          medians, in microseconds, with the limits they are held to
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from octavo.config import KV_POLICIES
from octavo.engine.step_clock import StepClock
from octavo.engine.step_demand import step_demand
from octavo.engine.step_log import StepLog
from octavo.kv.kv_cache_manager import KVCacheManager
from octavo.request import EngineCoreRequest, Request
from octavo.runner.interface import LayerGroup
from octavo.sampling_params import SamplingParams
from octavo.scheduler.config import SchedulerConfig
from octavo.scheduler.output import RunnerOutput
from octavo.scheduler.scheduler import Scheduler

BLOCK_SIZE = 16
LONG_CONTEXT = 8192
"""Blocks of a 128k context."""


def new_manager(num_blocks: int, policy: str = "paged", window: int = 0, **seams: str) -> KVCacheManager:
    """``seams`` override single policies of the set; a static slot is LONG_CONTEXT blocks. ``window``: of a second layer group."""
    policies, longest = KV_POLICIES[policy] | seams, LONG_CONTEXT * BLOCK_SIZE
    groups = [LayerGroup("full", 1, 1024), LayerGroup("window", 1, 1024, window)][: 2 if window else 1]
    counts = [num_blocks] * len(groups)
    return KVCacheManager(groups, counts, BLOCK_SIZE, policies, "benchmark", 256, longest, max_tokens_in_flight=longest)


def new_request(request_id: str, length: int, first: int = 0, max_tokens: int = 1000) -> Request:
    prompt = [(first + 7 * i) % 50_000 for i in range(length)]
    return Request(EngineCoreRequest(request_id, prompt, SamplingParams(max_tokens=max_tokens, seed=0)))


def steps(num_running: int, num_waiting: int, num_blocks: int, measured: int = 300, window: int = 0) -> float:
    """schedule() + update_from_output() with everything decoding, in seconds."""
    config = SchedulerConfig(max_num_seqs=num_running, max_num_batched_tokens=32768, max_model_len=4096)
    scheduler = Scheduler(config, new_manager(num_blocks, window=window))
    for i in range(num_running + num_waiting):
        scheduler.add_request(new_request(f"request {i}", 20 + i % 60, first=i))
    seconds = []
    for _ in range(measured):
        start = time.perf_counter()
        scheduled = scheduler.schedule()
        planned = time.perf_counter()
        output = RunnerOutput(scheduled.step_id, {request_id: [5] for request_id in scheduled.num_scheduled_tokens})
        ran = time.perf_counter()
        scheduler.update_from_output(scheduled, output)
        seconds.append(time.perf_counter() - ran + planned - start)
    assert len(scheduler.running) == num_running
    return statistics.median(seconds[5:])


def log(num_running: int, repeats: int = 2000) -> float:
    """What the step log adds to a step in which everything decodes, in seconds."""
    scheduler = Scheduler(SchedulerConfig(max_num_seqs=256, max_num_batched_tokens=32768, max_model_len=4096), new_manager(10_000))
    for i in range(num_running):
        scheduler.add_request(new_request(f"request {i}", 20))
    for _ in range(2):
        scheduled = scheduler.schedule()
        output = RunnerOutput(scheduled.step_id, {request_id: [5] for request_id in scheduled.num_scheduled_tokens})
        scheduler.update_from_output(scheduled, output)
    clock, steps, seconds = StepClock(), StepLog(), []
    for step in range(repeats):
        stats = scheduler.stats()
        start = time.perf_counter()
        clock.begin()
        clock.planned()
        times = clock.end(output, busy=True)
        clock.tell(stats)
        steps.add(step, 0.0, times, step_demand(scheduled, [0]), num_running, scheduled.transfers, stats)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def take(kv: KVCacheManager, request: Request) -> None:
    growth = kv.allocate_slots(request, LONG_CONTEXT * BLOCK_SIZE)
    assert growth is not None
    growth.commit()


def private(num_blocks: int, policy: str = "paged", repeats: int = 30, window: int = 0, **seams: str) -> tuple[float, float]:
    """Allocating and freeing 8,192 blocks that nobody shares; not evicting."""
    kv, request = new_manager(num_blocks, policy, window, **seams), new_request("long", LONG_CONTEXT * BLOCK_SIZE, max_tokens=1)
    return alternate(repeats, lambda: take(kv, request), lambda: kv.free(request))


def shared(num_blocks: int, repeats: int = 30, **seams: str) -> tuple[float, float]:
    """Taking and freeing the 8,192 cached blocks of a prefix; the look-up is measured apart."""
    kv, owner = new_manager(num_blocks, **seams), new_request("owner", LONG_CONTEXT * BLOCK_SIZE)
    take(kv, owner)
    kv.mark_computed(owner, LONG_CONTEXT * BLOCK_SIZE)
    kv.free(owner)
    request = new_request("sharer", LONG_CONTEXT * BLOCK_SIZE + 1)
    hit = kv.get_computed_blocks(request)
    assert hit.num_tokens == LONG_CONTEXT * BLOCK_SIZE
    return alternate(repeats, lambda: kv.allocate_slots(request, 1, hit), lambda: kv.free(request))


def look_up(num_blocks: int, repeats: int = 30, **seams: str) -> tuple[float, float]:
    """Finding 8,192 cached blocks; hashing them the first time (once per full block of a request)."""
    kv, owner = new_manager(num_blocks, **seams), new_request("owner", LONG_CONTEXT * BLOCK_SIZE + 1)
    take(kv, owner)
    kv.mark_computed(owner, LONG_CONTEXT * BLOCK_SIZE)
    return alternate(repeats, lambda: kv.get_computed_blocks(owner), owner.block_hashes.clear, lambda: kv.get_computed_blocks(owner))


def evicting(repeats: int = 10, **seams: str) -> float:
    """Allocating 8,192 blocks when each of them has to be evicted from the index."""
    seconds = []
    for _ in range(repeats):
        kv, owner = new_manager(LONG_CONTEXT, **seams), new_request("owner", LONG_CONTEXT * BLOCK_SIZE)
        take(kv, owner)
        kv.mark_computed(owner, LONG_CONTEXT * BLOCK_SIZE)
        kv.free(owner)
        assert kv.pools[0].num_idle == LONG_CONTEXT
        start = time.perf_counter()
        take(kv, new_request_like(owner))
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def new_request_like(other: Request) -> Request:
    return Request(EngineCoreRequest("another", other.prompt_token_ids, other.sampling_params))


def alternate(repeats: int, first: Callable[[], object], *then: Callable[[], object]) -> tuple[float, float]:
    """Medians of the first and the last of some calls made in turn, in seconds."""
    firsts, lasts = [], []
    for _ in range(repeats):
        start = time.perf_counter()
        first()
        firsts.append(time.perf_counter() - start)
        for call in then:
            start = time.perf_counter()
            call()
        lasts.append(time.perf_counter() - start)
    return statistics.median(firsts), statistics.median(lasts)


def report(name: str, seconds: float, limit_us: float | None = None) -> None:
    limit = f"   limit {limit_us:,.0f}" if limit_us else ""
    print(f"{name:64} {seconds * 1e6:10,.1f}{limit}")


def main() -> None:
    print(f"{'microseconds, medians':64}")
    alone = steps(256, 0, 10_000)
    report("schedule + update, 256 decoding", alone, 1000)
    report("the same with 10,000 waiting", steps(256, 10_000, 10_000), 1.2e6 * alone)
    report("the step log: 1 decoding", log(1), 10)
    report("the step log: 256 decoding", log(256), 10)
    report("schedule + update, 256 decoding, pool of 1,000,000 blocks", steps(256, 0, 1_000_000), 1.5e6 * alone)
    for kind, measure in (("private", private), ("shared", shared)):
        small = measure(10_000)
        for num_blocks, found in ((10_000, small), (1_000_000, measure(1_000_000))):
            for what, seconds, least in zip(("allocate", "free"), found, small, strict=True):
                limit = 200 if num_blocks == 10_000 else min(200, 2.5e6 * least)
                report(f"8,192 blocks of {num_blocks:,}, {kind}: {what}", seconds, limit)
    found, hashed = look_up(10_000)
    report("8,192 blocks: look up", found)
    report("8,192 blocks: hash, once a request, and look up", hashed)
    report("8,192 blocks, each evicted from the index: allocate", evicting(), 2000)
    two_groups(alone)
    other_policies()


def two_groups(alone: float) -> None:
    """With a second layer group that has a window, whose blocks come and go as tokens are computed."""
    both = steps(256, 0, 10_000, window=64)
    report(f"256 decoding, two groups, one with a window of 64 ({both / alone:.2f} x)", both)
    took, freed = private(10_000, window=512)
    report("8,192 blocks of two groups: allocate", took)
    report("8,192 blocks of two groups: free", freed)


def other_policies() -> None:
    """The same under the policies that are not the default, held to the same limits."""
    for policy, placement in (("contiguous", "contiguous"), ("contiguous", "contiguous-best"), ("static", "static")):
        took, freed = private(10_000, policy, placement=placement)
        report(f"{placement}: 8,192 blocks: allocate", took, 200)
        report(f"{placement}: 8,192 blocks: free", freed, 200)
    took, freed = shared(10_000, prefix_index="radix")
    found, _ = look_up(10_000, prefix_index="radix")
    report("radix: 8,192 shared blocks: allocate", took, 200)
    report("radix: 8,192 shared blocks: free", freed, 200)
    report("radix: 8,192 blocks: look up", found)
    report("radix: 8,192 blocks, each evicted: allocate", evicting(prefix_index="radix"), 2000)
    for eviction in ("lfu", "cost"):
        took, freed = shared(10_000, eviction=eviction)
        report(f"{eviction}: 8,192 shared blocks: allocate", took, 200)
        report(f"{eviction}: 8,192 shared blocks: free", freed, 200)
        report(f"{eviction}: 8,192 blocks, each evicted: allocate", evicting(eviction=eviction), 2000)


if __name__ == "__main__":
    main()
