"""How the benchmarks that write reports tell what came out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from octavo.errors import InvalidRequestError

if TYPE_CHECKING:
    from rich.console import Console

    from octavo.bench.report.document import Document


def check_places(output: Path | None, report: Path | None) -> None:
    """Refuse what could not be written in the end, before minutes are spent on measuring. Raises InvalidRequestError."""
    from octavo.bench.report.write import check_folder

    if output is not None and not output.parent.is_dir():
        raise InvalidRequestError(f"output = {output}: there is no folder {output.parent}", field="output")
    check_folder(report)


def tell(document: Document, console: Console, output: Path | None, report: Path | None) -> None:
    """Write the result where it is wanted, and print it."""
    from octavo.bench.report.terminal import show_document, write_output
    from octavo.bench.report.write import write_report

    if output is not None:  # first: a terminal may be closed
        write_output(document, output)
    page = write_report(document, report) if report is not None else None
    show_document(document, console)
    if page is not None:
        console.print(f"report: {page}", markup=False, highlight=False)
