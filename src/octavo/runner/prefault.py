"""The KV pool's memory, taken from the system before a step needs it.

A page is zeroed when it is first written. One of 2 MiB takes a step up to 5 ms, and a pool that fills meets one every few blocks. So a
thread of the lowest priority goes through the pool while the engine has nothing better to do with its cores.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Sequence

from octavo import _native
from octavo.runner.kv_storage import available_memory

CHUNK_BYTES = 2 * 2**20
"""Touched in one call; ``stop`` waits for no more than that."""
CHECK_BYTES = 64 * 2**20
"""Between two looks at how much memory is left."""
KEPT_BYTES = 512 * 2**20
"""Left to everybody else."""

logger = logging.getLogger(__name__)


class Prefault:
    """Goes through storages block by block, in the order in which an empty pool hands them out, until all are done or ``stop``."""

    def __init__(self, storages: Sequence[_native.KVStorage], num_blocks: Sequence[int]) -> None:
        self._storages = list(zip(storages, num_blocks, strict=True))
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kv-prefault", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Return once the thread has ended. Idempotent."""
        self._stopping.set()
        self._thread.join()

    def wait(self, timeout: float) -> bool:
        """Whether all was touched within ``timeout`` seconds."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        with contextlib.suppress(OSError, AttributeError):  # of this thread alone; a system without it runs it as any other
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        touched = 0
        for storage, num_blocks in self._storages:
            step = max(CHUNK_BYTES // storage.block_bytes, 1)
            for first in range(0, num_blocks, step):
                if self._stopping.is_set():
                    return
                if touched % CHECK_BYTES < CHUNK_BYTES and available_memory() < KEPT_BYTES + CHECK_BYTES:
                    logger.warning("the machine has little memory left: the rest of the KV pool is taken from it as it is written")
                    return
                storage.touch_blocks(first, step)
                touched += step * storage.block_bytes
