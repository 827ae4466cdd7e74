"""Requests end at their deadline, wherever they are, and leave nothing behind."""

from __future__ import annotations

from octavo.outputs import FinishReason
from support.simulation import Simulation


def test_lt_13_one_that_expires_in_the_queue_never_runs() -> None:
    sim = Simulation(max_num_seqs=1)
    sim.add("first", 8, max_tokens=20)
    sim.step()
    sim.add("late", 8, max_tokens=4, deadline=sim.now + 1)
    sim.step()
    sim.now += 1
    sim.step()
    assert sim.last("late").finish_reason == FinishReason.TIMEOUT
    assert sim.tokens("late") == []
    assert not any("late" in scheduled.num_scheduled_tokens for scheduled in sim.scheduled)
    sim.run()
    sim.check_output("first")
    sim.check_idle()


def test_lt_13_one_that_expires_while_it_runs_keeps_its_tokens_and_frees_its_blocks() -> None:
    sim = Simulation()
    sim.add("late", 8, max_tokens=50, deadline=sim.now + 1)
    for _ in range(6):
        sim.step()
    got = sim.tokens("late")
    sim.now += 2
    sim.run()
    assert sim.last("late").finish_reason == FinishReason.TIMEOUT
    assert sim.tokens("late") == got
    assert len(got) == 6
    sim.check_idle()


def test_a_deadline_that_is_met_changes_nothing() -> None:
    sim = Simulation(lag=1)
    sim.add("a", 8, max_tokens=5, deadline=sim.now + 100)
    sim.run()
    sim.check_output("a")
    sim.now += 1000
    assert not sim.step()


def test_a_preempted_request_expires_in_the_queue_too() -> None:
    sim = Simulation(num_blocks=9, max_num_batched_tokens=64)
    sim.add("senior", 24, max_tokens=40)
    sim.add("junior", 24, max_tokens=40, deadline=sim.now + 5)
    while not sim.requests["junior"].num_preemptions:
        sim.step()
    sim.now += 10
    sim.run()
    assert sim.last("junior").finish_reason == FinishReason.TIMEOUT
    sim.check_output("senior")
    sim.check_idle()


def test_requests_that_ended_before_their_deadline_are_not_kept() -> None:
    sim = Simulation(num_blocks=64, max_num_seqs=2)
    sim.add("long", 8, max_tokens=200, deadline=sim.now + 10)
    for i in range(180):
        sim.add(f"r{i}", 4, max_tokens=1, deadline=sim.now + 1000)
        while f"r{i}" in sim.scheduler.requests:
            sim.step()
    assert "long" in sim.scheduler.requests
    assert len(sim.scheduler._deadlines) <= 65
