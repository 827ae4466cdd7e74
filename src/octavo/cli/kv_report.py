"""``octavo kv-report``"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.cli.bench_alone import WaitForLock, alone
from octavo.cli.options import engine_flags
from octavo.config import AsyncEngineArgs
from octavo.errors import InvalidRequestError

if TYPE_CHECKING:
    from octavo.bench.kv_report.measure import Progress


@engine_flags
def command(
    args: AsyncEngineArgs,
    dtypes: Annotated[
        str, typer.Option(help="Ways to store K and V, separated by commas (bf16,int8,fp8_e4m3/dynamic); by default all.")
    ] = "",
    text: Annotated[Path | None, typer.Option(help="The text to score, UTF-8; by default two licences in plain English.")] = None,
    tokens: Annotated[int | None, typer.Option(min=2, help="Tokens of it; by default 8192, or as many as text and context have.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Times each speed is measured, all ways in turn; medians count.")] = 5,
    output: Annotated[Path | None, typer.Option(help="Write the result here as JSON.", dir_okay=False)] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown, for a document.")] = False,
    wait_for_lock: WaitForLock = False,
) -> None:
    """Compare the ways to store K and V: fidelity to fp32, memory, speed; and recommend an 8-bit one."""
    from rich.console import Console

    from octavo.bench.kv_report import tables
    from octavo.bench.report.terminal import write_json

    with alone(wait_for_lock):
        result = _measured(args, [name.strip() for name in dtypes.split(",") if name.strip()], text, tokens, rounds)
    if output is not None:
        write_json(result, output)
    if markdown:
        print(tables.markdown(result))
    else:
        tables.show(result, Console(highlight=False))


def _measured(args: AsyncEngineArgs, dtypes: list[str], text: Path | None, tokens: int | None, rounds: int) -> dict[str, Any]:
    from octavo.bench.kv_report.measure import measure
    from octavo.bench.kv_report.speed import SpeedPlan
    from octavo.bench.kv_report.text import read_text, text_ids
    from octavo.bench.kv_report.variants import choose_variants
    from octavo.cli.pull import ensure
    from octavo.engine.kv_variants import open_variants
    from octavo.engine.processor import load_model_tokenizer

    if args.kv_cache_dtype != "auto":
        raise InvalidRequestError(
            f"kv_cache_dtype = {args.kv_cache_dtype}: the report tries several; name them in --dtypes", field="kv_cache_dtype"
        )
    variants, words = choose_variants(dtypes), read_text(text)
    ensure(args.model)
    tokenizer = load_model_tokenizer(args)
    with open_variants(args, variants) as model:
        ids = text_ids(tokenizer, words, tokens, model.max_model_len)
        with _progress() as progress:
            result = measure(model, ids, SpeedPlan(rounds=rounds), progress)
    return {"benchmark": "kv-report", "model": args.model, "text": str(text or "built in"), "dtype": args.dtype, **result}


@contextmanager
def _progress() -> Iterator[Progress]:
    """A bar on standard error for each stage."""
    from rich.console import Console
    from rich.progress import Progress as Bars

    with Bars(console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, Any] = {}

        def report(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=done)

        yield report
