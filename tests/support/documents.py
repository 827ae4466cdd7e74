"""A report with one of everything, and with text that wants to be markup."""

from __future__ import annotations

from octavo.bench.report.document import Chart, Document, Limit, Section, Series, Table

EVIL = '</script><b onclick="x">&| *bold* `code`'


def document(name: str = EVIL) -> Document:
    """``name`` stands wherever a text of a user may."""
    bars = [Series(name="p50", x=[0, 1], y=[5.0, 13.4]), Series(name="p99", x=[0, 1], y=[12.0, None])]
    over_time = [Series(name=name, x=[0, 1, 2, 3], y=[1.0, None, 4.0, 2.0], labels=[name] * 4)]
    band = [Series(name="rate", x=[1, 10, 100], y=[2.0, 20.0, 900.0], low=[1.0, 15.0, 800.0], high=[3.0, 30.0, 1000.0])]
    limit = [Limit(value=3.0, label=name)]
    charts = [
        Chart(title=name, kind="steps", x_label="seconds", y_label="requests", series=over_time, limits=limit, group="time", note=name),
        Chart(title="Points", kind="scatter", x_label="seconds", y_label="ms", series=over_time, group="time"),
        Chart(title="Curve", kind="line", x_label="requests / s", y_label="ms", series=band, x_log=True, y_log=True),
        Chart(title="Bars", kind="bars", x_label="", y_label="ms", series=bars, categories=[name, "other"]),
        Chart(title="Stack", kind="bars", x_label="", y_label="%", series=bars, categories=[name, "other"], stacked=True),
        Chart(title="Empty", kind="line", x_label="s", y_label="ms", series=[]),
    ]
    table = Table(columns=["engine", "tok/s", name], rows=[[name, 1015.0, "yes"], ["other", None, "no"]], title=name, note=name)
    return Document(
        benchmark="serve",
        title=name,
        summary=[f"WARNING: {name}", name],
        sections=[Section(heading=name, text=[name], tables=[table], charts=charts)],
        result={"output_tok_s": 1015.0, "worst": float("inf"), "name": name},
        facts={"date": "2026-11-30", "machine": {"cpu": name, "memory_bytes": 24 * 2**30}},
    )
