"""100,000 requests, spread over every valid combination of policies: nothing leaks, and the books balance after each step."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from support.combinations import valid_combinations
from support.simulation import Simulation, text

REQUESTS = 100_000
ROUND = 200
"""Requests that one engine serves before its pool is looked at, and another is built."""


def parts(policies: dict[str, str], rng: random.Random) -> Simulation:
    """A small pool, so that requests are preempted, and settings at random; often with a second layer group that has a window."""
    block_size = rng.choice([4, 8])
    num_blocks = rng.randint(8, 24)
    static = policies["placement"] == "static"
    return Simulation(
        num_blocks=num_blocks,
        block_size=block_size,
        max_num_seqs=rng.randint(2, 6),
        max_num_batched_tokens=rng.randint(8, 64),
        max_model_len=min(40, num_blocks * block_size // 2) if static else 40,
        scheduling_policy=rng.choice(["fcfs", "priority"]),
        max_drafts=rng.randint(1, 3),
        lag=rng.randint(0, 1),
        swap_blocks=rng.choice([0, 6]),
        victim=rng.choice(["last", "cheapest"]),
        compaction_blocks=rng.choice([0, 1, 8]) if policies["placement"].startswith("contiguous") else 0,
        window=rng.choice([0, 5, 12]),
        window_blocks=rng.randint(8, 24) if policies["placement"] == "paged" else num_blocks,
        **policies,
    )


def arrivals(sim: Simulation, count: int, rng: random.Random) -> Iterator[list[tuple[str, list[int], dict[str, Any]]]]:
    """A step's new requests: none, one, or a family of forks with one prompt, as ``n`` completions are."""
    made = 0
    longest = min(sim.max_model_len, sim.kv.capacity)
    while made < count:
        if rng.random() < 0.3:
            yield []
            continue
        forks = min(rng.choice([1, 1, 1, 3]), count - made)
        kind, length = rng.randrange(4), rng.randint(1, longest - 1)
        prompt = text(kind, length)
        fields = {
            "max_tokens": rng.randint(1, min(12, longest - length)),
            "ignore_eos": rng.random() < 0.5,
            "priority": rng.randrange(3),
        }
        yield [(f"r{made + i}", prompt, fields) for i in range(forks)]
        made += forks


def serve(sim: Simulation, count: int, rng: random.Random) -> int:
    """``count`` requests come and go, a tenth of them aborted; returns how often one was preempted."""
    aborted: set[str] = set()
    coming = arrivals(sim, count, rng)
    step = 0
    while (batch := next(coming, None)) is not None or sim.scheduler.has_work():
        for name, prompt, fields in batch or []:
            sim.add(name, prompt, **fields)
        if sim.scheduler.requests and rng.random() < 0.1:
            victim = rng.choice(sorted(sim.scheduler.requests))
            sim.scheduler.abort([victim])
            aborted.add(victim)
        sim.now += 1
        sim.step()
        step += 1
        assert step < 200 * count, "requests starve"
    sim.drain()
    sim.check_idle()
    assert len(sim.cores) == count
    for name in sim.cores.keys() - aborted:
        sim.check_output(name)
    return sim.scheduler.stats().preemptions


@pytest.mark.slow
@pytest.mark.parametrize("policies", valid_combinations(), ids=lambda policies: "-".join(policies.values()))
def test_100_000_requests_leave_nothing_behind(policies: dict[str, str]) -> None:
    rng = random.Random("-".join(policies.values()))
    share = -(-REQUESTS // len(valid_combinations()))
    preemptions = sum(serve(parts(policies, rng), min(ROUND, share - done), rng) for done in range(0, share, ROUND))
    assert preemptions or policies["admission"] == "guaranteed" or policies["placement"] != "paged"
