"""Who waits at the head of the queue: for what, and for how long at most."""

from __future__ import annotations

import pytest

from octavo.scheduler.step import WaitReason
from support.simulation import Simulation

RUNS = {"prefix_index": "none", "admission": "guaranteed"}
SETS = [{}, {"prefix_index": "radix", "admission": "predicted"}, RUNS, RUNS | {"placement": "contiguous"}]


@pytest.mark.parametrize("policies", SETS, ids=lambda policies: "-".join(policies.values()) or "default")
def test_lt_06_a_big_request_starts_when_those_before_it_have_ended(policies: dict[str, str]) -> None:
    """Nobody passes the head of the queue, so small requests that come without end do not hold it up.

    The bound: it starts in the step after the last of those that ran when it came to the head has ended, at the latest.
    """
    sim = Simulation(num_blocks=20, block_size=8, max_num_seqs=16, max_num_batched_tokens=64, **policies)
    for i in range(4):
        sim.add(f"first {i}", 17, max_tokens=16)  # four blocks each: 80 % of the pool
    sim.step()
    assert len(sim.scheduler.running) == 4
    sim.add("big", 100, max_tokens=20)  # 15 blocks
    bound = 1 + max(request.max_tokens - request.num_output_tokens for request in sim.scheduler.running)
    small = 0
    while sim.requests["big"].scheduled_time is None:
        sim.add(f"small {small}", 3, max_tokens=2)
        small += 1
        sim.step()
        assert small <= bound
        big_runs = sim.requests["big"].scheduled_time is not None
        assert big_runs or all(sim.requests[f"small {i}"].scheduled_time is None for i in range(small))
    for _ in range(50):  # and the small ones run beside it, or behind
        sim.add(f"small {small}", 3, max_tokens=2)
        small += 1
        sim.step()
    sim.run()
    sim.check_idle()
    for name in sim.requests:
        sim.check_output(name)


def waiting_reason(sim: Simulation) -> str:
    stats = sim.scheduler.stats()
    assert stats.waiting
    return stats.waiting_reason


def test_ob_10_the_reason_is_told() -> None:
    sim = Simulation(num_blocks=8, block_size=8, max_num_seqs=2, max_num_batched_tokens=16)
    assert sim.scheduler.stats().waiting_reason == ""
    sim.add("long", 40, max_tokens=20)
    sim.add("next", 8, max_tokens=20)
    for _ in range(2):
        sim.now += 1
        sim.step()
        assert waiting_reason(sim) == WaitReason.TOKENS  # the first prefill takes all of the budget
    sim.step()
    sim.add("third", 4, max_tokens=4)
    sim.now += 1
    sim.step()
    assert waiting_reason(sim) == WaitReason.SEATS
    sim.run()
    assert sim.scheduler.stats().waiting_reason == ""
    sim.add("full", 40, max_tokens=20)
    sim.add("big", 30, max_tokens=20)
    for _ in range(4):
        sim.now += 1
        sim.step()
    assert waiting_reason(sim) == WaitReason.BLOCKS
    sim.run()
    assert sim.scheduler.stats().waiting_reason == ""


def test_ob_10_one_that_was_preempted_waits_for_its_last_step() -> None:
    sim = Simulation(num_blocks=4, block_size=4, max_num_batched_tokens=64, lag=1, prefix_index="none")
    for name in "ab":
        sim.add(name, 4, max_tokens=12)
    reasons = set()
    while sim.scheduler.has_work():
        sim.now += 1
        sim.step()
        if sim.scheduler.stats().waiting:
            reasons.add(waiting_reason(sim))
    assert sim.scheduler.stats().preemptions
    assert WaitReason.BLOCKS in reasons and reasons <= {WaitReason.BLOCKS, WaitReason.IN_FLIGHT}
