"""The persistent tier: blocks that leave the prefix index go to files, and where the index ends a prefix goes on in the files."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from octavo.kv.disk.files import BlockFiles
from octavo.kv.disk.writer import BLOCKS_AT_ONCE, Batch, Writer
from octavo.kv.interfaces import BlockHash, BlockIds, KVGroup
from octavo.kv.prefix_hit import find_prefix
from octavo.kv.reach import Reach
from octavo.kv.transfers import BlockBytes, HostBlocks, SaveBlocks, StoredPrefix

logger = logging.getLogger(__name__)

MOST_BYTES_READ = 1 << 30
"""Host memory for what one request finds."""
APART_SECONDS = 1e-5
"""Blocks used at once are marked as used so far apart, for their order: a prefix's tail is deleted before its head."""
PATIENCE_SECONDS = 0.05
"""How long a step without anything else to do waits for a request's blocks to be read."""


class StillReading(Exception):
    """A request's blocks are being read from disk."""


class SpilledBlocks(HostBlocks):
    """A batch on its way to the writer."""

    __slots__ = ("_batch", "_writer")

    def __init__(self, writer: Writer, batch: Batch) -> None:
        super().__init__(room=batch.buffer[: len(batch.keys)])
        self._writer, self._batch = writer, batch

    def fill(self, data: BlockBytes) -> None:
        assert self.room is not None
        if data is not self.room:
            np.copyto(self.room, data)
        self._writer.put(self._batch)

    def fail(self) -> None:
        self._writer.drop(self._batch)


@dataclass(slots=True)
class _Lookup:
    """What is on disk for one request, behind its first ``start`` blocks; being read, or read."""

    request_id: str
    start: int
    found: Future[StoredPrefix | None]


class _OnDisk:
    """Which blocks of a group there are, as a prefix index tells it: any number, or -1.

    Those before ``start`` are in the pool, and those in ``bad`` are no good.
    """

    def __init__(self, files: BlockFiles, group: int, start: int, bad: Set[tuple[int, BlockHash]]) -> None:
        self._files, self._group, self._start, self._bad = files, group, start, bad

    def find(self, hashes: list[BlockHash]) -> BlockIds:
        return np.array([0 if self._has(i, key) else -1 for i, key in enumerate(hashes)], np.int32)

    def lookup(self, hashes: list[BlockHash]) -> BlockIds:
        count = next((i for i, key in enumerate(hashes) if not self._has(i, key)), len(hashes))
        return np.zeros(count, np.int32)

    def _has(self, position: int, key: BlockHash) -> bool:
        return position < self._start or ((self._group, key) not in self._bad and self._files.has(key, self._group))


class DiskTier:
    """Used by the step loop. Files are read by one thread and written by another: a step waits for neither."""

    def __init__(self, files: BlockFiles, groups: Sequence[KVGroup], block_size: int) -> None:
        self._files = files
        self._writer = Writer(files)
        self._reader = ThreadPoolExecutor(1, "octavo-kv-read")
        self._block_bytes = [group.bytes_per_block for group in groups]
        self._block_size = block_size
        self._lookup: _Lookup | None = None
        self.num_found = 0
        """Tokens that requests found here, and need not compute."""
        self.num_dropped = 0
        """Blocks not written because the writer could not keep up."""

    def stats(self) -> dict[str, int]:
        """Fields of EngineStats."""
        return {
            "disk_hits": self.num_found,
            "disk_spilled_blocks": self._writer.num_written,
            "disk_dropped_blocks": self.num_dropped + self._writer.num_failed,
            "disk_corrupt_files": self._files.num_corrupt,
            "disk_bytes": self._files.nbytes,
        }

    # Blocks go out

    def spill(self, group: int, keys: list[BlockHash], blocks: BlockIds, used: float | None = None) -> list[SaveBlocks]:
        """What to save of blocks that are leaving the index; the last are kept longest. ``used``: when, in seconds since the epoch; now."""
        size = self._block_bytes[group]
        dropped = len(keys) - self._writer.reserve(size, len(keys))
        self.num_dropped += dropped
        last = time.time() if used is None else used
        saves = []
        for start in range(dropped, len(keys), BLOCKS_AT_ONCE):
            part = slice(start, min(start + BLOCKS_AT_ONCE, len(keys)))
            times = [last - APART_SECONDS * (len(keys) - i) for i in range(part.start, part.stop)]
            batch = Batch(group, keys[part], times, self._writer.generation, self._writer.take_buffer(size))
            saves.append(SaveBlocks(group, blocks[part], SpilledBlocks(self._writer, batch)))
        return saves

    def spill_all(self, cached: Sequence[tuple[list[BlockHash], BlockIds]], deadline: float) -> Iterator[list[SaveBlocks]]:
        """The same of all cached blocks, per group those last that are worth most: these come first, batch by batch, as the disk keeps up.

        Stops at the deadline (time.monotonic).
        """
        for group, (keys, blocks) in enumerate(cached):
            now = time.time()
            for end in range(len(keys), 0, -BLOCKS_AT_ONCE):
                used = now - APART_SECONDS * (len(keys) - end)
                batch = range(max(end - BLOCKS_AT_ONCE, 0), end)
                missing = [i for i in batch if not self._files.touch(keys[i], group, used - APART_SECONDS * (end - i))]
                if not self._writer.wait_for_room(deadline):
                    return
                yield self.spill(group, [keys[i] for i in missing], blocks[missing], used)

    # Blocks come back

    def find(self, request_id: str, hashes: list[BlockHash], start: int, reaches: Sequence[Reach], *, patient: bool) -> StoredPrefix | None:
        """What the files hold of a prefix with these hashes, of which the first ``start`` blocks are in the pool.

        ``patient``: there is nothing better to do than to wait for a while.

        Raises:
            StillReading: ask again.
        """
        lookup = self._lookup
        if lookup is None or lookup.request_id != request_id or lookup.start > start:
            self.forget()
            lookup = self._lookup = _Lookup(request_id, start, self._begin(hashes, start, reaches))
        try:
            return lookup.found.result(PATIENCE_SECONDS if patient else 0)
        except TimeoutError:
            raise StillReading from None

    def _begin(self, hashes: list[BlockHash], start: int, reaches: Sequence[Reach]) -> Future[StoredPrefix | None]:
        """Have the reader read, unless a glance tells that there is nothing."""
        if start < len(hashes) and (reaches[0].slides or self._files.has(hashes[start], 0)):
            return self._reader.submit(self._try_to_read, hashes, start, reaches)
        nothing: Future[StoredPrefix | None] = Future()
        nothing.set_result(None)
        return nothing

    def forget(self, request_id: str | None = None) -> None:
        """What was found for a request, or for any, is not wanted any more."""
        if self._lookup is not None and request_id in (None, self._lookup.request_id):
            self._lookup.found.cancel()
            self._lookup = None

    def _try_to_read(self, hashes: list[BlockHash], start: int, reaches: Sequence[Reach]) -> StoredPrefix | None:
        """In the reader's thread. What cannot be read, for want of memory say, is a miss: the step loop goes on."""
        try:
            return self._read(hashes, start, reaches)
        except (OSError, MemoryError) as error:
            logger.warning("the prefix cache on disk could not be read: %s", error)
            return None

    def _read(self, hashes: list[BlockHash], start: int, reaches: Sequence[Reach]) -> StoredPrefix | None:
        """The longest prefix of which every group has what it needs, read and found whole."""
        hashes = hashes[: start + MOST_BYTES_READ // sum(self._block_bytes)]
        bad: set[tuple[int, BlockHash]] = set()
        views = [_OnDisk(self._files, group, start, bad) for group in range(len(reaches))]
        while True:
            found = find_prefix(views, reaches, hashes, self._block_size)
            end = found.num_tokens // self._block_size
            if end <= start:
                return None
            firsts = [max(start, first) for first in found.firsts]
            num_bad = len(bad)
            parts = [(first, HostBlocks(self._read_group(group, hashes[first:end], bad))) for group, first in enumerate(firsts)]
            if len(bad) == num_bad:
                return StoredPrefix(found.num_tokens, tuple(parts))

    def _read_group(self, group: int, keys: list[BlockHash], bad: set[tuple[int, BlockHash]]) -> BlockBytes:
        content = np.empty((len(keys), self._block_bytes[group]), np.uint8)
        now = time.time()
        for i, key in enumerate(keys):
            if not self._files.read(key, group, content[i]):
                bad.add((group, key))
                break
            self._files.touch(key, group, now - APART_SECONDS * i)
        return content

    # All of it

    def clear(self) -> None:
        """Forget everything."""
        self.forget()
        self._writer.clear()

    def close(self, deadline: float) -> None:
        """Write what is on its way, until the deadline (time.monotonic). Idempotent."""
        self._reader.shutdown(cancel_futures=True)
        self._writer.close(deadline)
