"""How long Python's garbage collector has held up this process."""

from __future__ import annotations

import gc
import time
from typing import Any


class GarbageClock:
    """Adds up the collector's pauses, from its first ``start`` on. One a process: ``GARBAGE``."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = 0.0

    def start(self) -> None:
        """Follow the collector. Idempotent."""
        if self._note not in gc.callbacks:
            gc.callbacks.append(self._note)

    def stop(self) -> None:
        """Follow it no more. Idempotent."""
        if self._note in gc.callbacks:
            gc.callbacks.remove(self._note)

    def _note(self, phase: str, _info: dict[str, Any]) -> None:
        if phase == "start":
            self._began = time.perf_counter()
        else:
            self.seconds += time.perf_counter() - self._began


def settle() -> None:
    """Starting is over: what lives now lives as long as the process, so the collector need not walk through it again and again.

    It is not made to collect first: that takes 30 ms of the server's start and 12 of the engine's, and finds nothing.
    """
    gc.freeze()


GARBAGE = GarbageClock()
