"""What makes a report checkable: with what and where it was measured, and how to do it again."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import platform
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from octavo import __version__
from octavo.bench.machine import MachineRates, engine_cpus, measure
from octavo.bench.report.cpu import cpu_facts
from octavo.bench.report.private import clean, command_line
from octavo.errors import OctavoError

_RATES_SECONDS = 0.3


def collect(
    *,
    argv: Sequence[str] | None = None,
    client: Mapping[str, Any] | None = None,
    server: Mapping[str, Any] | None = None,
    model: str | Path | None = None,
    seeds: Mapping[str, int] | None = None,
    rates: MachineRates | bool = True,
) -> dict[str, Any]:
    """Facts for a Document, with nothing private in them: no names of users, home folders, keys or environment.

    ``client``: flags of the client and what they came to. ``server``: what is known of it (its version, flags, model, quantization).
    ``model``: an alias, file or folder on this machine, whose digest and quantization are then told. ``seeds``: of all that was drawn.
    ``rates``: this machine's, or True to measure them, which takes about two seconds of all CPUs: never while a load runs.
    """
    found = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": command_line(argv),
        "software": _software(),
        "machine": cpu_facts() | _rates(rates),
        "model": model_facts(model) if model is not None else None,
        "server": server,
        "client": client,
        "seeds": seeds,
    }
    facts: dict[str, Any] = clean({name: value for name, value in found.items() if value})
    return facts


def model_facts(model: str | Path) -> dict[str, Any]:
    """Name, bytes, SHA-256 (remembered by path, size and time) and quantization of a model that is on this machine.

    Only its name for one that is not, or cannot be read.
    """
    from octavo.weights import hub
    from octavo.weights.digest import file_digest

    name = Path(model).name if Path(str(model)).exists() else str(model)
    try:
        path = hub.resolve(str(model), download=False)
    except (OctavoError, OSError):
        return {"name": name}
    try:
        return {"name": name, "file": path.name, **_contents(path)}
    except OctavoError:  # a format that Octavo does not read
        return {"name": name, "file": path.name, "sha256": file_digest(path) if path.is_file() else None}
    except OSError:  # gone since the run began
        return {"name": name, "file": path.name}


def _contents(path: Path) -> dict[str, Any]:
    from octavo.weights.source import open_source

    with contextlib.closing(open_source(path)) as source:
        tensors = [source.info(tensor) for tensor in source.names()]
        digest = source.digest()
    sizes: Counter[str] = Counter()
    for tensor in tensors:
        sizes[tensor.format.name] += tensor.nbytes
    shares = [f"{kind} {100 * size / sizes.total():.0f} %" for kind, size in sizes.most_common() if size > 0.005 * sizes.total()]
    return {"tensor_bytes": sizes.total(), "sha256": digest, "quantization": shares}


def _software() -> dict[str, Any]:
    return {
        "octavo": __version__,
        "git_commit": _git_commit(Path(__file__).parent),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "kernel": f"{platform.system()} {platform.release()}",
        "libc": " ".join(platform.libc_ver()) or None,
    }


def _git_commit(folder: Path) -> str | None:
    """Of the checkout that this code is in, with "+ changes" where its tracked files differ; None outside of one."""
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        return f"{commit} + changes" if _git(folder, "status", "--porcelain", "--untracked-files=no") else commit
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=5).stdout.strip()


def _rates(rates: MachineRates | bool) -> dict[str, Any]:
    if rates is False:
        return {}
    found = measure(engine_cpus(), _RATES_SECONDS) if rates is True else rates
    return {"measured": {**dataclasses.asdict(found), "cpus": list(found.cpus)}}
