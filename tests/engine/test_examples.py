"""The examples run as they stand, with the embedded model. They sample without a seed, so an answer may be short."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, folder: Path | None = None, kv_cache_dtype: str = "auto") -> str:
    """The example's output; with another kv_cache_dtype a copy in ``folder`` runs."""
    script = EXAMPLES / name
    if folder is not None:
        text = script.read_text()
        assert text.count('kv_cache_dtype="auto"') == 1
        script = folder / name
        script.write_text(text.replace('kv_cache_dtype="auto"', f'kv_cache_dtype="{kv_cache_dtype}"'))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.usefixtures("smollm2_path")
def test_llm_example():
    assert run("llm.py").strip()


@pytest.mark.usefixtures("smollm2_path")
def test_async_engine_example():
    lines = run("async_engine.py").splitlines()
    assert {line[:3] for line in lines} == {"[1]", "[2]"} and len(lines) >= 4


@pytest.mark.usefixtures("smollm2_path")
@pytest.mark.parametrize("dtype", ["fp8_e5m2", pytest.param("fp8", marks=pytest.mark.slow)])
def test_llm_example_with_8_bit_kv(tmp_path, dtype):
    assert run("llm.py", tmp_path, dtype).strip()


@pytest.mark.usefixtures("smollm2_path")
@pytest.mark.parametrize("dtype", ["fp8", pytest.param("fp8_e5m2", marks=pytest.mark.slow)])
def test_async_engine_example_with_8_bit_kv(tmp_path, dtype):
    assert len(run("async_engine.py", tmp_path, dtype).splitlines()) >= 2
