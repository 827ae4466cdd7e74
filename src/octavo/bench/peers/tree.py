"""A server's processes, by /proc: which there are, and the memory they take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")


class Process(NamedTuple):
    """One live process. A pid comes back in time; with its start it is one process for good."""

    pid: int
    started: int
    """Clock ticks after boot."""


@dataclass(frozen=True)
class Memory:
    """Of a tree of processes, in bytes."""

    peak: int
    """Sum of each process's high-water mark, less what it shares with others: see PeakMemory."""
    upper: int
    """The same with shared pages counted in each process: no peak can have been higher."""
    processes: int
    """The most there were."""


class PeakMemory:
    """The most memory a tree of processes took.

    The kernel keeps each process's high-water mark of resident memory (VmHWM), which costs nothing to read and misses no peak, but
    counts a page that several processes share (libraries, a model file mapped twice, what a fork has not written to) in each of them.
    What is counted too often at one moment is the sum of Rss - Pss. Reading Pss makes the kernel walk every page, milliseconds in which
    the server may stand still; so ``sample`` reads marks only, and ``settle`` reads Pss too, when no load runs. The peak is the sum of
    marks less that excess.
    """

    def __init__(self) -> None:
        self._upper = 0
        self._excess = 0
        self._processes = 0

    def sample(self, processes: list[Process]) -> None:
        """Note the marks of the processes that live now."""
        self._upper = max(self._upper, sum(_field(p.pid, "status", "VmHWM") for p in processes))
        self._processes = max(self._processes, len(processes))

    def settle(self, processes: list[Process]) -> None:
        """Note the marks, and what of them is counted too often."""
        self.sample(processes)
        rollups = [(_field(p.pid, "smaps_rollup", "Rss"), _field(p.pid, "smaps_rollup", "Pss")) for p in processes]
        self._excess = max(self._excess, sum(rss - pss for rss, pss in rollups if pss))

    @property
    def memory(self) -> Memory | None:
        """None if nothing was seen, as on a system without /proc."""
        return Memory(self._upper - self._excess, self._upper, self._processes) if self._upper else None


def processes_of(leader: int) -> list[Process]:
    """The live processes of the session that ``leader`` leads, and all that descend from them, whatever session they chose."""
    stats = {process.pid: (process, parent, session) for process, parent, session in _all_processes()}
    members = {pid for pid, (_, _, session) in stats.items() if session == leader or pid == leader}
    while found := {pid for pid, (_, parent, _) in stats.items() if parent in members} - members:
        members |= found
    return [stats[pid][0] for pid in sorted(members)]


def is_alive(process: Process) -> bool:
    """Whether it still runs: a zombie does not."""
    stat = _stat(process.pid)
    return stat is not None and stat[0] == process


def _all_processes() -> list[tuple[Process, int, int]]:
    """(process, parent, session) of each."""
    try:
        pids = [int(path.name) for path in PROC.iterdir() if path.name.isdigit()]
    except OSError:  # no /proc
        return []
    return [stat for pid in pids if (stat := _stat(pid)) is not None]


def _stat(pid: int) -> tuple[Process, int, int] | None:
    """Of a process that is no zombie. The fields follow the command's name, which may hold blanks and brackets: proc_pid_stat(5)."""
    try:
        fields = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    if not fields or fields[0] in "ZX":
        return None
    return Process(pid, int(fields[19])), int(fields[1]), int(fields[3])


def _field(pid: int, file: str, name: str) -> int:
    """A line "Name:   123 kB" of a process's file, in bytes; 0 if there is none or the process is gone."""
    try:
        for line in (PROC / str(pid) / file).read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith(f"{name}:"):
                return 1024 * int(line.split()[1])
    except OSError:
        pass
    return 0
