"""Writes blocks to files, beside the step loop."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from octavo.kv.disk.files import BlockFiles, Content
from octavo.kv.interfaces import BlockHash

logger = logging.getLogger(__name__)

QUEUE_BYTES = 1 << 28
"""Host memory for blocks that wait to be written; when it is full, blocks are dropped rather than waited for."""
BLOCKS_AT_ONCE = 16
"""Most blocks in a batch."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Blocks of one group to be written; ``used`` are seconds since the epoch."""

    group: int
    keys: list[BlockHash]
    used: list[float]
    generation: int
    buffer: Content
    """[BLOCKS_AT_ONCE, bytes a block]: the blocks' content, in as many rows."""

    @property
    def nbytes(self) -> int:
        return len(self.keys) * int(self.buffer.shape[1])


class Writer:
    """A thread that writes batches in order. Room is reserved before a batch is even copied out of the pool."""

    def __init__(self, files: BlockFiles) -> None:
        self.files = files
        self.num_written = 0
        self.num_failed = 0
        self._warned = False
        self._reserved = 0
        self._buffers: dict[int, list[Content]] = {}
        self._generation = 0
        self._queue: deque[Batch | Path | None] = deque()
        self._changed = threading.Condition()
        self._files_lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="octavo-kv-write", daemon=True)
        self._thread.start()

    def take_buffer(self, block_bytes: int) -> Content:
        """[BLOCKS_AT_ONCE, block_bytes], for a batch: memory that was used before, if there is any, whose pages are there."""
        try:
            return self._buffers[block_bytes].pop()
        except (KeyError, IndexError):
            return np.empty((BLOCKS_AT_ONCE, block_bytes), np.uint8)

    def reserve(self, block_bytes: int, count: int) -> int:
        """Room for up to ``count`` blocks: for how many there is. Their batches are put, or released."""
        with self._changed:
            granted = max(0, min(count, (QUEUE_BYTES - self._reserved) // block_bytes))
            self._reserved += granted * block_bytes
            return granted

    def release(self, batch: Batch) -> None:
        """A batch is done with, written or not."""
        with self._changed:
            self._buffers.setdefault(batch.buffer.shape[1], []).append(batch.buffer)
            self._reserved -= batch.nbytes
            self._changed.notify_all()

    def drop(self, batch: Batch) -> None:
        """A batch could not be copied out of the pool."""
        with self._changed:
            self.num_failed += len(batch.keys)
        self.release(batch)

    @property
    def generation(self) -> int:
        """Raised by ``clear``: batches of an earlier one are not written."""
        return self._generation

    def put(self, batch: Batch) -> None:
        """Queue a batch, for which room was reserved."""
        with self._changed:
            self._queue.append(batch)
            self._changed.notify_all()

    def clear(self) -> None:
        """Forget all files, and what is on its way."""
        with self._files_lock:  # no file is being written
            self._generation += 1
            cleared = self.files.clear()
        with self._changed:
            self._queue.append(cleared)
            self._changed.notify_all()

    def wait_for_room(self, deadline: float) -> bool:
        """Wait until less than half of the queue is taken; False at the deadline (time.monotonic)."""
        with self._changed:
            return self._changed.wait_for(lambda: self._reserved <= QUEUE_BYTES // 2, max(0.0, deadline - time.monotonic()))

    def close(self, deadline: float) -> None:
        """Write what is queued, until the deadline (time.monotonic), and end. Idempotent."""
        with self._changed:
            self._queue.append(None)
            self._changed.notify_all()
        self._thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue)
                item = self._queue.popleft()
            if item is None:
                return
            if isinstance(item, Path):
                self.files.remove(item)
            else:
                self._write(item)

    def _write(self, batch: Batch) -> None:
        for key, content, used in zip(batch.keys, batch.buffer, batch.used, strict=False):
            with self._files_lock:
                if batch.generation != self._generation:
                    break
                try:
                    self.num_written += self.files.write(key, batch.group, content, used)
                except (OSError, MemoryError) as error:
                    if not self._warned:
                        logger.warning("a KV block could not be written to the prefix cache on disk: %s (said once)", error)
                    self._warned = True
                    self.num_failed += 1
        self.release(batch)
