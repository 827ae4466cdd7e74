"""A report in a folder: pictures as PNG, and one HTML file that needs nothing else."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from octavo.bench.kv.draw import DARK, LIGHT, PICTURES, draw
from octavo.bench.kv.experiment import TrialResult
from octavo.bench.kv.result import notes, rows, title

CAPTIONS = {
    "slots": "Where the pool's slots are, on average. Live slots hold a token that a running request attends to; tail, reserved and stale "
    "slots are held and hold none; cached ones are kept for later requests only, and go when room is needed; external is what is free, but "
    "not in one run as long as the request that waits for it.",
    "efficiency": "Left: of what requests hold, what holds tokens. Right: of the whole pool, the measure of the PagedAttention paper.",
    "fragmentation": "How scattered the free slots are, where a request needs one run of them. It is 0 where any block will do.",
    "service": "What it comes to: requests served at a time, tokens a second, requests preempted.",
}

_STYLE = """
:root { color-scheme: light dark; --text: #1f2328; --page: #fff; --line: #d0d7de; --quiet: #59636e; }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --page: #0d1117; --line: #30363d; --quiet: #9198a1; } }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; font: 15px/1.5 system-ui, sans-serif; }
body { color: var(--text); background: var(--page); }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
img { max-width: 100%; } figure { margin: 1.5rem 0; } figcaption, .note { color: var(--quiet); }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } .facts td { text-align: left; white-space: normal; }
.simulated { border: 2px solid #d55e00; padding: .5rem 1rem; }
"""


def write_report(result: dict[str, Any], results: Sequence[TrialResult], folder: Path) -> Path:
    """Write NAME.png for each picture and index.html, and return the latter's path."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in PICTURES:
        (folder / f"{name}.png").write_bytes(draw(name, results, LIGHT, "png"))
    page = folder / "index.html"
    page.write_text(_page(result, {name: _picture(name, results) for name in PICTURES}), encoding="utf-8")
    return page


def _picture(name: str, results: Sequence[TrialResult]) -> str:
    """The picture in both themes, as data in the page itself."""
    light, dark = (base64.b64encode(draw(name, results, theme, "svg")).decode() for theme in (LIGHT, DARK))
    kind = "data:image/svg+xml;base64,"
    source = f'<source media="(prefers-color-scheme: dark)" srcset="{kind}{dark}">'
    return f'<picture>{source}<img alt="{escape(CAPTIONS[name])}" src="{kind}{light}"></picture>'


def _page(result: dict[str, Any], pictures: dict[str, str]) -> str:
    meta = result["meta"]
    figures = "".join(f"<figure>{picture}<figcaption>{escape(CAPTIONS[name])}</figcaption></figure>" for name, picture in pictures.items())
    label = '<p class="simulated"><strong>Simulated.</strong> No model ran; time is a model too.</p>' if meta["simulated"] else ""
    said = "".join(f'<p class="note">{escape(note)}</p>' for note in notes(result))
    table = _table(*rows(result))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title(result))}</title><style>{_STYLE}</style></head><body><h1>{escape(title(result))}</h1>{label}{said}"
        f"{figures}<h2>Numbers</h2>{table}<h2>How it was measured</h2>{_facts(meta)}</body></html>\n"
    )


def _facts(meta: dict[str, Any]) -> str:
    """The settings, and each run's window."""
    machine = ", ".join(f"{name} {value}" for name, value in meta["machine"].items() if value)
    workload = meta["workload"]
    facts = {
        "workload": f"{workload['name']}: {workload['description']}; {workload['num_requests']} requests, seed {workload['seed']}",
        "pool": f"{meta['pool_tokens']:,} tokens, {meta['pool_bytes'] / 1e6:,.0f} MB; requests of up to {meta['max_model_len']:,} tokens",
        "model": f"{meta['model']}, KV in {meta['kv_cache_dtype'] or 'no storage'}, numerics_id {meta['numerics_id'][:16]}",
        "machine": machine,
    }
    rows = "".join(f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in facts.items())
    headers = ("policy", "block", "window from s", "to s", "steps", "requests ended", "mean length", "efficiency while steps run %")
    windows = [
        [
            window["policy"],
            str(window["block_size"]),
            f"{window['from_s']:.1f}",
            f"{window['to_s']:.1f}",
            str(window["steps"]),
            str(window["ended"]),
            f"{window['mean_length']:.0f}",
            f"{100 * window['kv_efficiency_while_steps_run']:.1f}",
        ]
        for window in meta["windows"]
    ]
    return f'<table class="facts">{rows}</table><h2>Windows</h2>{_table(headers, windows)}'


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(_unbroken(header))}</th>" for header in headers)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _unbroken(header: str) -> str:
    """A header of the terminal's narrow columns in one line."""
    return header.replace("-\n", "").replace("\n", "")
