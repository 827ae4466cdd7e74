"""Colours of the charts, after Okabe and Ito's palette, made for every kind of colour vision. Lines differ in dashes, points in shape."""

from __future__ import annotations

LIGHT = ("#0072b2", "#d55e00", "#009e73", "#c2629a", "#b88700", "#3a9bd1", "#7d5bb0", "#5c6670")
DARK = ("#58b1ea", "#ff8f4d", "#2fc79a", "#ee9ccb", "#f2c14e", "#9bd7f7", "#b9a0e3", "#aab2bb")
INK_LIGHT, INK_DARK = "#ffffff", "#0d1117"
"""Text upon a bar."""

DASHES = ("", "8 3", "3 3", "10 3 3 3")
SHAPES = 4
"""Circle, square, triangle, diamond: see octavo.bench.report.marks."""

_NEUTRAL = {
    "light": {
        "page": "#ffffff",
        "text": "#1f2328",
        "quiet": "#59636e",
        "grid": "#e3e7eb",
        "line": "#d0d7de",
        "rest": "#dde1e6",
        "limit": "#cf222e",
    },
    "dark": {
        "page": "#0d1117",
        "text": "#e6edf3",
        "quiet": "#9aa4af",
        "grid": "#232a32",
        "line": "#30363d",
        "rest": "#333b44",
        "limit": "#ff7b72",
    },
}


def variables(theme: str) -> str:
    """The CSS custom properties of a theme, light or dark: --page, --text, …, and --s0 … of the series."""
    colours = LIGHT if theme == "light" else DARK
    ink = INK_LIGHT if theme == "light" else INK_DARK
    named = [*_NEUTRAL[theme].items(), ("ink", ink), *((f"s{i}", colour) for i, colour in enumerate(colours))]
    return " ".join(f"--{name}: {value};" for name, value in named)


def css() -> str:
    """Rules that charts need wherever they are; octavo.bench.report.charts writes the classes."""
    series = " ".join(f".s{i} {{ --c: var(--s{i}); }}" for i in range(len(LIGHT)))
    return f"""{series} .rest {{ --c: var(--rest); }}
.chart text {{ fill: var(--text); font: 13px system-ui, sans-serif; font-variant-numeric: tabular-nums; }}
.chart .label {{ fill: var(--quiet); }}
.chart .grid {{ stroke: var(--grid); stroke-width: 1; fill: none; }}
.chart .axis {{ stroke: var(--line); stroke-width: 1; fill: none; }}
.chart .line {{ stroke: var(--c); stroke-width: 1.8; fill: none; stroke-linejoin: round; }}
.chart .band {{ fill: var(--c); opacity: .18; }}
.chart .error {{ stroke: var(--text); stroke-width: 1.2; fill: none; }}
.chart .bar {{ fill: var(--c); }}
.chart .round, .chart .square {{ stroke: var(--c); stroke-width: 6; fill: none; opacity: .75; }}
.chart .round {{ stroke-linecap: round; }} .chart .square {{ stroke-linecap: square; stroke-width: 5; }}
.chart .shape {{ fill: var(--c); opacity: .75; }}
.chart .on {{ fill: var(--ink); }} .chart .rest-on {{ fill: var(--text); }}
.chart .limit {{ stroke: var(--limit); stroke-width: 1.4; stroke-dasharray: 6 4; fill: none; }}
.chart .limit-label {{ fill: var(--limit); font-size: 12px; }}
.chart .limit-label {{ paint-order: stroke; stroke: var(--page); stroke-width: 4; stroke-linejoin: round; }}"""
