"""The kernels of 64-bit Arm: csrc/tests cross-built and run under qemu-user, as CPUs with and without dot and matrix products.

The program holds every kernel to plain references in double precision. It runs on the host too: where both sides promise the same bits
(neon and neon_dotprod those of avx2, generic its own), they are compared.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.arm import ARM_COMPILER, QEMU, missing

ROOT = Path(__file__).resolve().parent.parent.parent
CROSS = ["-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64", f"-DCMAKE_CXX_COMPILER={ARM_COMPILER}"]

CPUS = {
    "cortex-a72": ["neon", "generic"],
    "neoverse-n1": ["neon_dotprod", "neon", "generic"],
    "max": ["neon_i8mm", "neon_dotprod", "neon", "generic"],
}
"""Of qemu, with the instruction sets that must be found on them; the first is run, and on the oldest CPU generic too."""
SAME_BITS = {"neon": "avx2", "neon_dotprod": "avx2", "neon_i8mm": "avx2", "generic": "generic"}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@dataclass
class Outcome:
    """What a run of the program printed."""

    found: list[str]
    bits: dict[tuple[str, str], str]
    checked: dict[str, tuple[int, int]]


def build(folder: str, options: list[str]) -> Path:
    where, path = ROOT / "build" / "kernel_test" / folder, os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    generator = ["-G", "Ninja"] if shutil.which("ninja", path=path) else []
    flags = ["-DOCTAVO_PYTHON=OFF", "-DOCTAVO_KERNEL_TEST=ON", "-DCMAKE_COMPILE_WARNING_AS_ERROR=ON"]
    for command in (
        ["cmake", "-S", str(ROOT), "-B", str(where), *generator, *flags, *options],
        ["cmake", "--build", str(where), "--target", "kernel_test", "--parallel", str(len(os.sched_getaffinity(0)))],
    ):
        done = subprocess.run(command, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return where / "kernel_test"


def run(command: list[str]) -> Outcome:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.returncode}\n{done.stderr}"
    lines = [line.split() for line in done.stdout.splitlines()]
    return Outcome(
        found=next(words[1:] for words in lines if words[0] == "found"),
        bits={(isa, what): bits for kind, isa, what, bits in (words for words in lines if words[0] == "bits")},
        checked={isa: (int(checks), int(failed)) for _, isa, checks, failed in (words for words in lines if words[0] == "checked")},
    )


@pytest.fixture(scope="module")
def host() -> Outcome:
    return run([str(build("host", []))])


@pytest.fixture(scope="module")
def program() -> Path:
    if lacking := missing():
        pytest.skip(lacking)
    return build("aarch64", CROSS)


def test_on_this_machine(host: Outcome) -> None:
    assert set(host.checked) == set(host.found)
    assert all(checks > 10_000 and failed == 0 for checks, failed in host.checked.values())


@pytest.mark.parametrize("cpu", CPUS)
def test_on_arm(cpu: str, program: Path, host: Outcome) -> None:
    best = CPUS[cpu][0]
    isas = [best, "generic"] if cpu == "cortex-a72" else [best]
    arm = run([QEMU, "-L", "/usr/aarch64-linux-gnu", "-cpu", cpu, str(program), *isas])
    assert arm.found == CPUS[cpu]
    assert set(arm.checked) == set(isas) and all(checks > 10_000 and failed == 0 for checks, failed in arm.checked.values())
    compared = 0
    for (isa, what), bits in arm.bits.items():
        own_rounding = isa == "neon_i8mm" and (what == "linear-BF16" or what.endswith("-products"))  # of bfdot
        if own_rounding or (SAME_BITS[isa], what) not in host.bits:
            continue
        assert bits == host.bits[SAME_BITS[isa], what], f"{what}: {isa} gives other bits than {SAME_BITS[isa]}"
        compared += 1
    print(f"{cpu}: {', '.join(f'{isa} {checks} checks' for isa, (checks, _) in arm.checked.items())}, {compared} results compared")
