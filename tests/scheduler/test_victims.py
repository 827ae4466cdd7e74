"""Who gives way: each rule by itself, and what holds whatever the rule."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import InvalidRequestError
from octavo.kv import policies
from octavo.kv.interfaces import VictimCandidate
from octavo.kv.victim.cheapest import CheapestVictim
from octavo.kv.victim.last import LastVictim
from octavo.request import RequestStatus
from octavo.scheduler.victims import MOST_CHOICES
from support.simulation import Simulation


@dataclass
class Candidate:
    num_computed_tokens: int
    blocks_freed: int
    request_id: str = ""
    num_remaining_tokens: int = 0
    num_preemptions: int = 0


def test_last_takes_the_last_in_rank() -> None:
    assert LastVictim().choose([Candidate(1, 1), Candidate(100, 7)], 1) == 1


@pytest.mark.parametrize(
    ("needed", "expected"),
    [
        (1, 3),  # all free enough: the fewest tokens; of equals the last in rank
        (2, 2),
        (5, 0),
        (9, 2),  # none frees enough: 40 tokens for 3 blocks are the least per block
    ],
)
def test_cheapest_loses_the_fewest_tokens(needed: int, expected: int) -> None:
    candidates = [Candidate(100, 7), Candidate(20, 1), Candidate(40, 3), Candidate(20, 1), Candidate(90, 0)]
    assert CheapestVictim().choose(candidates, needed) == expected


def test_cheapest_computes_less_again_where_lengths_differ() -> None:
    recomputed = {}
    for victim in ("last", "cheapest"):
        sim = Simulation(num_blocks=145, max_num_seqs=50, max_num_batched_tokens=128, prefix_index="none", victim=victim)
        for i in range(50):
            sim.add(f"r{i}", 10 if i % 10 else 150, max_tokens=40)  # 435 blocks in all
        sim.run(most_steps=5000)
        for name in sim.cores:
            sim.check_output(name)
        sim.check_idle()
        recomputed[victim] = sim.scheduler.stats().recomputed_tokens
    assert 0 < recomputed["cheapest"] < 0.9 * recomputed["last"]


def test_blocks_that_others_share_are_not_counted_as_freed() -> None:
    sim = Simulation(num_blocks=32, max_num_batched_tokens=64)
    prompt = [1 + i % 40 for i in range(24)]
    sim.add("a", prompt, max_tokens=20)
    sim.step()
    sim.add("b", prompt, max_tokens=20)  # finds two full blocks: the third holds the prompt's last token
    sim.step()
    freed = {name: sim.kv.blocks_freed_by(sim.requests[name]) for name in "ab"}
    assert freed == {"a": 2, "b": 1}


class Adversary:
    """Chooses as a test tells it to, and counts how often whom."""

    rule: ClassVar = staticmethod(lambda candidates: 0)
    chosen: ClassVar[Counter[str]] = Counter()

    def choose(self, candidates: Sequence[VictimCandidate], needed: int) -> int:
        index = Adversary.rule(candidates)
        Adversary.chosen[candidates[index].request_id] += 1
        return index


@pytest.fixture(autouse=True)
def adversary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(policies.VICTIMS, "adversary", Adversary)


@settings(max_examples=60, deadline=None)
@given(
    num_blocks=st.integers(4, 20),
    lag=st.integers(0, 2),
    swap_blocks=st.sampled_from([0, 5, 1000]),
    policy=st.sampled_from(["fcfs", "priority"]),
    sizes=st.lists(st.tuples(st.integers(1, 16), st.integers(1, 16), st.integers(0, 1)), min_size=2, max_size=12),
    rule=st.sampled_from(["first", "random"]),
    seed=st.integers(0, 100),
)
def test_no_rule_can_bring_about_a_livelock(
    num_blocks: int, lag: int, swap_blocks: int, policy: str, sizes: list[tuple[int, int, int]], rule: str, seed: int
) -> None:
    rng = random.Random(seed)
    Adversary.chosen = Counter()
    Adversary.rule = staticmethod((lambda candidates: 0) if rule == "first" else (lambda candidates: rng.randrange(len(candidates))))
    sim = Simulation(
        num_blocks=num_blocks, block_size=4, max_num_seqs=6, max_num_batched_tokens=16, prefix_index="none", lag=lag,
        swap_blocks=swap_blocks, scheduling_policy=policy, victim="adversary",
    )  # fmt: skip
    longest = 4 * num_blocks
    for i, (prompt, output, priority) in enumerate(sizes):
        sim.add(f"r{i}", min(prompt, longest - 1), max_tokens=min(output, longest - min(prompt, longest - 1)), priority=priority)
    sim.run(most_steps=(1 + lag) * sum(1 + MOST_CHOICES + len(sizes) for _ in sizes) * 40)
    for name in sim.cores:
        sim.check_output(name)
    sim.check_idle()
    assert max(Adversary.chosen.values(), default=0) <= MOST_CHOICES


def test_a_higher_class_does_not_give_way_while_a_lower_one_runs() -> None:
    Adversary.rule = staticmethod(lambda candidates: 0)
    sim = Simulation(num_blocks=8, max_num_batched_tokens=64, prefix_index="none", scheduling_policy="priority", victim="adversary")
    for name, priority in (("top", 0), ("middle", 1), ("low", 2)):
        sim.add(name, 15, max_tokens=20, priority=priority)  # two blocks each: at 16 tokens each wants a third, and there are two
    preempted = []
    while sim.scheduler.has_work():
        sim.step()
        preempted += [name for name in sim.scheduled[-1].removed_request_ids if sim.requests[name].status is RequestStatus.PREEMPTED]
    assert preempted[0] == "low" and "top" not in preempted
    for name in sim.cores:
        sim.check_output(name)


def test_an_unknown_rule_lists_those_there_are() -> None:
    with pytest.raises(InvalidRequestError, match="preemption_victim = 'oldest': choose one of last, cheapest, adversary") as caught:
        Simulation(victim="oldest")
    assert caught.value.field == "preemption_victim"
