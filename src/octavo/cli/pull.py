"""``octavo pull``"""

from __future__ import annotations

from typing import Annotated

import typer


def command(model: Annotated[str, typer.Argument(help="An alias (smollm2, gemma3-270m) or a Hugging Face id (org/name).")]) -> None:
    """Fetch a model, with its checksum verified; print where it lies."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    from octavo.weights import hub

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(model, total=None)

        def report(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        path = hub.pull(model, report)
    print(path)
