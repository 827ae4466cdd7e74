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

Identity = dict[str, str | int]
"""What tells one state of a file from another: its real path, size and modification time."""


def file_digest(path: Path) -> str:
    """Hex SHA-256 of a file's content, from memory if path, size and modification time are those of the last time.

    Raises:
        ModelFileError: the file cannot be read.
    """
    try:
        identity = _identity(path)  # Before the content is read: a change meanwhile must not go unseen.
        if (known := _recall(identity)) is not None:
            return known
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read: {error.strerror or error}") from error
    _keep(identity, digest)
    return digest


def combined_digest(paths: list[Path]) -> str:
    """Hex SHA-256 for a model: of one file its own, of several that of their names and digests."""
    if len(paths) == 1:
        return file_digest(paths[0])
    lines = [f"{file_digest(path)}  {path.name}\n" for path in sorted(paths)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def remember(path: Path, digest: str) -> None:
    """Keep the digest of a file that was just written."""
    _keep(_identity(path), digest)


def _keep(identity: Identity, digest: str) -> None:
    """Without a writable OCTAVO_HOME it is not kept."""
    memo = _memo(identity)
    try:
        memo.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=memo.parent, delete=False) as file:
            json.dump({**identity, "sha256": digest}, file)
        os.replace(file.name, memo)
    except OSError as error:
        logger.debug("digest of %s is not kept: %s", identity["path"], error)


def _recall(identity: Identity) -> str | None:
    try:
        kept = json.loads(_memo(identity).read_bytes())
    except (OSError, ValueError):
        return None
    digest = kept.get("sha256") if isinstance(kept, dict) else None
    return digest if isinstance(digest, str) and kept == {**identity, "sha256": digest} else None


def _identity(path: Path) -> Identity:
    stat = path.stat()
    return {"path": str(path.resolve()), "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}


def _memo(identity: Identity) -> Path:
    key = hashlib.sha256(str(identity["path"]).encode()).hexdigest()[:32]
    return envs.home() / "digests" / f"{key}.json"
