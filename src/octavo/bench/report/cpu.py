"""What the processor is, by the kernel's account (/proc/cpuinfo, /sys/devices/system/cpu)."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

PROC = Path("/proc")
CPUS = Path("/sys/devices/system/cpu")
_TELLING = ("avx", "amx", "vnni", "bf16", "fma", "f16c", "sse4", "asimd", "sve", "i8mm", "dotprod", "hypervisor")
"""Flags that decide how fast a model runs begin with these or end in them."""


def cpu_facts(proc: Path = PROC, cpus: Path = CPUS) -> dict[str, Any]:
    """Model, counts, caches of one core and of its neighbours, instruction sets, governor. None: not readable here."""
    info = _cpuinfo(proc)
    flags = (info.get("flags") or info.get("Features") or "").split()
    return {
        "cpu": info.get("model name") or info.get("Processor") or platform.machine(),
        "logical_cpus": os.cpu_count(),
        "usable_cpus": len(os.sched_getaffinity(0)),
        "cores_per_socket": _number(info.get("cpu cores")),
        "family_model_stepping": "/".join(info.get(name, "?") for name in ("cpu family", "model", "stepping"))
        if "cpu family" in info
        else None,
        "virtual": "hypervisor" in flags,
        "caches": _caches(cpus),
        "flags": [flag for flag in flags if any(flag.startswith(t) or flag.endswith(t) for t in _TELLING) and flag != "hypervisor"],
        "governor": _read(cpus / "cpu0/cpufreq/scaling_governor"),
        "turbo": _turbo(cpus),
        "memory_bytes": _memory(proc),
    }


def _cpuinfo(proc: Path) -> dict[str, str]:
    """Of the first CPU."""
    lines = (_read(proc / "cpuinfo") or "").split("\n\n", 1)[0].splitlines()
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _caches(cpus: Path) -> list[str] | None:
    """Of the first CPU: "L2 1024K", with how many CPUs share it where there are several."""
    found = []
    for index in sorted((cpus / "cpu0/cache").glob("index*")):
        level, kind, size = (_read(index / name) for name in ("level", "type", "size"))
        if level and size:
            letter = {"Data": "d", "Instruction": "i"}.get(kind or "", "")
            found.append(f"L{level}{letter} {size}{_shared(_read(index / 'shared_cpu_list'))}")
    return found or None


def _shared(cpu_list: str | None) -> str:
    """ "0-3,8" is five."""
    ranges = [part.partition("-") for part in (cpu_list or "0").split(",")]
    count = sum(int(last or first) - int(first) + 1 for first, _, last in ranges)
    return f" ({count} CPUs)" if count > 1 else ""


def _turbo(cpus: Path) -> bool | None:
    boost, no_turbo = _read(cpus / "cpufreq/boost"), _read(cpus / "intel_pstate/no_turbo")
    if boost is not None:
        return boost == "1"
    return None if no_turbo is None else no_turbo == "0"


def _memory(proc: Path) -> int | None:
    line = (_read(proc / "meminfo") or "").partition("\n")[0].split()
    return 1024 * int(line[1]) if len(line) > 1 and line[0] == "MemTotal:" else None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None
