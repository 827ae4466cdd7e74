"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def own_bench_lock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Benchmarks that tests run do not wait for, nor refuse, those that people run on this machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "OCTAVO_BENCH_LOCK", str(tmp_path_factory.mktemp("lock") / "bench.lock"))
        yield


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The embedded model's GGUF file, fetched when it is not there yet."""
    from octavo.weights import hub

    return hub.resolve("smollm2")


@pytest.fixture(scope="session")
def gemma3_path() -> Path:
    """Gemma 3 270M as a GGUF file, fetched when it is not there yet."""
    from octavo.weights import hub

    return hub.resolve("gemma3-270m")
