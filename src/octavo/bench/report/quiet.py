"""Was the machine quiet? What else ran on it, before a measurement and during it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from octavo.bench.report.processes import PROC, MachineTimes, ProcessTimes, families, machine_times, process_times

OTHERS_LIMIT = 0.1
"""CPUs that others may keep busy on average, on a machine that still counts as quiet."""
STEAL_LIMIT = 0.02
"""Share of the CPU time the machine wanted that its host may take away."""
_ENGINES = re.compile(r"llama-server|llama-bench|ollama|vllm|sglang|trtllm|text-generation|octavo|guidellm|locust|wrk\b|stress")


@dataclass(frozen=True, kw_only=True)
class Quietness:
    """What else the machine did. Shares and averages are over the time looked at; None: not readable here."""

    seconds: float
    others_cpus: float | None
    """CPUs kept busy by processes that are neither client nor server."""
    steal_share: float | None
    """Of the CPU time the machine wanted, taken by its host."""
    load_average: float | None = None
    """Of the last minute; the measurement's own part is in it."""
    engines: Sequence[str] = field(default_factory=tuple)
    """Other engines and benchmarks that ran, by name."""
    busiest: Sequence[str] = field(default_factory=tuple)
    """The processes behind others_cpus."""

    @property
    def quiet(self) -> bool:
        return (self.others_cpus or 0.0) <= OTHERS_LIMIT and (self.steal_share or 0.0) <= STEAL_LIMIT

    def words(self, when: str) -> str | None:
        """A sentence for the reader when it was not quiet; ``when``: "before the run", "during the run"."""
        said = []
        if (self.others_cpus or 0.0) > OTHERS_LIMIT:
            who = f" ({', '.join(self.busiest)})" if self.busiest else ""
            said.append(f"other processes kept {self.others_cpus:.1f} CPUs busy{who}")
        if (self.steal_share or 0.0) > STEAL_LIMIT:
            said.append(f"the host took {100 * (self.steal_share or 0.0):.0f} % of the CPU time away (steal)")
        return f"The machine was not quiet {when}: {'; '.join(said)}." if said else None

    def as_facts(self) -> dict[str, Any]:
        facts = {"quiet": self.quiet, "others_cpus": self.others_cpus, "steal_share": self.steal_share, "load_average": self.load_average}
        return {**facts, "other_engines": list(self.engines), "busiest": list(self.busiest), "seconds": self.seconds}


class Quiet:
    """Looks at the machine around a measurement.

    ``own``: processes that belong to it besides this one, such as a server on this machine; their descendants and this process's count
    as its own too. Only counters are read, at the start and at the end: nothing runs in between.
    """

    def __init__(self, own: Sequence[int] = (), proc: Path = PROC, clock: Callable[[], float] = time.monotonic) -> None:
        self.own = list(own)
        self.before: Quietness | None = None
        self.during: Quietness | None = None
        self._proc = proc
        self._clock = clock
        self._start: _Look | None = None

    def look_before(self, seconds: float = 1.0, sleep: Callable[[float], None] = time.sleep) -> Quietness:
        """Look for ``seconds`` while the measurement does nothing yet. A server that idles belongs to it."""
        first = _Look.now(self._proc, self._clock)
        sleep(seconds)
        self.before = self._between(first, _Look.now(self._proc, self._clock))
        return self.before

    def start(self) -> None:
        """The measurement begins."""
        self._start = _Look.now(self._proc, self._clock)

    def stop(self) -> Quietness | None:
        """It has ended; None if it never began."""
        if self._start is not None:
            self.during = self._between(self._start, _Look.now(self._proc, self._clock))
        return self.during

    def __enter__(self) -> Quiet:
        self.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self.stop()

    def warnings(self) -> list[str]:
        """Sentences for the summary; none when it was quiet."""
        looks = ((self.before, "before the run"), (self.during, "during the run"))
        return [words for look, when in looks if look is not None and (words := look.words(when)) is not None]

    def as_facts(self) -> dict[str, Any]:
        """For the report's facts."""
        looks = {"before": self.before, "during": self.during}
        return {name: look.as_facts() for name, look in looks.items() if look is not None}

    def _between(self, first: _Look, last: _Look) -> Quietness:
        seconds = max(last.time - first.time, 1e-6)
        roots = [os.getpid(), *self.own]
        own = families(first.processes, roots) | families(last.processes, roots)
        others = {pid: (each.seconds - first.seconds(pid)) / seconds for pid, each in last.processes.items() if pid not in own}
        busiest = sorted((pid for pid, cpus in others.items() if cpus >= 0.02), key=lambda pid: -others[pid])[:3]
        return Quietness(
            seconds=seconds,
            others_cpus=_others(first, last, last.total(own) - first.total(own), seconds),
            steal_share=_steal(first.machine, last.machine),
            load_average=_load_average(self._proc),
            engines=sorted({each.name for pid, each in last.processes.items() if pid not in own and _ENGINES.search(each.name)}),
            busiest=[f"{last.processes[pid].name} {others[pid]:.2f}" for pid in busiest],
        )


@dataclass(frozen=True)
class _Look:
    """All counters at one moment."""

    time: float
    machine: MachineTimes | None
    processes: dict[int, ProcessTimes]

    @classmethod
    def now(cls, proc: Path, clock: Callable[[], float]) -> _Look:
        return cls(clock(), machine_times(proc), process_times(proc))

    def seconds(self, pid: int) -> float:
        """0 for a process that was not there."""
        return self.processes[pid].seconds if pid in self.processes else 0.0

    def total(self, pids: Iterable[int]) -> float:
        """CPU time of a family. A member that ends in between moves from its own account to its parent's, and the sum stays true."""
        return sum(self.processes[pid].seconds + self.processes[pid].of_children for pid in pids if pid in self.processes)


def _others(first: _Look, last: _Look, own: float, seconds: float) -> float | None:
    """What the machine did less what we did: processes that came and went in between count too."""
    if first.machine is None or last.machine is None:
        return None
    return max(last.machine.busy - first.machine.busy - own, 0.0) / seconds


def _steal(first: MachineTimes | None, last: MachineTimes | None) -> float | None:
    if first is None or last is None:
        return None
    stolen, busy = last.stolen - first.stolen, last.busy - first.busy
    return stolen / (stolen + busy) if stolen > 0 else 0.0


def _load_average(proc: Path) -> float | None:
    try:
        return float((proc / "loadavg").read_text(encoding="utf-8").split()[0])
    except (OSError, ValueError, IndexError):
        return None
