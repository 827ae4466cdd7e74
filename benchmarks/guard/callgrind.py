"""Counts the kernels' instructions under callgrind: exact, and the same on a busy machine. Only where valgrind knows the instruction set.

    python -m benchmarks.guard --callgrind [--update]

Builds csrc/guard, runs each of its cases once on one thread, and compares with results/callgrind-ISA-COMPILER.json; ends with 1 if a case
takes more than one in a hundred instructions more. valgrind (3.19) does not know AVX-512, so that it is AVX2 that is counted. A count says
nothing of memory, of ports or of latency: it finds work that was added, not work that became slow.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results"
ISA = "avx2"
TOLERANCE = 0.01


def build() -> Path:
    """The program, in build/kernel_count."""
    where = ROOT / "build" / "kernel_count"
    environment = os.environ | {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    generator = ["-G", "Ninja"] if shutil.which("ninja", path=environment["PATH"]) else []
    flags = ["-DOCTAVO_PYTHON=OFF", "-DOCTAVO_KERNEL_COUNT=ON"]
    configure = ["cmake", "-S", str(ROOT), "-B", str(where), *generator, *flags]
    for command in (configure, ["cmake", "--build", str(where), "--target", "kernel_count"]):
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return where / "kernel_count"


def compiler() -> str:
    """Its name and version: other code is no regress of ours."""
    line = subprocess.check_output([os.environ.get("CXX", "c++"), "--version"], text=True).splitlines()[0]
    return re.sub(r"[^a-z0-9.]+", "-", re.sub(r"\(.*\)", "", line.lower().replace("+", "x"))).strip("-")


def counts(program: Path, isa: str) -> dict[str, int]:
    """Instructions by case. callgrind writes a file each time octavo_counted has run: parts 1, 2, … in the order of the printed names."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--toggle-collect=octavo_counted", "--dump-after=octavo_counted", f"--callgrind-out-file={folder}/part"]
        command = ["valgrind", "--tool=callgrind", "-q", *options, str(program), isa]
        names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
        parts = [Path(folder, f"part.{number}").read_text(encoding="utf-8") for number in range(1, len(names) + 1)]
    return {name: total(part) for name, part in zip(names, parts, strict=True)}


def total(part: str) -> int:
    """The instructions that one file of callgrind's accounts for."""
    found = re.search(r"^totals: (\d+)|^summary: (\d+)", part, re.MULTILINE)
    if found is None:
        raise ValueError("no totals in callgrind's file")
    return int(found[1] or found[2])


def slower(now: dict[str, int], then: dict[str, int]) -> list[str]:
    """Cases with more instructions than tolerated."""
    return [name for name, count in now.items() if name in then and count > (1 + TOLERANCE) * then[name]]


def guard(update: bool) -> int:
    """Count and compare, or write the results; the exit status."""
    if not shutil.which("valgrind"):
        print("valgrind is not installed", file=sys.stderr)
        return 2
    path = RESULTS / f"callgrind-{ISA}-{compiler()}.json"
    now = counts(build(), ISA)
    if update:
        path.write_text(json.dumps(now, indent=1) + "\n", encoding="utf-8")
        return 0
    then = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for name, count in now.items():
        before = f"{count / then[name] - 1:+8.2%}" if name in then else "       –"
        print(f"{name:36} {count:12,} {before}")
    found = slower(now, then)
    print(f"more instructions than {path.name} has: {'; '.join(found) or 'none'}" if then else f"nothing committed: {path.name}")
    return 1 if found else 0
