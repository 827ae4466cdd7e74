"""The example in examples/kv_policy_plugin, installed as a user installs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from octavo.config import EngineArgs
from octavo.kv.guard import GuardedEviction
from support.simulation import Simulation

EXAMPLE = Path(__file__).parents[2] / "examples" / "kv_policy_plugin"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Into a folder of its own, from a copy, since building leaves files; offline."""
    source = tmp_path / "source"
    source.mkdir()
    for file in EXAMPLE.iterdir():
        if file.is_file():
            (source / file.name).write_bytes(file.read_bytes())
    options = ["--no-build-isolation", "--no-deps", "--no-index", "--disable-pip-version-check", "-q", "--target", str(tmp_path / "site")]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(source)], check=True, timeout=120)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))


@pytest.mark.usefixtures("installed")
def test_it_is_chosen_by_name_and_evicts_in_order() -> None:
    assert EngineArgs(kv_eviction="fifo").kv_policies()["eviction"] == "fifo"
    sim = Simulation(num_blocks=8, block_size=4, eviction="fifo", max_num_batched_tokens=64)
    assert isinstance(sim.kv.pools[0].eviction, GuardedEviction)
    prompts = {name: [start + i for i in range(9)] for name, start in (("a", 0), ("b", 12), ("c", 24))}
    for name in "ab":
        sim.add(name, prompts[name], max_tokens=1)
        sim.run()  # two blocks each are cached
    sim.add("a again", prompts["a"], max_tokens=1)
    sim.run()
    assert sim.requests["a again"].num_cached_tokens == 8  # found, but first in all the same
    sim.add("c", [*prompts["c"], *range(40, 50)], max_tokens=1)  # five blocks, and four are free: the tail of a's prefix goes
    sim.run()
    for name, found in (("b", 8), ("a", 4)):
        sim.add(f"{name} at last", prompts[name], max_tokens=1)
        sim.run()
        assert sim.requests[f"{name} at last"].num_cached_tokens == found
    sim.check_idle()
    for name in sim.requests:
        sim.check_output(name)
