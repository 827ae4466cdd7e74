"""CPU time of the machine and of processes, by /proc (proc_stat(5), proc_pid_stat(5))."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")
"""A second's, of all times in /proc."""


@dataclass(frozen=True)
class MachineTimes:
    """Seconds of all CPUs together since boot."""

    busy: float
    """Running processes; interrupts and time stolen are none of it."""
    stolen: float
    """In which this virtual machine wanted a CPU and its host ran somebody else."""


@dataclass(frozen=True)
class ProcessTimes:
    """A process as it is now."""

    pid: int
    parent: int
    name: str
    """Of the command, at most 15 letters."""
    seconds: float
    """CPU time of its own."""
    of_children: float
    """Of children that have ended and were waited for, each with all of its life."""


def machine_times(proc: Path = PROC) -> MachineTimes | None:
    """None where there is no /proc/stat."""
    try:
        fields = (proc / "stat").read_text(encoding="utf-8").split("\n", 1)[0].split()
        user, nice, system, _, _, _, _, steal = (int(field) / TICKS for field in fields[1:9])
    except (OSError, ValueError):
        return None
    return MachineTimes(user + nice + system, steal)


def process_times(proc: Path = PROC) -> dict[int, ProcessTimes]:
    """Of each process that can be seen, by pid."""
    try:
        pids = [int(path.name) for path in proc.iterdir() if path.name.isdigit()]
    except OSError:
        return {}
    return {pid: times for pid in pids if (times := _times(proc, pid)) is not None}


def _times(proc: Path, pid: int) -> ProcessTimes | None:
    try:
        before, _, after = (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")
    except OSError:  # it has ended
        return None
    fields = after.split()
    user, system, childrens_user, childrens_system = (int(field) / TICKS for field in fields[11:15])
    return ProcessTimes(pid, int(fields[1]), before.partition("(")[2], user + system, childrens_user + childrens_system)


def families(times: dict[int, ProcessTimes], roots: Iterable[int]) -> set[int]:
    """``roots`` and all that descend from them."""
    members = {pid for pid in roots if pid in times}
    while found := {pid for pid, each in times.items() if each.parent in members} - members:
        members |= found
    return members


def listener(port: int, proc: Path = PROC) -> int | None:
    """The process that listens on a TCP port of this machine, if we may see it: the one whose socket /proc/net/tcp names."""
    sockets = {f"socket:[{inode}]" for inode in _listening(port, proc)}
    if not sockets:
        return None
    for path in proc.iterdir():
        if path.name.isdigit():
            try:
                if any(os.readlink(link) in sockets for link in (path / "fd").iterdir()):
                    return int(path.name)
            except OSError:  # ended, or another user's
                continue
    return None


def _listening(port: int, proc: Path) -> list[str]:
    """Inodes of sockets in state LISTEN (0A) on ``port``."""
    found = []
    for name in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / name).read_text(encoding="utf-8").splitlines()[1:]
        except OSError:
            continue
        fields = (line.split() for line in lines)
        found += [each[9] for each in fields if each[3] == "0A" and int(each[1].rpartition(":")[2], 16) == port]
    return found
