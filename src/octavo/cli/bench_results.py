"""How the benchmarks over HTTP tell what came out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from octavo.errors import InvalidRequestError

if TYPE_CHECKING:
    from rich.console import Console

    from octavo.bench.serve import ServeOutcome


def check_places(output: Path | None, report: Path | None) -> None:
    """Refuse what could not be written in the end, before minutes are spent on measuring. Raises InvalidRequestError."""
    from octavo.bench.report.write import check_folder

    if output is not None and not output.parent.is_dir():
        raise InvalidRequestError(f"output = {output}: there is no folder {output.parent}", field="output")
    check_folder(report)


def tell(outcome: ServeOutcome, console: Console, output: Path | None, report: Path | None) -> int:
    """Print the result, write it where it is wanted, and return the exit status: 0 if it is whole and valid."""
    from octavo.bench.report.terminal import show, write_json

    show(outcome.result, f"{outcome.ready.target.model} at {outcome.plan.url}", console)
    for warning in outcome.result["warnings"]:
        console.print(warning, style="yellow", markup=False, highlight=False)
    if output is not None:
        write_json(outcome.result, output)
    return 0 if outcome.good else 1
