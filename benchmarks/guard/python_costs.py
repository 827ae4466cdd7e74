"""What Python does in a step, as cases: scheduling, allocating and hashing KV blocks. Held against a fixed loop in Python."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.guard.cases import Case
from benchmarks.kv.bench_scheduler import new_manager, new_request, steps

TOKENS = 16_384


def python_cases() -> list[Case]:
    cases = {
        "schedule and update, 1 decoding": lambda: steps(1, 0, 2000, measured=50),
        "schedule and update, 32 decoding": lambda: steps(32, 0, 2000, measured=30),
        "schedule and update, 256 decoding": lambda: steps(256, 0, 10_000, measured=15),
        "allocate and free 1,024 blocks": _allocation(),
        "hash 1,024 blocks and look them up": _hashing(),
    }
    return [Case(name, run, lambda reference: reference.python_seconds) for name, run in cases.items()]


def _allocation() -> Callable[[], float]:
    kv, request = new_manager(10_000), new_request("long", TOKENS, max_tokens=1)

    def once() -> float:
        start = time.perf_counter()
        growth = kv.allocate_slots(request, TOKENS)
        assert growth is not None
        growth.commit()
        kv.free(request)
        return time.perf_counter() - start

    return lambda: min(once() for _ in range(20))


def _hashing() -> Callable[[], float]:
    kv, owner = new_manager(10_000), new_request("owner", TOKENS + 1)
    growth = kv.allocate_slots(owner, TOKENS)
    assert growth is not None
    growth.commit()
    kv.mark_computed(owner, TOKENS)

    def once() -> float:
        owner.block_hashes.clear()
        start = time.perf_counter()
        kv.get_computed_blocks(owner)
        return time.perf_counter() - start

    return lambda: min(once() for _ in range(5))
