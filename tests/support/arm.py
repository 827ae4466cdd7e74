"""What the Arm tests need besides a compiler for this machine."""

from __future__ import annotations

import shutil

ARM_COMPILER = "aarch64-linux-gnu-g++"
QEMU = "qemu-aarch64"


def missing() -> str:
    """Empty if all is there; else what is not, and how it is installed."""
    lacking = [tool for tool in (ARM_COMPILER, QEMU, "cmake") if shutil.which(tool) is None]
    if not lacking:
        return ""
    return f"the Arm kernels were NOT tested: no {', no '.join(lacking)} here; apt-get install g++-aarch64-linux-gnu qemu-user cmake"
