"""Plugins that raise, or break their contracts, at any call: who fails, who does not, and that no block is lost."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.kv import policies
from octavo.kv.disk.files import BlockFiles
from octavo.kv.eviction.lru import LRUEviction
from octavo.kv.guard import GUARDS, PolicyError
from octavo.kv.interfaces import BlockHash, PoolSpec
from octavo.kv.placement.paged import PagedPlacement
from octavo.kv.prefix_index.hash import HashPrefixIndex
from octavo.runner.transfers import carry_out
from support.simulation import Simulation

GOOD: dict[str, Callable[..., Any]] = {
    "placement": PagedPlacement,
    "prefix_index": HashPrefixIndex,
    "eviction": LRUEviction,
    "admission": policies.ADMISSIONS["optimistic"],
    "victim": policies.VICTIMS["last"],
}
CHECKS = ("check_integrity", "free_blocks", "idle_blocks", "reserved_blocks")


class Faulty:
    """A good policy whose calls go wrong when ``fault`` says so: it returns None, or what becomes of a call's result, and may raise."""

    def __init__(self, policy: Any, fault: Callable[[str, Any], Callable[[Any], Any] | None]) -> None:
        self._policy, self._fault = policy, fault

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._policy, name)
        if not callable(value) or name in CHECKS:
            return value

        def call(*args: Any) -> Any:
            spoil = self._fault(name, self._policy)
            result = value(*args)
            return result if spoil is None else spoil(result)

        return call

    def __len__(self) -> int:
        return len(self._policy)


class Chance:
    """Goes wrong with a probability, in all the ways there are, before or after the good policy has done its work."""

    def __init__(self, seed: int, probability: float, wrong: Sequence[Callable[[Any], Any]]) -> None:
        self._random, self._probability, self._wrong = random.Random(seed), probability, wrong
        self.count = 0

    def __call__(self, name: str, policy: Any) -> Callable[[Any], Any] | None:
        if self._random.random() >= self._probability:
            return None
        self.count += 1
        spoil = self._random.choice([None, self._raise, *self._wrong])
        if spoil is None:
            raise KeyError(f"before {name}")
        return spoil

    def _raise(self, result: Any) -> Any:
        raise KeyError("after")


def array(change: Callable[[np.ndarray], Any]) -> Callable[[Any], Any]:
    """Arrays change; what is no array is left out."""
    return lambda result: change(result) if isinstance(result, np.ndarray) and len(result) else "nonsense"


WRONG = [
    array(lambda blocks: blocks[:-1]),
    array(lambda blocks: np.repeat(blocks[:1], len(blocks))),
    array(lambda blocks: blocks + np.int32(1000)),
    array(lambda blocks: -blocks - np.int32(1)),
    array(lambda blocks: blocks.astype(np.int64)),
    array(lambda blocks: blocks.tolist()),
    array(lambda blocks: None),
]


OTHERS = array(lambda blocks: (blocks + 1) % 12)
"""Blocks in place of those that the policy believes it named."""


def install(patch: pytest.MonkeyPatch, seam: str, fault: Callable[[str, Any], Any]) -> None:
    """Offer a faulty policy under the name "faulty"."""

    def blame(what: str) -> PolicyError:
        return PolicyError(f"kv_{seam} = 'faulty': the plugin x:Faulty, of x 1.0, {what}", seam)

    def build(*args: Any) -> Any:
        return GUARDS[seam](Faulty(GOOD[seam](*args), fault), blame, *args)

    patch.setitem(policies.BUILT_IN[seam], "faulty", build)  # type: ignore[index]


def simulation(seam: str, **fields: Any) -> Simulation:
    return Simulation(**{seam: "faulty", "num_blocks": 12, "block_size": 4, "max_num_seqs": 4, "max_num_batched_tokens": 16} | fields)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), probability=st.sampled_from([0.01, 0.1, 0.5]), lag=st.integers(0, 1))
@pytest.mark.parametrize("seam", GOOD)
def test_whatever_goes_wrong_nothing_leaks_and_nobody_gets_wrong_tokens(seam: str, seed: int, probability: float, lag: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        wrong = WRONG if seam in ("placement", "eviction") else [*WRONG, OTHERS]  # for these two, see the next test
        fault = Chance(seed, probability, wrong)
        install(patch, seam, fault)
        sim = simulation(seam, lag=lag)
        rng = random.Random(seed)
        for i in range(14):
            prompt = [(3 * j) % 50 for j in range(rng.randrange(1, 25))]
            sim.add(f"r{i}", prompt, max_tokens=rng.randrange(1, 20))
            sim.step()  # which checks all books
            if i == 9:
                sim.scheduler.abort(["r2"])
            if i == 11:
                sim.kv.reset_prefix_cache()
        sim.run()
        sim.check_idle()
    failed = [name for name in sim.requests if sim.outputs[name] and sim.last(name).finish_reason == "error"]
    assert len(failed) <= fault.count
    for name in failed:
        assert sim.last(name).error.startswith(f"kv_{seam} = 'faulty': the plugin x:Faulty, of x 1.0, ")
    for name in sim.requests.keys() - set(failed) - {"r2"}:
        sim.check_output(name)


def test_a_block_that_is_given_and_still_counted_as_free_is_not_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a placement's books are wrong, which shows when it gives the block again: to one who fails, and it is not used any more."""
    install(monkeypatch, "placement", fails_at("allocate", spoil=OTHERS))
    sim = simulation("placement")
    sim.add("a", 9, max_tokens=20)
    for name in "bc":
        sim.add(name, 9, max_tokens=2)
    while sim.scheduler.has_work():
        scheduled = sim.scheduler.schedule()
        for output in sim.scheduler.update_from_output(scheduled, sim.runner.execute(scheduled)):
            sim.outputs[output.request_id].append(output)
    sim.check_idle()
    assert "returned block 3 from allocate(), which is not its to give" in sim.last("b").error
    assert sim.kv.pools[0].replaced == {"placement": "paged"}
    for name in "ac":
        sim.check_output(name)


def fails_at(method: str, time: int = 1, spoil: Callable[[Any], Any] | None = None) -> Callable[[str, Any], Any]:
    """The n-th call of a method raises before it has done anything, or gives something else."""
    calls = 0

    def fault(name: str, policy: Any) -> Callable[[Any], Any] | None:
        nonlocal calls
        calls += name == method
        if name != method or calls != time:
            return None
        if spoil is None:
            raise RuntimeError("no luck")
        return spoil

    return fault


@pytest.mark.parametrize(
    ("seam", "method", "spoil", "told"),
    [
        ("placement", "allocate", None, r"raised RuntimeError\('no luck'\) in allocate\(\)"),
        ("placement", "has_room", None, r"raised RuntimeError\('no luck'\) in has_room\(\)"),
        ("placement", "has_room", lambda _: 1, r"returned 1 from has_room\(\), not True or False"),
        ("placement", "allocate", array(lambda b: b[:-1]), r"returned 2 blocks from allocate\(\), not 3"),
        ("placement", "allocate", array(lambda b: b[[0, 0, 0]]), r"returned a block twice from allocate\(\)"),
        ("placement", "allocate", array(lambda b: b + np.int32(99)), r"returned blocks 99 to 101 from allocate\(\); the pool has 12"),
        ("placement", "allocate", array(lambda b: b.astype(np.float64)), r"returned float64 \[3\] from allocate\(\), not int32 \[blocks\]"),
        ("prefix_index", "lookup", None, r"raised RuntimeError\('no luck'\) in lookup\(\)"),
        ("prefix_index", "lookup", lambda _: np.zeros(1, np.int32), r"returned block 0 from lookup\(\), which is not its to give"),
        ("admission", "admits", None, r"raised RuntimeError\('no luck'\) in admits\(\)"),
    ],
)
def test_one_request_fails_with_the_plugins_name_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, seam: str, method: str, spoil: Callable[[Any], Any] | None, told: str
) -> None:
    install(monkeypatch, seam, fails_at(method, spoil=spoil))
    sim = simulation(seam)
    for name in "ab":
        sim.add(name, 9, max_tokens=6)
    sim.run()
    sim.check_idle()
    assert sim.last("a").finish_reason == "error"
    with pytest.raises(RuntimeError, match=told):
        raise RuntimeError(sim.last("a").error)
    sim.check_output("b")
    kept = method in ("has_room", "lookup", "admits") or spoil is None
    assert (sim.kv.pools[0].replaced == {}) == kept  # of what raised at once the books still agree


def test_a_running_request_fails_while_those_before_and_after_it_run(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "placement", fails_at("allocate", 5))
    sim = simulation("placement", num_blocks=24, max_num_batched_tokens=64)
    for name in "abc":
        sim.add(name, 4, max_tokens=9)
    sim.run()
    sim.check_idle()
    assert sim.last("b").finish_reason == "error" and sim.tokens("b")
    for name in "ac":
        sim.check_output(name)


@pytest.mark.parametrize(
    ("seam", "method", "fallback"), [("placement", "free", "paged"), ("eviction", "add", "lru"), ("prefix_index", "clear", "hash")]
)
def test_where_no_request_is_served_a_built_in_policy_takes_over(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, seam: str, method: str, fallback: str
) -> None:
    install(monkeypatch, seam, fails_at(method))
    sim = simulation(seam)
    for name in "ab":
        sim.add(name, 9, max_tokens=6)
    with caplog.at_level(logging.ERROR):
        sim.run()
        sim.kv.reset_prefix_cache()
    (line,) = [record.message for record in caplog.records]
    assert line == (
        f"kv_{seam} = 'faulty': the plugin x:Faulty, of x 1.0, raised RuntimeError('no luck') in {method}(); its books differ from the "
        f"pool's, and what is cached is forgotten: kv_{seam} is {fallback} from now on"
    )
    assert sim.kv.pools[0].replaced == {seam: fallback}
    sim.add("c", 9, max_tokens=6)
    sim.run()
    sim.check_idle()
    for name in "abc":
        sim.check_output(name)


def test_an_admission_that_cannot_learn_does_no_harm(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    install(monkeypatch, "admission", fails_at("finished"))
    sim = simulation("admission")
    sim.add("a", 9, max_tokens=6)
    sim.run()
    sim.check_output("a")
    assert "raised RuntimeError('no luck') in finished()" in caplog.text


@pytest.mark.parametrize(
    ("seam", "wrong", "told"),
    [
        (
            "placement",
            {"reserves": property(lambda self: 1 // 0)},
            r"raised ZeroDivisionError\('integer division or modulo by zero'\) in res",
        ),
        ("placement", {"num_free": 3}, r"counts 3 free and 0 reserved blocks after __init__\(\), of 12 that are not in use"),
        ("placement", {"max_request_blocks": "many"}, r"says max_request_blocks is 'many', which is none of 0 to 12"),
        ("eviction", {"_num_idle": 2}, r"counts 2 blocks after __init__\(\), not 0"),
    ],
)
def test_what_is_wrong_at_once_is_refused(monkeypatch: pytest.MonkeyPatch, seam: str, wrong: dict[str, Any], told: str) -> None:
    policy = type("Wrong", (GOOD[seam],), {name: value for name, value in wrong.items() if not name.startswith("_")})(PoolSpec(12, 4))
    for name, value in wrong.items():
        if name.startswith("_"):
            setattr(policy, name, value)
    with pytest.raises(PolicyError, match=told):
        GUARDS[seam](policy, lambda what: PolicyError(what, seam), PoolSpec(12, 4))


def test_an_index_that_mixes_up_texts_serves_nobody_anothers(monkeypatch: pytest.MonkeyPatch) -> None:
    """It finds a block that is cached, but for other tokens."""
    install(monkeypatch, "prefix_index", fails_at("lookup", 2, lambda _: np.array([sim.kv.block_map()[1][0].tolist().index(-2)], np.int32)))
    sim = simulation("prefix_index")
    for name in "ab":
        sim.add(name, 9, max_tokens=2)
        sim.run()
    sim.check_output("a")
    assert "which holds other tokens" in sim.last("b").error


@pytest.mark.parametrize("found", [None, [0, -1], np.array(["a", "b"]), np.array([0.0, -1.0]), np.full((2, 1), -1, np.int32)])
def test_what_find_returns_is_blocks_or_the_plugin_is_named(found: Any) -> None:
    index = HashPrefixIndex(PoolSpec(12, 4))
    guard = GUARDS["prefix_index"](index, lambda what: PolicyError(what, "prefix_index"), PoolSpec(12, 4))
    index.find = lambda hashes: found  # type: ignore[method-assign]
    with pytest.raises(PolicyError, match=r"from find\(\), not int32"):
        guard.find([BlockHash(b"a"), BlockHash(b"b")])


def raises_now_and_then(name: str, policy: Any) -> None:
    policy.calls = getattr(policy, "calls", 0) + (name == "cached")
    if name == "cached" and policy.calls % 4 == 0:
        raise RuntimeError("no luck")


def tells_of_the_last_first(name: str, policy: Any) -> Callable[[Any], Any] | None:
    return (lambda blocks: blocks[::-1].copy()) if name == "insert" else None


@pytest.mark.parametrize(("seam", "fault"), [("eviction", raises_now_and_then), ("prefix_index", tells_of_the_last_first)])
def test_a_plugin_puts_nothing_under_a_wrong_name_on_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seam: str, fault: Callable[[str, Any], Any]
) -> None:
    """Whose blocks are whose is not taken from the plugin: who finds them after a restart finds its own tokens."""
    prompts = [[(kind + 1 + i * (kind + 2) * 5) % 50 for i in range(36)] for kind in range(4)]
    for faulty in (True, False):
        if faulty:
            install(monkeypatch, seam, fault)
        sim = Simulation(**({seam: "faulty"} if faulty else {}), num_blocks=12, block_size=4, disk=BlockFiles(str(tmp_path), "n", 10**6))
        for i in [*range(4)] * 6:
            name = f"r{len(sim.requests)}"
            sim.add(name, prompts[i], max_tokens=2)
            sim.run()
            if sim.last(name).error is None:
                sim.check_output(name)
            if len(sim.requests) == 3:
                sim.kv.reset_prefix_cache()
        assert sim.kv.disk is not None
        for transfers in sim.kv.spill_cached(time.monotonic() + 10):
            carry_out(transfers, sim.runner)
        sim.kv.disk.close(time.monotonic() + 10)
    assert sim.scheduler.stats().disk_hits > 0
