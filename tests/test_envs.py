"""The environment: bad values are told by name."""

from __future__ import annotations

import pytest

from octavo import envs
from octavo.errors import InvalidRequestError


@pytest.mark.parametrize("value", ["x", "-1", "1.5", "٣", "9" * 50, "0x2"])
def test_threads_that_are_no_number(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("OCTAVO_NUM_THREADS", value)
    with pytest.raises(InvalidRequestError, match="OCTAVO_NUM_THREADS = "):
        envs.num_threads()


@pytest.mark.parametrize(("value", "threads"), [("", None), ("3", 3)])
def test_threads(monkeypatch: pytest.MonkeyPatch, value: str, threads: int | None) -> None:
    monkeypatch.setenv("OCTAVO_NUM_THREADS", value)
    assert envs.num_threads() == threads


def test_log_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, level in (("", "info"), ("WARNING", "warning"), ("debug", "debug")):
        monkeypatch.setenv("OCTAVO_LOG_LEVEL", value)
        assert envs.log_level() == level
    monkeypatch.setenv("OCTAVO_LOG_LEVEL", "loud")
    with pytest.raises(InvalidRequestError, match="OCTAVO_LOG_LEVEL = 'loud': choose one of debug, info"):
        envs.log_level()
