"""What this machine can do at most: the limits that ``bench latency`` compares with."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from octavo import __version__, envs
from octavo.bench.report.cpu import cpu_facts


@dataclass(frozen=True)
class MachineRates:
    """Measured rates, per second, of all ``cpus`` together."""

    read_bytes_s: float
    """Bytes read from memory."""
    int8_ops_s: float
    """Multiplications and additions of int8, accumulated in int32; a multiply-add is two."""
    bf16_flops_s: float
    fp32_flops_s: float
    cpus: tuple[int, ...]

    def of(self, arithmetic: str) -> float:
        """Operations a second in "q8", "bf16" or "f32"."""
        return {"q8": self.int8_ops_s, "bf16": self.bf16_flops_s, "f32": self.fp32_flops_s}[arithmetic]


def engine_cpus(num_threads: int | None = None) -> list[int]:
    """The CPUs an engine's threads would be pinned to."""
    from octavo.ops.threads import choose_cpus

    return choose_cpus(num_threads or envs.num_threads())


def measure(cpus: Sequence[int], seconds: float = 1.0) -> MachineRates:
    """Run the native measuring loops on ``cpus``, about ``seconds`` each, and take the best of each."""
    from octavo import _native

    return MachineRates(**_native.machine_rates(list(cpus), seconds), cpus=tuple(cpus))


def machine_facts() -> dict[str, Any]:
    """What a figure's reader must know of where it was measured."""
    return {
        "cpu": cpu_facts()["cpu"],
        "cpus": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "octavo": __version__,
    }


def machine_line(isa: str, rates: MachineRates) -> str:
    """A figure's machine in a line: the CPU, what ran on it, and its measured limits."""
    facts = cpu_facts()
    cpu = " ".join(str(facts["cpu"]).split())
    family = f" (family/model/stepping {facts['family_model_stepping']})" if facts["family_model_stepping"] else ""
    return (
        f"{cpu}{family}, {isa}, {len(rates.cpus)} threads; "
        f"reads {rates.read_bytes_s / 1e9:.1f} GB/s, int8 {rates.int8_ops_s / 1e9:,.0f} GOP/s, "
        f"bf16 {rates.bf16_flops_s / 1e9:,.0f} GFLOP/s, fp32 {rates.fp32_flops_s / 1e9:,.0f} GFLOP/s"
    )
