"""The memory of steps and of the KV pool, taken from the system before a step needs it.

A page is zeroed when it is first written. One of 2 MiB takes a step up to 5 ms, and a pool that fills meets one every few blocks. So a
thread of the lowest priority goes through the memory while the engine has nothing better to do with its cores.

Under a cgroup's quota idle cores are not free: the thread's time counts like any other, and once the quota is used up every thread waits
for the next period, by default for most of 100 ms. Where the quota is less than the CPUs, the thread therefore rests so long that it
takes a twentieth of the quota at most.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from octavo.runner.kv_storage import available_memory

CHUNK_BYTES = 2 * 2**20
"""Touched in one call; ``stop`` waits for no more than that."""
CHECK_BYTES = 64 * 2**20
"""Between two looks at how much memory is left."""
KEPT_BYTES = 512 * 2**20
"""Left to everybody else."""
QUOTA_SHARE = 0.05
"""Of a cgroup's CPU quota, at most."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Region:
    """``count`` units of ``unit_bytes``; ``touch(first, n)`` makes n of them present."""

    touch: Callable[[int, int], None]
    count: int
    unit_bytes: int


class Prefault:
    """Goes through regions, in order, from their beginnings (an empty pool hands its blocks out in that order too), until all are done or
    ``stop``."""

    def __init__(self, regions: Sequence[Region], quota: float = float("inf")) -> None:
        """``quota``: CPUs' worth of time that the process is granted."""
        self._regions = regions
        self._share = QUOTA_SHARE * quota if quota < len(os.sched_getaffinity(0)) else None
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
        for region in self._regions:
            step = max(CHUNK_BYTES // region.unit_bytes, 1)
            for first in range(0, region.count, step):
                if self._stopping.is_set():
                    return
                if touched % CHECK_BYTES < CHUNK_BYTES and available_memory() < KEPT_BYTES + CHECK_BYTES:
                    logger.warning("the machine has little memory left: the rest of the KV pool is taken from it as it is written")
                    return
                began = time.thread_time()
                region.touch(first, min(step, region.count - first))
                touched += step * region.unit_bytes
                if self._share is not None:
                    self._stopping.wait(rest_after(time.thread_time() - began, self._share))


def rest_after(busy: float, share: float) -> float:
    """Seconds to rest after ``busy`` seconds of work, so that work is ``share`` of the time."""
    return busy * max(1 / share - 1, 0.0)
