"""The report as tables: for a terminal, or in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from octavo.bench.report.document import Table
from octavo.bench.report.markdown import table_markdown
from octavo.bench.report.terminal import show_table


def sheets(report: Mapping[str, Any]) -> list[Table]:
    """Fidelity and memory; speed; and what the guard costs, if it ran."""
    found = [_fidelity(report), _speed(report)]
    return [*found, _guard(report["guard"])] if report["guard"] else found


def show(report: Mapping[str, Any], console: Console) -> None:
    """Print the report for a person."""
    for sheet in sheets(report):
        show_table(sheet, console)
        console.print()
    console.print(verdict(report), soft_wrap=True)


def markdown(report: Mapping[str, Any]) -> str:
    """The report, to be pasted into a document."""
    return "\n\n".join([*(table_markdown(sheet) for sheet in sheets(report)), verdict(report)])


def verdict(report: Mapping[str, Any]) -> str:
    """The recommendation and its rule, in a sentence."""
    found = report["recommendation"]
    if found["scales"] is None:
        return f"Recommended: bf16. No 8-bit way was measured that fulfils the rule: {found['rule']}."
    speed = f"decodes at {found['decode_vs_bf16']:.2f} times the speed of bf16 at the longest context"
    return f"Recommended 8-bit KV: --kv-cache-dtype {found['dtype']} --kv-scales {found['scales']}, which {speed} (rule: {found['rule']})."


def _name(run: Mapping[str, Any]) -> str:
    return f"{run['dtype']} {run['scales']}" if run["scales"] else str(run["dtype"])


def _fidelity(report: Mapping[str, Any]) -> Table:
    head = ["K and V in", "KL, nats", "p99", "same top token", "perplexity", "bytes a token", "tokens a GiB", "… of bf16"]
    rows = [
        [
            _name(run),
            f"{run['kl_mean']:.5f}",
            f"{run['kl_p99']:.4f}",
            f"{100 * run['top1_agreement']:.2f} %",
            f"{run['perplexity']:.4f}",
            f"{run['bytes_per_token']:,.0f}",
            f"{run['tokens_per_gib']:,}",
            f"{run['tokens_vs_bf16']:.2f} ×",
        ]
        for run in report["runs"]
    ]
    return Table(title=f"Against fp32 K and V, over {report['tokens']:,} tokens", columns=head, rows=rows)


def _speed(report: Mapping[str, Any]) -> Table:
    contexts = [speed["context"] for speed in report["runs"][0]["speed"]]
    head = ["K and V in", *(f"{what} at {context:,}" for context in contexts for what in ("decode", "prefill"))]
    rows = [
        [_name(run), *(f"{speed[f'{what}_vs_bf16']:.2f} ×" for speed in run["speed"] for what in ("decode", "prefill"))]
        for run in report["runs"]
    ]
    return Table(title="Speed against bf16, one sequence", columns=head, rows=rows)


def _guard(costs: Sequence[Mapping[str, Any]]) -> Table:
    contexts = [speed["context"] for speed in costs[0]["speed"]]
    head = [
        "guarded",
        *(f"{what} at {context:,}" for context in contexts for what in ("decode", "prefill")),
        "guarded, mean",
        "most",
        "in layer",
    ]
    rows = []
    for cost in costs:
        share = cost["guarded_share"]
        most = max(range(len(share)), key=share.__getitem__)
        percents = [f"{speed[f'{what}_percent']:+.1f} %" for speed in cost["speed"] for what in ("decode", "prefill")]
        rows.append([cost["dtype"], *percents, f"{100 * sum(share) / len(share):.1f} %", f"{100 * share[most]:.1f} %", str(most)])
    return Table(
        title="The guard: time a step takes beyond the static one, and the share of vectors with a scale of their own",
        columns=head,
        rows=rows,
    )
