"""Prefix sharing, through the scheduler: what is found, what is not, and that it changes no token."""

from __future__ import annotations

import hashlib

import pytest

from octavo.kv import block_hash
from support.simulation import Simulation


def prompt_of(length: int) -> list[int]:
    return [(3 * i + i // 7) % 50 for i in range(length)]


def test_kv_09_the_identical_prompt_three_times() -> None:
    sim = Simulation(block_size=16, max_num_batched_tokens=64)
    for name in "abc":
        sim.add(name, prompt_of(32), max_tokens=5)
        sim.run()
        sim.check_output(name)
    assert [sim.last(name).num_cached_tokens for name in "abc"] == [0, 16, 16]
    assert [next(iter(step.num_scheduled_tokens.values())) for step in sim.scheduled if step.new] == [32, 16, 16]


@pytest.mark.parametrize("block_size", [8, 16, 32])
@pytest.mark.parametrize("blocks, extra", [(1, -1), (1, 0), (1, 1), (2, 0), (2, 1)])
def test_kv_10_cached_tokens_are_whole_blocks_short_of_the_last_token(block_size: int, blocks: int, extra: int) -> None:
    length = blocks * block_size + extra
    sim = Simulation(block_size=block_size, max_num_batched_tokens=128)
    for name in "ab":
        sim.add(name, prompt_of(length), max_tokens=3)
        sim.run()
        sim.check_output(name)
    assert sim.last("a").num_cached_tokens == 0
    assert sim.last("b").num_cached_tokens == (length - 1) // block_size * block_size
    assert sim.tokens("a") == sim.tokens("b")


def test_kv_12_an_adapter_and_a_salt_of_one_name_share_nothing() -> None:
    sim = Simulation()
    cached = {}
    for name, salt, adapter in [("adapter", None, "X"), ("salt", "X", None), ("base", None, None), ("salt again", "X", None)]:
        sim.add(name, prompt_of(40), max_tokens=2, cache_salt=salt, adapter=adapter)
        sim.run()
        cached[name] = sim.last(name).num_cached_tokens
    assert cached == {"adapter": 0, "salt": 0, "base": 0, "salt again": 32}


def test_kv_13_blocks_are_found_by_sha_256_and_nothing_weaker() -> None:
    assert block_hash.sha256 is hashlib.sha256
    assert len(block_hash.root_hash(16, "n", None, None)) == 32
    sim = Simulation()
    for name, first in (("a", 1), ("b", 2)):  # alike but for the first token
        sim.add(name, [first, *prompt_of(39)], max_tokens=3)
        sim.run()
        sim.check_output(name)
    assert sim.last("b").num_cached_tokens == 0


def test_only_computed_blocks_are_shared() -> None:
    sim = Simulation(lag=1, max_num_batched_tokens=64)
    sim.add("a", prompt_of(33), max_tokens=9)
    sim.step()  # in flight: nothing is known to be computed
    sim.add("b", prompt_of(33), max_tokens=2)
    sim.step()
    assert sim.scheduled[-1].new[0].num_computed_tokens == 0
    sim.add("c", prompt_of(33), max_tokens=2)
    sim.step()  # a's prefill has come back
    assert sim.scheduled[-1].new[0].num_computed_tokens == 32
    sim.run()
    for name in "abc":
        sim.check_output(name)


def test_what_is_written_past_a_stop_is_not_cached() -> None:
    plain = Simulation(lag=0)
    plain.add("a", prompt_of(6), max_tokens=3)
    plain.run()
    stop = plain.tokens("a")[1]
    sim = Simulation(lag=1)
    sim.add("a", prompt_of(6), max_tokens=20, stop_token_ids=[stop])  # the step in flight writes the eighth token: the block is full
    sim.run()
    assert len(sim.tokens("a")) == 2
    assert sim.kv.usage().groups[0].cached == 0


def test_output_can_be_shared_as_well() -> None:
    sim = Simulation()
    sim.add("a", prompt_of(10), max_tokens=15)
    sim.run()
    sim.add("b", prompt_of(10) + sim.tokens("a"), max_tokens=3)
    sim.run()
    assert sim.last("b").num_cached_tokens == 24  # of 25 tokens, all but the last were computed
    sim.check_output("b")


def test_prompt_logprobs_use_no_hit() -> None:
    sim = Simulation()
    for name in "ab":
        sim.add(name, prompt_of(33), max_tokens=2, prompt_logprobs=0)
        sim.run()
        assert sim.last(name).num_cached_tokens == 0
    sim.add("c", prompt_of(33), max_tokens=2)
    sim.run()
    assert sim.last("c").num_cached_tokens == 32
    assert sim.scheduler.stats().prefix_queries == 33


def test_without_an_index_nothing_is_kept() -> None:
    sim = Simulation(prefix_index="none")
    for name in "ab":
        sim.add(name, prompt_of(33), max_tokens=2)
        sim.run()
        assert sim.last(name).num_cached_tokens == 0
    assert sim.kv.usage().groups[0].cached == 0
    assert sim.requests["a"].block_hashes == []
    assert sim.scheduler.stats().prefix_queries == 0


def test_a_reset_forgets_and_running_requests_go_on() -> None:
    sim = Simulation()
    sim.add("a", prompt_of(33), max_tokens=30)
    sim.step()
    sim.step()
    sim.kv.reset_prefix_cache()
    sim.add("b", prompt_of(33), max_tokens=2)
    sim.step()
    assert sim.scheduled[-1].new[0].num_computed_tokens == 0
    sim.run()
    sim.check_output("a")
    sim.check_output("b")
    sim.kv.reset_prefix_cache()
    assert sim.kv.usage().groups[0].free == 64 * 8


def test_each_full_block_is_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(block_hash, "sha256", lambda data: calls.append(len(data)) or hashlib.sha256(data))
    sim = Simulation(max_num_batched_tokens=16, block_size=8, num_blocks=16)
    sim.add("a", prompt_of(33), max_tokens=40)
    sim.add("b", prompt_of(60)[::-1], max_tokens=40)
    sim.run()
    assert sim.requests["b"].num_preemptions
    roots, blocks = calls.count(len(b"octavo kv root")), calls.count(32 + 4 * 8)
    assert (roots, blocks) == (2, (33 + 39) // 8 + (60 + 39) // 8)
