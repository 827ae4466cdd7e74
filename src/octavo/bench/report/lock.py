"""One measurement at a time on a machine: two would measure each other."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from octavo import envs
from octavo.bench.report.private import command_line
from octavo.errors import OctavoError

_POLL = 0.5
"""Seconds between two tries."""


class MachineBusyError(OctavoError):
    """Another measurement runs on this machine."""


@dataclass(frozen=True)
class Holder:
    """Who measures."""

    pid: int
    command: str
    since: str
    """Its start, local time."""

    def __str__(self) -> str:
        return f"process {self.pid} ({self.command}), since {self.since}"


@contextlib.contextmanager
def measuring(wait: bool = False, tell: Callable[[str], None] | None = None) -> Iterator[None]:
    """Hold this machine for a measurement.

    The lock is an flock on a file that all users share (octavo.envs.lock_file): the kernel lets go of it when its holder dies. A process
    that descends from the holder is part of the same measurement and passes, so nested commands do not wait for themselves.

    ``wait``: wait until the machine is free, and ``tell`` once for whom; otherwise refuse.

    Raises:
        MachineBusyError: another measurement runs, and ``wait`` is False.
        OSError: there can be no such file.
    """
    with _open(envs.lock_file()) as file:
        told = False
        while not _take(file):
            holder = _holder(file)
            if holder is not None and holder.pid in _ancestors():
                yield
                return
            if not wait:
                raise MachineBusyError(f"another measurement runs on this machine: {_named(holder)}; --wait-for-lock waits for its end")
            if not told and tell is not None:
                tell(f"waiting for another measurement on this machine: {_named(holder)}")
                told = True
            time.sleep(_POLL)
        _sign(file)
        try:
            yield
        finally:
            _wipe(file)


def _open(path: Path) -> IO[str]:
    """For reading and writing if we may, else for reading, which is enough to lock. Any user may lock what any user made.

    The file is opened without O_CREAT first: in a sticky folder the kernel refuses that flag on somebody else's file
    (fs.protected_regular, proc_sys_fs(5)).
    """
    for flags in (os.O_RDWR, os.O_RDWR | os.O_CREAT | os.O_EXCL, os.O_RDWR, os.O_RDONLY):
        with contextlib.suppress(FileNotFoundError, FileExistsError, PermissionError):
            number = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
            if flags & os.O_CREAT:
                os.fchmod(number, 0o666)  # whatever the umask
            return os.fdopen(number, "r" if flags == os.O_RDONLY else "r+", encoding="utf-8")
    raise OSError(f"{path}: cannot be opened, so nothing says whether another measurement runs; OCTAVO_BENCH_LOCK names another file")


def _take(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sign(file: IO[str]) -> None:
    if file.writable():
        _write(file, json.dumps({"pid": os.getpid(), "command": command_line(), "since": time.strftime("%F %T")}))


def _wipe(file: IO[str]) -> None:
    if file.writable():
        _write(file, "")


def _write(file: IO[str], content: str) -> None:
    file.seek(0)
    file.truncate()
    file.write(content)
    file.flush()


def _holder(file: IO[str]) -> Holder | None:
    """Who signed; None when that cannot be told."""
    file.seek(0)
    try:
        signed = json.loads(file.read(10_000))
        return Holder(int(signed["pid"]), str(signed["command"])[:300], str(signed["since"]))
    except (ValueError, KeyError, TypeError):
        return None


def _named(holder: Holder | None) -> str:
    return str(holder) if holder is not None else f"{envs.lock_file()} is locked"


def _ancestors() -> set[int]:
    """This process and those it descends from."""
    found, pid = set(), os.getpid()
    while pid > 0 and pid not in found:
        found.add(pid)
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            break
    return found
