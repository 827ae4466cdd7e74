"""KV blocks as files, one a block and layer group, found by the block's chained hash.

    DIR / v1-n…n / hh / h…h-g.kv     n…n: 16 hex digits of the numerics id's SHA-256     h…h: 64 of the block's hash     g: the group

    0   magic   8 bytes
    8   version, group   uint32 each, little-endian
    16  bytes of the content   uint64
    24  the block's hash   32 bytes
    56  CRC-32 of the 56 bytes before and the content   uint32
    60  the content: the block's bytes in the KV pool

The hash covers what shapes the content, and who may see it (octavo.kv.block_hash); the checksum finds what was damaged since (it is no
seal: who can write to the folder can make up blocks, so it is to be as private as the model itself). A file
appears under its name when it is complete. Several engines may share a folder: equal names have equal content, and who finds a file
gone has a miss. Files of other names are left alone, and damaged ones removed.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
import stat
import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from octavo.errors import InvalidRequestError
from octavo.kv.interfaces import BlockHash

Content = npt.NDArray[np.uint8]

MAGIC = b"octavoKV"
VERSION = 1
_PREFIX = struct.Struct("<8sIIQ32s")
_CHECKSUM = struct.Struct("<I")
HEADER_BYTES = _PREFIX.size + _CHECKSUM.size

_MODEL = re.compile(r"v\d+-[0-9a-f]{16}")
_OURS = re.compile(r"[0-9a-f]{64}-\d+\.kv")
_UNFINISHED = ".unfinished-"
_CLEARED = ".cleared-"
_STALE_SECONDS = 3600
"""What is unfinished, or cleared, for so long was left by a process that died."""
_FULL = (errno.ENOSPC, errno.EDQUOT)
"""What a full disk says."""
_SLACK = 16
"""When the folder is full, 1 / _SLACK of it is emptied at once, because looking through it takes time."""


class BlockFiles:
    """The files of one model's blocks, and the size of the whole folder. Writing is for one thread; the others may read.

    ``nbytes`` is exact when the folder has been looked through, and counts what this object wrote since; others who write to the
    folder keep its size themselves, each on its own count.
    """

    def __init__(self, directory: str, numerics_id: str, capacity: int) -> None:
        """Files of ``numerics_id`` below ``directory``, which is created; at most ``capacity`` bytes in all.

        Raises:
            InvalidRequestError: if it cannot be written to.
        """
        self.capacity = capacity
        self.num_corrupt = 0
        """Files with the right name and a wrong content, each time that one was met."""
        self._directory = Path(directory)
        self._folder = self._directory / f"v{VERSION}-{hashlib.sha256(numerics_id.encode()).hexdigest()[:16]}"
        self._count = 0
        try:
            self._prepare()
        except OSError as error:
            message = f"prefix_cache_dir = {directory!r}: it cannot be written to ({error.strerror})"
            raise InvalidRequestError(message, field="prefix_cache_dir") from None
        self._remove_stale()
        self.nbytes = sum(size for _, size, _ in self._scan())

    def _prepare(self) -> None:
        """Make the folders and try to write. Others may clear the model's meanwhile: that is no reason to fail."""
        for attempts_left in (2, 1, 0):
            try:
                self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._folder.mkdir(mode=0o700, exist_ok=True)
                return self._new_file(self._folder).unlink()
            except FileNotFoundError:
                if not attempts_left:
                    raise

    def has(self, key: BlockHash, group: int) -> bool:
        """Whether there is such a file, as far as the disk tells; what is in it, ``read`` finds out."""
        return os.path.exists(self._path(key, group))

    def read(self, key: BlockHash, group: int, content: Content) -> bool:
        """Fill ``content``; False if there is no such file, or it does not hold what it should."""
        path = self._path(key, group)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            if _holds(descriptor, key, group, content):
                return True
        finally:
            os.close(descriptor)
        self.num_corrupt += 1
        with contextlib.suppress(OSError):
            path.unlink()
        return False

    def write(self, key: BlockHash, group: int, content: Content, used: float) -> bool:
        """Store a block, last used at ``used`` (seconds since the epoch); False if it is there already, or too large.

        What was used longest ago makes room, also when the disk is full before the bound is reached: for the next, this one is lost then.
        Raises OSError.
        """
        size = HEADER_BYTES + content.nbytes
        path = self._path(key, group)
        if size > self.capacity:
            return False
        if self._is_whole(path, size):
            self.touch(key, group, used)
            return False
        if self.nbytes + size > self.capacity:
            self._make_room(size, self.capacity)
        self._directory.mkdir(mode=0o700, exist_ok=True)  # somebody may have removed all of it
        self._folder.mkdir(mode=0o700, exist_ok=True)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        unfinished = self._new_file(path.parent)
        try:
            with open(unfinished, "r+b", buffering=0) as file:
                for part in (_header(key, group, content), content.data):
                    if file.write(part) != len(part):
                        raise OSError(errno.ENOSPC, "the disk is full")
            os.utime(unfinished, (used, used))
            os.replace(unfinished, path)
        except BaseException as error:
            unfinished.unlink(missing_ok=True)
            if isinstance(error, OSError) and error.errno in _FULL:
                self._make_room(size, self.nbytes)
            raise
        self.nbytes += size
        return True

    def touch(self, key: BlockHash, group: int, used: float) -> bool:
        """A block was used at ``used``; False if there is none."""
        try:
            os.utime(self._path(key, group), (used, used))
        except OSError:
            return False
        return True

    def clear(self) -> Path:
        """Forget all blocks of this model, at once; what they were is then in a folder to be removed."""
        self._count += 1
        cleared = self._directory / f"{_CLEARED}{os.getpid()}-{id(self):x}-{self._count}"
        with contextlib.suppress(OSError):
            os.rename(self._folder, cleared)
        return cleared

    def remove(self, cleared: Path) -> None:
        """Delete what ``clear`` left."""
        shutil.rmtree(cleared, ignore_errors=True)
        self.nbytes = sum(size for _, size, _ in self._scan())

    def _path(self, key: BlockHash, group: int) -> Path:
        name = key.hex()
        return self._folder / name[:2] / f"{name}-{group}.kv"

    def _is_whole(self, path: Path, size: int) -> bool:
        """A file of another size is damaged, and replaced."""
        try:
            return path.lstat().st_size == size
        except OSError:
            return False

    def _new_file(self, folder: Path) -> Path:
        self._count += 1
        path = folder / f"{_UNFINISHED}{os.getpid()}-{id(self):x}-{self._count}"
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        return path

    def _make_room(self, needed: int, capacity: int) -> None:
        """Delete what was used longest ago, of every model, until ``needed`` bytes more are well within ``capacity``."""
        files = sorted(self._scan())
        self.nbytes = sum(size for _, size, _ in files)
        goal = max(capacity - capacity // _SLACK - needed, 0)
        if self.nbytes + needed <= capacity:
            return
        for _, size, path in files:
            if self.nbytes <= goal:
                return
            with contextlib.suppress(OSError):
                os.unlink(path)
            self.nbytes -= size

    def _scan(self) -> Iterator[tuple[float, int, str]]:
        """Every block file in the folder, of every model: when it was used last, its size, its path."""
        models = (model for model in _entries(self._directory) if _MODEL.fullmatch(model.name))
        shards = (shard for model in models for shard in _entries(model))
        for file in (file for shard in shards for file in _entries(shard)):
            with contextlib.suppress(OSError):
                if _OURS.fullmatch(file.name) and file.is_file(follow_symlinks=False):
                    facts = file.stat(follow_symlinks=False)
                    yield facts.st_mtime, facts.st_size, file.path

    def _remove_stale(self) -> None:
        """Clean up after processes that died."""
        before = time.time() - _STALE_SECONDS
        cleared = [entry for entry in _entries(self._directory) if entry.name.startswith(_CLEARED)]
        unfinished = [entry for shard in _entries(self._folder) for entry in _entries(shard) if entry.name.startswith(_UNFINISHED)]
        for entry in [*cleared, *unfinished]:
            with contextlib.suppress(OSError):
                if entry.stat(follow_symlinks=False).st_mtime < before:
                    shutil.rmtree(entry) if entry.is_dir(follow_symlinks=False) else os.unlink(entry)


def _entries(folder: str | os.PathLike[str]) -> list[os.DirEntry[str]]:
    """What is in a folder; nothing, if it is none or has just been removed."""
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []


def _holds(descriptor: int, key: BlockHash, group: int, content: Content) -> bool:
    """Read a file into ``content``: whether it is what it should be, from its header to its last byte."""
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode) or facts.st_size != HEADER_BYTES + content.nbytes:
        return False
    header = bytearray(HEADER_BYTES)
    try:
        complete = os.readv(descriptor, [header, content.data]) == facts.st_size
    except OSError:
        return False
    return complete and header == _header(key, group, content)


def _header(key: BlockHash, group: int, content: Content) -> bytes:
    prefix = _PREFIX.pack(MAGIC, VERSION, group, content.nbytes, key)
    return prefix + _CHECKSUM.pack(zlib.crc32(content.data, zlib.crc32(prefix)))
