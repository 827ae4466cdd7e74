"""A document as Markdown, as GitHub shows it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping

from octavo.bench.report.document import Chart, Document, Section, Table
from octavo.bench.report.facts_tables import facts_section
from octavo.bench.report.numbers import number_columns, text
from octavo.bench.report.summary import WARNING, is_warning

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~#])")


def markdown(document: Document, pictures: Mapping[int, str] | None = None) -> str:
    """The document. ``pictures``: by the charts' numbers from 0 on, files to show for them."""
    parts = [f"# {_escaped(document.title)}"]
    parts += [_sentence(sentence) for sentence in document.summary]
    numbers = itertools.count()
    sections = [*document.sections, facts_section(document.facts)] if document.facts else document.sections
    for section in sections:
        parts += _section(section, {id(chart): next(numbers) for chart in section.charts}, pictures or {})
    return "\n\n".join(parts) + "\n"


def _section(section: Section, numbers: Mapping[int, int], pictures: Mapping[int, str]) -> list[str]:
    parts = [f"## {_escaped(section.heading)}", *map(_sentence, section.text)]
    for table in section.tables:
        parts.append(table_markdown(table))
    for chart in section.charts:
        picture = pictures.get(numbers[id(chart)])
        if picture:
            parts.append(_picture(chart, picture))
    return parts


def _picture(chart: Chart, path: str) -> str:
    shown = f"![{_escaped(chart.title)}]({path})"
    return f"{shown}\n\n{_escaped(chart.note)}" if chart.note else shown


def table_markdown(table: Table) -> str:
    """A table under its title, its note below."""
    rule = ["---:" if number else "---" for number in number_columns(table)]
    lines = [list(map(_escaped, table.columns)), rule, *([_escaped(text(cell)) for cell in row] for row in table.rows)]
    body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return "\n\n".join(part for part in (f"**{_escaped(table.title)}**" if table.title else "", body, _escaped(table.note)) if part)


def _sentence(sentence: str) -> str:
    if is_warning(sentence):
        return f"> **Warning.** {_escaped(sentence.removeprefix(WARNING))}"
    return _escaped(sentence)


def _escaped(words: str) -> str:
    """On one line, with nothing that Markdown would take for its own."""
    return _SPECIAL.sub(r"\\\1", " ".join(words.split()))
