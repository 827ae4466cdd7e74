"""Engine processes with the embedded model: what two that start at once get, and what one is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from octavo.config import EngineArgs
from octavo.engine.remote import EngineProcess

BLOCK_BYTES = 30 * 2 * 3 * 64 * 2 * 16
"""Of SmolLM2: layers, K and V, heads, their size, bytes of a bf16, tokens in a block."""
KV_BYTES = 100 * BLOCK_BYTES + 12345
CPUS = sorted(os.sched_getaffinity(0))


@pytest.fixture(scope="module")
def two_engines(smollm2_path: Path) -> Iterator[list[EngineProcess]]:
    """Launched together, each on a CPU of its own where there are two."""
    args = EngineArgs(model=str(smollm2_path), max_model_len=1024, kv_cache_memory_bytes=KV_BYTES)
    mine = os.sched_getaffinity(0)
    started = []
    try:
        for cpu in (CPUS[0], CPUS[-1]):
            os.sched_setaffinity(0, {cpu})
            started.append(EngineProcess.launch(args))
    finally:
        os.sched_setaffinity(0, mine)
    for engine in started:
        engine.wait_ready(60)
    yield started
    for engine in started:
        engine.shutdown()


def test_kv_20_engines_that_start_together_get_the_pool_they_were_given(two_engines: list[EngineProcess]) -> None:
    assert [engine.info.num_blocks for engine in two_engines] == [[KV_BYTES // BLOCK_BYTES]] * 2 == [[100]] * 2
    assert [engine.info.pool_bytes for engine in two_engines] == [100 * BLOCK_BYTES] * 2


@pytest.mark.skipif(len(CPUS) < 2, reason="one CPU only")
def test_cpu_04_engines_with_masks_of_their_own_stay_inside_them(two_engines: list[EngineProcess]) -> None:
    for engine, cpu in zip(two_engines, (CPUS[0], CPUS[-1]), strict=True):
        assert engine.info.num_threads == 1
        for task in Path(f"/proc/{engine.pid}/task").iterdir():
            assert os.sched_getaffinity(int(task.name)) == {cpu}


@pytest.mark.parametrize("way", ["flag", "environment"])
def test_cpu_05_an_unknown_instruction_set_ends_the_command_in_one_line(way: str, smollm2_path: Path) -> None:
    command = [sys.executable, "-m", "octavo", "generate", str(smollm2_path), "hi", "--max-tokens", "1"]
    flags, environment = (["--isa", "amx"], {}) if way == "flag" else ([], {"OCTAVO_ISA": "amx"})
    done = subprocess.run([*command, *flags], capture_output=True, text=True, timeout=60, check=False, env=os.environ | environment)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "isa = " in done.stderr and "amx" in done.stderr and "generic" in done.stderr
