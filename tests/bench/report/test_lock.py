"""One measurement at a time: across processes, with a name for who holds the machine, and never in one's own way."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from octavo.bench.report import lock

HOLD = "from octavo.bench.report.lock import measuring\nwith measuring():\n    print('held', flush=True)\n    input()\n"
NEST = "from octavo.bench.report.lock import measuring\nwith measuring():\n    print('passed')\n"


@pytest.fixture(autouse=True)
def lock_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OCTAVO_BENCH_LOCK", str(tmp_path / "bench.lock"))
    return tmp_path / "bench.lock"


@contextmanager
def another_holds() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        yield process
        if process.poll() is None:
            process.communicate("\n")


def test_a_second_measurement_is_refused_by_name() -> None:
    said = r"process {} \(.*\), since .*--wait-for-lock"
    with another_holds() as process, pytest.raises(lock.MachineBusyError, match=said.format(process.pid)), lock.measuring():
        pytest.fail("two measure at once")
    with lock.measuring():
        pass


def test_it_waits_and_says_for_whom_once(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    with another_holds() as process:
        naps = iter([lambda: None, lambda: process.communicate("\n")])
        monkeypatch.setattr(lock.time, "sleep", lambda seconds: next(naps)())
        with lock.measuring(wait=True, tell=said.append):
            assert process.returncode == 0
    assert len(said) == 1 and f"process {process.pid} " in said[0]


def test_a_holder_that_dies_holds_nothing() -> None:
    with another_holds() as process:
        process.kill()
        process.wait()
        with lock.measuring():
            pass


def test_what_a_measurement_starts_passes() -> None:
    """A nested command of the same run must not wait for itself; nor does a nested call in one process."""
    with lock.measuring(), lock.measuring():
        nested = subprocess.run([sys.executable, "-c", NEST], capture_output=True, text=True, timeout=60)
        assert nested.stdout == "passed\n", nested.stderr
    with another_holds(), pytest.raises(lock.MachineBusyError), lock.measuring():
        pass


def test_any_user_may_lock_it(lock_file: Path) -> None:
    before = os.umask(0o077)
    try:
        with lock.measuring():
            assert stat.S_IMODE(lock_file.stat().st_mode) == 0o666
    finally:
        os.umask(before)
    assert lock_file.read_text() == ""


def test_a_file_that_cannot_be_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OCTAVO_BENCH_LOCK", str(tmp_path / "no" / "such" / "folder"))
    with pytest.raises(OSError, match="OCTAVO_BENCH_LOCK names another file"), lock.measuring():
        pass
