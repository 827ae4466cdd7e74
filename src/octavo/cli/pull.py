"""``octavo pull``, and fetching with a progress bar for the commands that need a model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from octavo.weights.aliases import Progress


def command(model: Annotated[str, typer.Argument(help="An alias (smollm2, gemma3-270m) or a Hugging Face id (org/name).")]) -> None:
    """Fetch a model, with its checksum verified; print where it lies."""
    from octavo.weights import hub

    with _bar(model) as progress:
        path = hub.pull(model, progress)
    print(path)


def ensure(model: str) -> None:
    """Fetch ``model`` unless it is here. What it costs to know that delays a start, so the usual cases import little.

    Raises:
        InvalidRequestError: there is no such model.
        ModelFetchError: it cannot be fetched.
    """
    from octavo.weights.aliases import ALIASES

    if ALIASES[model].present(model) if model in ALIASES else Path(model).expanduser().exists():
        return
    from octavo.weights import hub

    with _bar(model) as progress:
        hub.resolve(model, progress=progress)


@contextmanager
def _bar(model: str) -> Iterator[Progress]:
    """A progress bar on standard error, from the first bytes on."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    bars = Bars(*columns, console=Console(stderr=True))
    task = bars.add_task(model, total=None)

    def report(done: int, total: int) -> None:
        bars.start()  # without effect on one that has started
        bars.update(task, completed=done, total=total)

    try:
        yield report
    finally:
        if bars.live.is_started:
            bars.stop()
