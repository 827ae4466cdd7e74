"""Joules of a measurement, where the machine counts them: RAPL for processors, NVML for NVIDIA accelerators."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

POWERCAP = Path("/sys/class/powercap")
_INTERVAL = 10.0
"""Seconds between two readings: far less than a counter takes to wrap around (from 65 kJ on: a minute at 1 kW)."""
_MICRO = 1e-6
_COUNTED = ("package", "dram")
"""RAPL's domains that add up. core and uncore are parts of a package; psys holds it all again."""


class Counter(Protocol):
    """Something that counts joules."""

    def advance(self) -> dict[str, float]:
        """Joules since the last call, by domain; the first call begins."""


@dataclass(frozen=True)
class Energy:
    """Of the whole machine as far as it is counted, idle power with it."""

    joules: float | None
    """None: not readable here."""
    seconds: float
    domains: Mapping[str, float] = field(default_factory=dict)
    """By domain: package-0, dram-0, gpu-0, …"""

    def as_data(self, output_tokens: int | None = None) -> dict[str, Any]:
        """For a result. Joules a token count everything that the machine used meanwhile."""
        if self.joules is None:
            return {"joules": None, "why": "neither RAPL nor NVML can be read here"}
        per_token = self.joules / output_tokens if output_tokens else None
        return {
            "joules": self.joules,
            "watts": self.joules / self.seconds if self.seconds else None,
            "joules_per_output_token": per_token,
            "domains": dict(self.domains),
        }


class EnergyMeter:
    """Context manager around a measurement; ``energy`` afterwards."""

    def __init__(self, powercap: Path = POWERCAP, gpus: Callable[[], Counter | None] | None = None, interval: float = _INTERVAL) -> None:
        """``gpus``: makes the counter of accelerators; by default NVML's, if there are any."""
        self.energy = Energy(None, 0.0)
        self._counters: list[Counter] = [RaplCounter(powercap)]
        if (gpu := (gpus or nvidia_counter)()) is not None:
            self._counters.append(gpu)
        self._interval = interval
        self._done = threading.Event()
        self._thread: threading.Thread | None = None
        self._joules: dict[str, float] = {}
        self._started = 0.0

    def __enter__(self) -> EnergyMeter:
        self._read()
        self._joules = dict.fromkeys(self._joules, 0.0)
        self._started = time.monotonic()
        if self._joules:
            self._thread = threading.Thread(target=self._watch, name="energy", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()
        self._read()
        seconds = time.monotonic() - self._started
        self.energy = Energy(sum(self._joules.values()) if self._joules else None, seconds, dict(self._joules))

    def _watch(self) -> None:
        while not self._done.wait(self._interval):
            self._read()

    def _read(self) -> None:
        for counter in self._counters:
            for domain, joules in counter.advance().items():
                self._joules[domain] = self._joules.get(domain, 0.0) + joules


class RaplCounter:
    """The kernel's powercap interface (Documentation/power/powercap): microjoules in energy_uj, back to 0 after max_energy_range_uj.

    Since 2020 only root may read it on most systems (CVE-2020-8694); then there are no domains.
    """

    def __init__(self, powercap: Path = POWERCAP) -> None:
        self._domains: dict[str, tuple[Path, int]] = {}
        self._last: dict[str, int] = {}
        for zone in sorted(powercap.glob("*rapl*:*")) if powercap.is_dir() else ():
            self._add(zone)

    def advance(self) -> dict[str, float]:
        joules: dict[str, float] = {}
        for name, (zone, limit) in self._domains.items():
            with contextlib.suppress(OSError, ValueError):
                now = int((zone / "energy_uj").read_text())
                gone = now - self._last.get(name, now)
                joules[name] = (gone if gone >= 0 else gone + limit) * _MICRO
                self._last[name] = now
        return joules

    def _add(self, zone: Path) -> None:
        """Under a name of its own: dram is called the same under each package."""
        with contextlib.suppress(OSError, ValueError):
            kind = (zone / "name").read_text().strip()
            int((zone / "energy_uj").read_text())
            if kind.startswith(_COUNTED) and not zone.name.startswith("intel-rapl-mmio"):
                package = zone.name.split(":")[1]
                name = kind if kind.startswith("package") else f"{kind}-{package}"
                self._domains[name] = (zone, int((zone / "max_energy_range_uj").read_text()))


def nvidia_counter() -> Counter | None:
    """NVML's own counter where pynvml is installed, else the power that nvidia-smi says, over time; None without either."""
    with contextlib.suppress(Exception):  # no such module, no driver, no such function on an old card
        return NvmlCounter()
    return PowerCounter(_smi_watts) if shutil.which("nvidia-smi") and _smi_watts() else None


class NvmlCounter:
    """nvmlDeviceGetTotalEnergyConsumption: millijoules since the driver was loaded."""

    def __init__(self) -> None:
        """Raises whatever pynvml raises where it does not work."""
        import pynvml  # type: ignore[import-not-found, unused-ignore]  # comes with some drivers' tools

        pynvml.nvmlInit()
        self._read = pynvml.nvmlDeviceGetTotalEnergyConsumption
        self._devices = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        self._last = [self._read(device) for device in self._devices]

    def advance(self) -> dict[str, float]:
        now = [self._read(device) for device in self._devices]
        joules = {f"gpu-{i}": (after - before) / 1000 for i, (after, before) in enumerate(zip(now, self._last, strict=True))}
        self._last = now
        return joules


class PowerCounter:
    """Watts, taken for what was drawn since the last reading on average with that one (trapezoids)."""

    def __init__(self, watts: Callable[[], list[float]], clock: Callable[[], float] = time.monotonic) -> None:
        self._watts = watts
        self._clock = clock
        self._last: tuple[float, list[float]] | None = None

    def advance(self) -> dict[str, float]:
        now, watts = self._clock(), self._watts()
        before, earlier = self._last or (now, watts)
        self._last = (now, watts)
        return {f"gpu-{i}": (now - before) * (a + b) / 2 for i, (a, b) in enumerate(zip(earlier, watts, strict=False))}


def _smi_watts() -> list[float]:
    """Of each card; none where it cannot be said."""
    command = ["nvidia-smi", "--query-gpu=power.draw", "--format=csv,noheader,nounits"]
    try:
        lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=5).stdout.split()
        return [float(line) for line in lines]
    except (OSError, ValueError, subprocess.SubprocessError):
        return []
