"""The examples run as they stand, with the embedded model. They sample without a seed, so an answer may be short."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str) -> str:
    done = subprocess.run([sys.executable, EXAMPLES / name], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.usefixtures("smollm2_path")
def test_llm_example():
    assert run("llm.py").strip()


@pytest.mark.usefixtures("smollm2_path")
def test_async_engine_example():
    lines = run("async_engine.py").splitlines()
    assert {line[:3] for line in lines} == {"[1]", "[2]"} and len(lines) >= 4
