"""The environment, read here and nowhere else."""

from __future__ import annotations

import os
from pathlib import Path

from octavo.errors import InvalidRequestError

LOG_LEVELS = ("debug", "info", "warning", "error", "critical")


def home() -> Path:
    """OCTAVO_HOME: where fetched models lie; by default ~/.cache/octavo."""
    return Path(os.environ.get("OCTAVO_HOME") or Path.home() / ".cache" / "octavo")


def isa() -> str | None:
    """OCTAVO_ISA: force an instruction set (avx512, avx2, neon_i8mm, neon_dotprod, neon, generic); unset: the best this CPU has."""
    return os.environ.get("OCTAVO_ISA") or None


def num_threads() -> int | None:
    """OCTAVO_NUM_THREADS: compute threads; unset: from affinity and cgroup quota. Raises InvalidRequestError for no number."""
    value = os.environ.get("OCTAVO_NUM_THREADS")
    if value and not (value.isascii() and value.isdigit() and len(value) < 10):
        raise InvalidRequestError(f"OCTAVO_NUM_THREADS = {value!r:.100}: it must be a number from 1", field="num_threads")
    return int(value) if value else None


def log_level() -> str:
    """OCTAVO_LOG_LEVEL: one of LOG_LEVELS, by default info. Raises InvalidRequestError for another."""
    value = os.environ.get("OCTAVO_LOG_LEVEL") or "info"
    if value.lower() not in LOG_LEVELS:
        raise InvalidRequestError(f"OCTAVO_LOG_LEVEL = {value!r:.100}: choose one of {', '.join(LOG_LEVELS)}")
    return value.lower()


def api_keys() -> list[str]:
    """OCTAVO_API_KEY: keys that the server asks for, separated by commas; added to those of --api-key."""
    return [key for key in os.environ.get("OCTAVO_API_KEY", "").split(",") if key]


def lock_file() -> Path:
    """OCTAVO_BENCH_LOCK: what a benchmark locks so that one measures at a time; unset: a file that all users of this machine share."""
    run_lock = Path("/run/lock")
    everyones = run_lock.is_dir() and run_lock.stat().st_mode & 0o002
    return Path(os.environ.get("OCTAVO_BENCH_LOCK") or (run_lock if everyones else Path("/tmp")) / "octavo-bench.lock")


def peers() -> Path:
    """OCTAVO_PEERS: where the engines are installed that `octavo bench compare` starts; unset: peers/ under OCTAVO_HOME."""
    return Path(os.environ.get("OCTAVO_PEERS") or home() / "peers")


def offline() -> bool:
    """HF_HUB_OFFLINE, as huggingface-hub reads it."""
    return os.environ.get("HF_HUB_OFFLINE", "0").lower() in ("1", "true", "yes", "on")


def for_child(**changes: str) -> dict[str, str]:
    """This environment with ``changes``, for a process to be started."""
    return {**os.environ, **changes}
