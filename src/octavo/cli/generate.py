"""``octavo generate``"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from octavo.cli.options import engine_flags, sampling_flags
from octavo.config import AsyncEngineArgs
from octavo.sampling_params import SamplingParams


@engine_flags
@sampling_flags
def command(
    args: AsyncEngineArgs,
    params: SamplingParams,
    prompt: Annotated[list[str] | None, typer.Argument(help="Texts to complete, one after the other; by default standard input.")] = None,
    echo: Annotated[bool, typer.Option("--echo", help="Print each prompt before its completion.")] = False,
) -> None:
    """Complete texts, printed as they are generated. The prompts are used as they stand, without a chat template."""
    from octavo.cli.session import open_session

    prompts = prompt or [sys.stdin.read()]
    with open_session(args) as session:
        for text in prompts:
            if echo:
                print(text, end="")
            session.print_answer(text, params)
            print()
