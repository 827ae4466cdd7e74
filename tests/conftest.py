"""Fixtures shared by all tests."""

from __future__ import annotations

from pathlib import Path

import pytest


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
