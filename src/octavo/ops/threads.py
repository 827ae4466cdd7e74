"""Which CPUs the compute threads take: those that affinity allows, one a core, no more than the cgroup's quota pays for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from octavo.errors import InvalidRequestError


def choose_cpus(num_threads: int | None = None, *, affinity: Iterable[int] | None = None, root: Path = Path("/")) -> list[int]:
    """CPU ids, one a thread, for ``octavo._native.ThreadPool``.

    By default one thread a core (SMT siblings share one), at most the cgroup's CPU quota rounded down, and at least one.
    ``num_threads`` overrides both limits but not affinity: past the cores it takes their siblings too. ``affinity`` is this
    process's, and ``root`` holds proc and sys, unless a test says otherwise. Raises InvalidRequestError.
    """
    allowed = sorted(os.sched_getaffinity(0) if affinity is None else affinity)
    cores = one_per_core(allowed, root)
    if num_threads is None:
        return cores[: int(max(1, min(len(cores), cgroup_cpus(root))))]
    if not 1 <= num_threads <= len(allowed):
        raise InvalidRequestError(f"num_threads = {num_threads}: this process may use 1 to {len(allowed)} CPUs", field="num_threads")
    siblings = [cpu for cpu in allowed if cpu not in cores]
    return (cores + siblings)[:num_threads]


def one_per_core(allowed: Iterable[int], root: Path = Path("/")) -> list[int]:
    """The lowest allowed CPU of each core, rising."""
    cores: dict[str, int] = {}
    for cpu in sorted(allowed):
        cores.setdefault(_siblings(cpu, root), cpu)
    return list(cores.values())


def _siblings(cpu: int, root: Path) -> str:
    """The hardware threads of ``cpu``'s core, as the kernel lists them; a CPU of which nothing is known is a core of its own."""
    try:
        return (root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)


def cgroup_cpus(root: Path = Path("/")) -> float:
    """CPUs' worth of time a period that this process's cgroup and its ancestors grant; infinity where none limits it."""
    limits = [_v2_limit(folder) for folder in _folders(root, "")]
    limits += [_v1_limit(folder) for folder in _folders(root, "cpu")]
    return min(limits, default=float("inf"))


def _folders(root: Path, controller: str) -> Iterator[Path]:
    """The cgroup folders that count for ``controller`` ("" is version 2), from this process's own up to the mount."""
    mounts = [root / "sys/fs/cgroup"] if controller == "" else [root / f"sys/fs/cgroup/{name}" for name in ("cpu", "cpu,cpuacct")]
    path = _own_path(root, controller)
    for mount in mounts:
        folder = mount / path.lstrip("/")
        # Inside a container the path may be the host's: then only the mount itself is there to see.
        yield from [f for f in (folder, *folder.parents) if f.is_relative_to(mount)]


def _own_path(root: Path, controller: str) -> str:
    """This process's place in the hierarchy, from /proc/self/cgroup: lines of id:controllers:path."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return "/"
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path
    return "/"


def _v2_limit(folder: Path) -> float:
    """cpu.max: "quota period" in µs, or "max period"."""
    try:
        quota, period = (folder / "cpu.max").read_text().split()
    except (OSError, ValueError):
        return float("inf")
    return float("inf") if quota == "max" else int(quota) / int(period)


def _v1_limit(folder: Path) -> float:
    """cpu.cfs_quota_us and cpu.cfs_period_us; a negative quota is none."""
    try:
        quota = int((folder / "cpu.cfs_quota_us").read_text())
        period = int((folder / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return float("inf")
    return quota / period if quota > 0 else float("inf")
