"""What a benchmark says at a terminal, and its JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from octavo.bench.report.data import json_ready
from octavo.bench.report.document import Document, Section, Table
from octavo.bench.report.facts_tables import HEADING, facts_in_short
from octavo.bench.report.numbers import number_columns, text
from octavo.bench.report.summary import is_warning

LABELS: dict[str, tuple[str, str]] = {
    "prefill_tok_s": ("prefill", "{:,.0f} tok/s"),
    "decode_tok_s": ("decode", "{:,.1f} tok/s"),
    "output_tok_s": ("output", "{:,.1f} tok/s"),
    "total_tok_s": ("prompt and output", "{:,.1f} tok/s"),
    "duration_s": ("duration", "{:.2f} s"),
    "percent_of_bandwidth": ("decode, of memory bandwidth", "{:.1f} %"),
    "percent_of_compute": ("prefill, of arithmetic", "{:.1f} %"),
    "kv_efficiency": ("KV efficiency (live / held)", "{:.3f}"),
    "kv_peak": ("KV at its fullest (live / total)", "{:.3f}"),
    "python_share": ("Python's share of a step", "{:.3f}"),
    "preemptions": ("preemptions", "{:d}"),
    "read_bytes_s": ("memory, reading", "{:.2f} GB/s"),
    "int8_ops_s": ("int8 multiply-add", "{:,.0f} GOP/s"),
    "bf16_flops_s": ("bf16 multiply-add", "{:,.0f} GFLOP/s"),
    "fp32_flops_s": ("fp32 multiply-add", "{:,.0f} GFLOP/s"),
    "ttft_ms": ("time to first token", "{:.1f}"),
    "itl_ms": ("between tokens", "{:.1f}"),
}
"""Name and format of each measure of the benchmarks in this process."""
_SHORT = 30
"""Letters of a cell that is not broken into lines."""
PERCENTILES = ("p50", "p90", "p95", "p99", "max", "mean")


def show_document(document: Document, console: Console) -> None:
    """Print title, summary, tables, and in short what makes it checkable; charts, and all of that, are in the report."""
    console.print(document.title, style="bold", markup=False)
    for sentence in document.summary:
        console.print(sentence, style="yellow" if is_warning(sentence) else None, markup=False)
    for section in document.sections:
        _show_section(section, console)
    if lines := facts_in_short(document.facts):
        console.print()
        console.print(HEADING, style="bold", markup=False)
    for line in lines:
        console.print(line, style="dim", markup=False, highlight=False)


def _show_section(section: Section, console: Console) -> None:
    warnings = [paragraph for paragraph in section.text if is_warning(paragraph)]
    tables = [table for table in section.tables if not table.detail]
    if tables or warnings:
        console.print()
        console.print(section.heading, style="bold", markup=False)
    for paragraph in warnings:
        console.print(paragraph, style="yellow", markup=False)
    for table in tables:
        show_table(table, console)


def show_table(table: Table, console: Console) -> None:
    """Print a table, its numbers to the right, and its note."""
    grid = Grid(title=escape(table.title) or None, title_justify="left", box=None, pad_edge=False, padding=(0, 1, 0, 0))
    rows = [[text(cell) for cell in row] for row in table.rows]
    headers, fits = _headers(table.columns, rows, console.width)
    for i, (column, number) in enumerate(zip(headers, number_columns(table), strict=True)):
        short = all(len(row[i]) <= _SHORT for row in rows)
        grid.add_column(escape(column), justify="right" if number else "left", no_wrap=short and (fits or number))
    for cells in rows:
        grid.add_row(*map(escape, cells))
    console.print(grid)
    if table.note:
        console.print(table.note, style="dim", markup=False)


def _headers(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> tuple[Sequence[str], bool]:
    """The headers, broken into lines, as few as let the table be ``width`` wide, and whether it is; words are broken too if they must."""
    cells = [max((len(row[i]) for row in rows), default=0) for i in range(len(columns))]
    cells = [cell if cell <= _SHORT else _SHORT // 2 for cell in cells]  # long texts are broken
    for limit in (1000, 12, 8, 6, 5):
        broken = [_broken(column, max(limit, cell)) for column, cell in zip(columns, cells, strict=True)]
        widths = [max(cell, *map(len, header.split("\n"))) for cell, header in zip(cells, broken, strict=True)]
        if sum(widths) + len(widths) - 1 <= width:
            return broken, True
    return broken, False


def _broken(header: str, limit: int) -> str:
    """A word a line if the header is longer than ``limit``, and longer words in pieces."""
    if len(header) <= limit:
        return header
    lines = []
    for word in re.sub(r"/(?=\w)", "/ ", header).split():
        while len(word) > limit:
            lines.append(word[: limit - 1] + "-")
            word = word[limit - 1 :]
        lines.append(word)
    return "\n".join(lines)


def show(result: Mapping[str, Any], title: str, console: Console) -> None:
    """Print the measures of ``result`` that have a label, and the summaries in milliseconds below them."""
    table = Grid(title=escape(title), title_justify="left", show_header=False, box=None, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    summaries = {}
    for name, value in result.items():
        if isinstance(value, Mapping) and name in LABELS:
            summaries[name] = value
        elif name in LABELS and value is not None:
            label, form = LABELS[name]
            table.add_row(label, form.format(value / 1e9 if name.endswith(("bytes_s", "ops_s")) else value))
    console.print(table)
    if summaries:
        rows = [[LABELS[name][0], *(LABELS[name][1].format(summary[p]) for p in PERCENTILES)] for name, summary in summaries.items()]
        show_table(Table(columns=["ms", *PERCENTILES], rows=rows), console)


def write_output(document: Document, path: Path) -> None:
    """What --output writes: the result, and with it what makes it checkable."""
    write_json({**document.result, "facts": document.facts}, path)


def write_json(result: Mapping[str, Any], path: Path) -> None:
    """One object, keys in the order given."""
    path.write_text(json.dumps(json_ready(dict(result)), indent=2, allow_nan=False) + "\n", encoding="utf-8")
