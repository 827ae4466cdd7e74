"""Policies of an installed package: a folder on the path with its metadata, as pip leaves it."""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo.config import KV_POLICIES, EngineArgs
from octavo.errors import InvalidRequestError
from octavo.kv import policies
from octavo.kv.interfaces import PoolSpec
from support.simulation import Simulation

MODULE = '''
from octavo.kv.placement.paged import PagedPlacement

class LowestFirst(PagedPlacement):
    """Of the free blocks, those of the lowest numbers."""
    def allocate(self, owner, count, reserve):
        self._stack[: self._num_free][::-1].sort()
        return super().allocate(owner, count, reserve)

class Fails:
    def __init__(self, spec):
        raise OSError("no such device")

class LacksMost:
    def __init__(self, spec): ...
    num_free = 0

class Hasty:
    """Lets in whoever fits."""
    def admits(self, needed_now, needed_at_most, available, promised, num_running, running):
        return needed_now <= available
    def finished(self, stated, generated): ...

class Eldest:
    def choose(self, candidates, needed):
        return 0
'''
ENTRY_POINTS = """
[octavo.kv]
placement.lowest = octavo_test_plugin:LowestFirst
placement.fails = octavo_test_plugin:Fails
placement.lacks = octavo_test_plugin:LacksMost
placement.absent = octavo_test_plugin:Absent
admission.hasty = octavo_test_plugin:Hasty
victim.eldest = octavo_test_plugin:Eldest
"""


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = tmp_path / "octavo_test_plugin-1.5.dist-info"
    metadata.mkdir()
    (tmp_path / "octavo_test_plugin.py").write_text(MODULE)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: octavo-test-plugin\nVersion: 1.5\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_a_plugin_is_chosen_by_name_and_serves() -> None:
    assert EngineArgs(kv_placement="lowest").kv_policies()["placement"] == "lowest"
    sim = Simulation(placement="lowest", admission="hasty", num_blocks=12, block_size=4)
    for i in range(6):
        sim.add(f"r{i}", 9, max_tokens=20)
    sim.run()
    sim.check_idle()
    for i in range(6):
        sim.check_output(f"r{i}")


def test_an_unknown_name_lists_plugins_too() -> None:
    with pytest.raises(InvalidRequestError, match="choose one of paged, contiguous, contiguous-best, static, absent, fails, lacks, lowest"):
        policies.choose(KV_POLICIES["paged"] | {"placement": "magic"})


def test_a_plugin_that_is_not_there_is_named() -> None:
    plugin = "kv_placement = 'absent': the plugin octavo_test_plugin:Absent, of octavo-test-plugin 1.5, cannot be imported: AttributeError"
    with pytest.raises(InvalidRequestError, match=plugin):
        policies.choose(KV_POLICIES["paged"] | {"placement": "absent"})


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("fails", r"octavo_test_plugin:Fails, of octavo-test-plugin 1.5, cannot be built: OSError\('no such device'\)"),
        ("lacks", "octavo_test_plugin:LacksMost, of octavo-test-plugin 1.5, lacks largest_free_run, num_reserved"),
    ],
)
def test_a_plugin_that_breaks_its_contract_at_the_start_is_named(name: str, what: str) -> None:
    chosen = policies.choose(KV_POLICIES["paged"] | {"placement": name})
    with pytest.raises(InvalidRequestError, match=what):
        chosen.placement(PoolSpec(4, 16))


def test_a_rule_for_the_victim_is_a_policy_like_the_others() -> None:
    sim = Simulation(victim="eldest", num_blocks=8, max_num_batched_tokens=64, prefix_index="none")
    for name in "abc":
        sim.add(name, 15, max_tokens=20)
    while not sim.requests["b"].num_preemptions:
        sim.step()
    assert not sim.requests["c"].num_preemptions
    sim.run()
    for name in sim.cores:
        sim.check_output(name)
