"""A report in a folder: HTML for people, Markdown for repositories, JSON for programs, and each chart as a picture."""

from __future__ import annotations

import json
import re
from pathlib import Path

from octavo.bench.report.data import as_data
from octavo.bench.report.document import Document
from octavo.bench.report.markdown import markdown
from octavo.bench.report.page import html
from octavo.bench.report.standalone import standalone
from octavo.errors import InvalidRequestError


def check_folder(folder: Path | None, field: str = "report") -> None:
    """Make ``folder``, before minutes are spent on what is to be written there.

    Raises:
        InvalidRequestError: it cannot be made.
    """
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidRequestError(f"{field} = {folder}: {error.strerror}", field=field) from None


def write_report(document: Document, folder: Path) -> Path:
    """Write report.html, report.md, report.json and charts/NAME.svg into ``folder``, and return the first's path.

    report.html is one file that needs nothing else; report.md shows the charts.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pictures = write_pictures(document, folder)
    page = folder / "report.html"
    page.write_text(html(document), encoding="utf-8")
    (folder / "report.md").write_text(markdown(document, pictures), encoding="utf-8")
    (folder / "report.json").write_text(json.dumps(as_data(document), ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    return page


def write_pictures(document: Document, folder: Path) -> dict[int, str]:
    """Each chart as folder/charts/NAME.svg, in place of an earlier report's; returns their paths in ``folder`` by number."""
    for old in (folder / "charts").glob("[0-9][0-9]-*.svg"):
        old.unlink()
    charts = [chart for section in document.sections for chart in section.charts]
    names = {number: f"charts/{number + 1:02}-{_file_name(chart.title)}.svg" for number, chart in enumerate(charts)}
    if charts:
        (folder / "charts").mkdir(exist_ok=True)
    for number, chart in enumerate(charts):
        (folder / names[number]).write_text(standalone(chart), encoding="utf-8")
    return names


def _file_name(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:60].rstrip("-") or "chart"
