"""What a process takes of memory."""

from __future__ import annotations

from pathlib import Path


def peak_memory(pid: int | str = "self") -> int | None:
    """Bytes of the largest resident set that a process has had; None where the system does not say, or it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    peaks = [int(line.split()[1]) for line in lines if line.startswith("VmHWM:")]
    return peaks[0] * 1024 if peaks else None
