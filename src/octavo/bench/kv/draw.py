"""The pictures of ``octavo bench kv``, drawn with matplotlib, which the extra octavo[bench] brings."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from octavo.bench.kv.experiment import TrialResult
from octavo.bench.kv.plan import BLOCK_SIZE
from octavo.errors import InvalidRequestError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LIGHT = {"text": "#1f2328", "page": "#ffffff", "grid": "#d0d7de", "free": "#e6e9ed"}
DARK = {"text": "#e6edf3", "page": "#0d1117", "grid": "#30363d", "free": "#2b323b"}

SLOTS: tuple[tuple[str, str], ...] = (
    ("live", "#009e73"),
    ("tail", "#f0e442"),
    ("reserved", "#d55e00"),
    ("stale", "#cc79a7"),
    ("cached", "#56b4e9"),
    ("external", "#8c6bb1"),
)
"""Part and colour; what is left is free. The palette is Okabe and Ito's, made for every kind of colour vision."""
LINES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1", "#999999")


def check_drawing() -> None:
    """Raise InvalidRequestError if matplotlib is not there."""
    if importlib.util.find_spec("matplotlib") is None:
        raise InvalidRequestError("report: drawing needs matplotlib; pip install 'octavo[bench]' brings it", field="report")


def draw(name: str, results: Sequence[TrialResult], theme: dict[str, str], form: str) -> bytes:
    """One of PICTURES, as a file of the format ``form`` ("png" or "svg")."""
    import matplotlib
    from matplotlib.figure import Figure

    text, page = theme["text"], theme["page"]
    style: dict[Any, Any] = {  # matplotlib's type names every key there is
        "font.size": 9,
        "svg.fonttype": "none",
        "text.color": text,
        "axes.labelcolor": text,
        "axes.edgecolor": theme["grid"],
        "axes.facecolor": page,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "grid.color": theme["grid"],
        "xtick.color": text,
        "ytick.color": text,
        "legend.frameon": False,
        "savefig.facecolor": page,
    }
    file = io.BytesIO()
    with matplotlib.rc_context(style):
        figure = Figure(layout="constrained")
        PICTURES[name](figure, results, theme)
        figure.savefig(file, format=form, dpi=110, metadata={"Date": None, "Creator": None} if form == "svg" else None)
    return file.getvalue()


def _slots(figure: Figure, results: Sequence[TrialResult], theme: dict[str, str]) -> None:
    """Where the pool's slots are: one bar a run."""
    figure.set_size_inches(8, 1.3 + 0.27 * len(results))
    axes = _run_axes(figure.subplots(), results, "share of the pool's slots, %")
    rows = range(len(results))
    left = [0.0] * len(results)
    for part, colour in (*SLOTS, ("free", theme["free"])):
        widths = [100 * _part(result, part) for result in results]
        if part == "stale" and not any(widths):
            continue  # the model has no sliding windows
        axes.barh(rows, widths, 0.78, left, color=colour, label=part)
        if part == "live":
            for row, width in zip(rows, widths, strict=True):
                axes.text(width / 2, row, f"{width:.0f}", ha="center", va="center", color="white", fontsize=8)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axes.set_xlim(0, 100)
    figure.legend(loc="outside upper center", ncols=7, fontsize=8)


def _part(result: TrialResult, part: str) -> float:
    if part == "free":
        return max(result.parts["free"] - result.parts["external"], 0.0)
    return result.parts[part]


def _efficiency(figure: Figure, results: Sequence[TrialResult], theme: dict[str, str]) -> None:
    values: list[tuple[str, Callable[[TrialResult], float], str]] = [
        ("KV efficiency: live / held, %", lambda r: 100 * r.measures.kv_efficiency, "{:.1f}"),
        ("live / total, %", lambda r: 100 * r.measures.live_of_total, "{:.1f}"),
    ]
    _bars(figure, results, values, theme, 100)


def _service(figure: Figure, results: Sequence[TrialResult], theme: dict[str, str]) -> None:
    values: list[tuple[str, Callable[[TrialResult], float], str]] = [
        ("concurrent requests", lambda r: r.measures.concurrent, "{:.1f}"),
        ("output tokens a second", lambda r: r.measures.output_tok_s, "{:,.0f}"),
        ("preemptions", lambda r: r.measures.preemptions, "{:.0f}"),
    ]
    _bars(figure, results, values, theme, None)


def _bars(
    figure: Figure,
    results: Sequence[TrialResult],
    panels: Sequence[tuple[str, Callable[[TrialResult], float], str]],
    theme: dict[str, str],
    high: float | None,
) -> None:
    """One panel a measure, one bar a run, its number behind it."""
    figure.set_size_inches(8, 1.0 + 0.25 * len(results))
    for i, (label, value, form) in enumerate(panels):
        axes = _run_axes(figure.add_subplot(1, len(panels), i + 1), results, label)
        values = [value(result) for result in results]
        top = high or max([*values, 1.0])
        axes.barh(range(len(results)), values, 0.72, color=LINES[0])
        for row, each in enumerate(values):
            axes.text(each + 0.02 * top, row, form.format(each), va="center", fontsize=8)
        axes.set_xlim(0, 1.22 * top)
        if high:
            axes.set_xticks([0, high / 4, high / 2, 3 * high / 4, high])
        if i:
            axes.set_yticklabels([])


def _fragmentation(figure: Figure, results: Sequence[TrialResult], theme: dict[str, str]) -> None:
    """Fragmentation over time, of the runs with blocks of one size, as a mean over 40 spans of time."""
    figure.set_size_inches(8, 3)
    axes = figure.subplots()
    chosen = [r for r in results if r.trial.block_size == BLOCK_SIZE] or list(results)
    for i, result in enumerate(chosen):
        times, values = _over_time(result)
        style = ("-", "--", "-.", ":")[i % 4]
        axes.plot(times, values, style, color=LINES[i % len(LINES)], label=result.trial.policy, linewidth=1.4)
    axes.set_xlabel("seconds since the start")
    axes.set_ylabel("fragmentation, %\n(1 − largest free run / free)")
    axes.set_ylim(-2, 102)
    axes.grid(True, linewidth=0.5)
    figure.legend(loc="outside right upper", fontsize=8)


def _over_time(result: TrialResult, spans: int = 40) -> tuple[list[float], list[float]]:
    """Middle and time-weighted mean of each span that has steps."""
    length = (result.samples[-1].start + result.samples[-1].seconds) / spans or 1.0
    area, seconds = [0.0] * spans, [0.0] * spans
    for sample in result.samples:
        span = min(int(sample.start / length), spans - 1)
        area[span] += 100 * sample.fragmentation * sample.seconds
        seconds[span] += sample.seconds
    filled = [i for i in range(spans) if seconds[i] > 0]
    return [(i + 0.5) * length for i in filled], [area[i] / seconds[i] for i in filled]


def _run_axes(axes: Any, results: Sequence[TrialResult], label: str) -> Axes:
    """Axes with a row for each run, the first on top."""
    names = [f"{result.trial.policy} · {result.trial.block_size}" for result in results]
    axes.set_yticks(range(len(results)), names)
    axes.set_ylim(len(results) - 0.45, -0.55)
    axes.set_xlabel(label)
    axes.tick_params(axis="y", length=0)
    axes.grid(True, axis="x", linewidth=0.5)
    found: Axes = axes
    return found


PICTURES: dict[str, Callable[[Figure, Sequence[TrialResult], dict[str, str]], None]] = {
    "slots": _slots,
    "efficiency": _efficiency,
    "fragmentation": _fragmentation,
    "service": _service,
}
