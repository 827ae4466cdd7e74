"""SHA-256 of model files, remembered in OCTAVO_HOME: a warm start does not read the whole file."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from pathlib import Path

from octavo import envs
from octavo.errors import ModelFileError

logger = logging.getLogger(__name__)


def file_digest(path: Path) -> str:
    """Hex SHA-256 of a file's content, from memory if path, size and modification time are those of the last time.

    Raises:
        ModelFileError: the file cannot be read.
    """
    if (known := _recall(path)) is not None:
        return known
    try:
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read: {error.strerror or error}") from error
    remember(path, digest)
    return digest


def combined_digest(paths: list[Path]) -> str:
    """Hex SHA-256 for a model: of one file its own, of several that of their names and digests."""
    if len(paths) == 1:
        return file_digest(paths[0])
    lines = [f"{file_digest(path)}  {path.name}\n" for path in sorted(paths)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def remember(path: Path, digest: str) -> None:
    """Keep a digest that was computed of the file as it is now. Without a writable OCTAVO_HOME it is not kept."""
    memo = _memo(path)
    try:
        memo.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=memo.parent, delete=False) as file:
            json.dump({**_identity(path), "sha256": digest}, file)
        os.replace(file.name, memo)
    except OSError as error:
        logger.debug("digest of %s is not kept: %s", path, error)


def _recall(path: Path) -> str | None:
    try:
        kept = json.loads(_memo(path).read_bytes())
        digest = kept.pop("sha256")
        return str(digest) if kept == _identity(path) else None
    except (OSError, ValueError, KeyError, AttributeError):
        return None


def _identity(path: Path) -> dict[str, str | int]:
    stat = path.stat()
    return {"path": str(path.resolve()), "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}


def _memo(path: Path) -> Path:
    key = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:32]
    return envs.home() / "digests" / f"{key}.json"
