"""One measurement at a time, and a word where the machine was busy with something else."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from octavo.bench.report.quiet import Quiet

WaitForLock = Annotated[
    bool, typer.Option("--wait-for-lock", help="Wait until no other measurement runs on this machine; by default that is an error.")
]


@contextlib.contextmanager
def alone(wait: bool) -> Iterator[Quiet]:
    """Hold the machine for a measurement in this process; on standard error: for whom we wait, and what else ran meanwhile.

    Raises:
        MachineBusyError: another measurement runs, and ``wait`` is False.
    """
    from octavo.bench.report.lock import measuring
    from octavo.bench.report.quiet import Quiet

    def tell(line: str) -> None:
        print(f"octavo: {line}", file=sys.stderr)

    with measuring(wait, tell):
        with Quiet() as quiet:
            yield quiet
        for warning in quiet.warnings():
            tell(warning)
