"""A progress bar for calls that take long enough to want one."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

PATIENCE_SECONDS = 1.0
"""A call that is done by then shows nothing."""


class ProgressBar:
    """Prompts done and tokens per second, on standard error, if that is a terminal."""

    def __init__(self, total: int, enabled: bool) -> None:
        console = Console(stderr=True)
        self._enabled = enabled and console.is_terminal
        self._start = time.monotonic()
        self._tokens = 0
        self._done = 0
        self._task: TaskID | None = None
        self._total = total
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]:.1f} tok/s"),
            TimeRemainingColumn(),
        )
        self._progress = Progress(*columns, console=console, transient=True)

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._task is not None:
            self._progress.stop()

    def advance(self, prompts: int, tokens: int) -> None:
        """So many more prompts are done, so many more tokens were generated."""
        self._done += prompts
        self._tokens += tokens
        seconds = time.monotonic() - self._start
        if not self._enabled or seconds < PATIENCE_SECONDS:
            return
        if self._task is None:
            self._progress.start()
            self._task = self._progress.add_task("Generating", total=self._total, rate=0.0)
        self._progress.update(self._task, completed=self._done, rate=self._tokens / seconds)
