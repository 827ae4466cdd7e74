"""Scripted models for tests of the engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from octavo import EngineArgs
from support import scripted
from support.toy_tokenizer import byte_level, write_model


@pytest.fixture(autouse=True)
def runners_found_by_engine_processes(monkeypatch):
    """An engine process imports support.scripted, as this one does."""
    monkeypatch.setenv("PYTHONPATH", str(Path(scripted.__file__).parents[1]), prepend=os.pathsep)


@pytest.fixture
def make_args(tmp_path) -> Callable[..., EngineArgs]:
    """EngineArgs of a model that emits given texts, one token each (``texts``: one list a completion), or a Script's fields."""
    count = iter(range(1000))

    def make(texts: Sequence[Sequence[str]] = (), script: dict[str, Any] | None = None, **args: Any) -> EngineArgs:
        pieces = dict.fromkeys(text for output in texts for text in output)
        document, ids = byte_level(list(pieces))
        fields = {"outputs": [[ids[text] for text in output] for output in texts]} if texts else {}
        model = write_model(tmp_path / f"model{next(count)}", scripted.Script(**(fields | (script or {}))), document)
        return EngineArgs(**({"model": model, "runner_cls": scripted.SCRIPTED, "max_model_len": 1024} | args))

    return make
