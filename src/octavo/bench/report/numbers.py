"""Numbers as a report shows them: the digits that matter, and no more."""

from __future__ import annotations

import math
import re

from octavo.bench.report.document import Cell, Table

NOTHING = "–"
_NUMBER = re.compile(r"–|−?∞|[-−+]?[\d,]+(\.\d+)?(e[-+]\d+)?( ?[%×])?")
_LARGE = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def text(value: Cell) -> str:
    """A table's cell. Floats have three digits at least; whole numbers have all of theirs, in groups of three."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    return _float(value)


def _float(value: float) -> str:
    size = abs(value)
    if not math.isfinite(value):
        return NOTHING if math.isnan(value) else ("∞" if value > 0 else "−∞")
    if size == 0 or size >= 99.95:
        return f"{value:,.0f}"
    if size < 1e-4:
        return f"{value:.1e}"
    return f"{value:.{2 - math.floor(math.log10(size))}f}"


def tick(value: float, step: float) -> str:
    """A label of an axis whose ticks lie ``step`` apart: as many digits as tell them apart; from 10,000 on with k, M, G, T."""
    scale, unit = next(((s, u) for s, u in _LARGE if abs(value) >= max(s, 10_000)), (1.0, ""))
    value, step = value / scale, step / scale
    decimals = max(0, -math.floor(math.log10(step) + 1e-9)) if step > 0 else 0
    if round(step, decimals) != round(step, decimals + 1):
        decimals += 1  # 2.5, 7.5
    shown = f"{value:,.{decimals}f}"
    return (shown.rstrip("0").rstrip(".") if "." in shown else shown) + unit if unit else shown


def number_columns(table: Table) -> list[bool]:
    """Which columns have numbers, or texts that read as one, and nothing else but gaps."""
    columns = [[text(row[i]) for row in table.rows] for i in range(len(table.columns))]
    return [any(cell != NOTHING for cell in cells) and all(map(_NUMBER.fullmatch, cells)) for cells in columns]
