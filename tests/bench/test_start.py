"""The command line of benchmarks/server/bench_start.py: its own flags, and those of the server."""

from __future__ import annotations

import pytest

from benchmarks.server.bench_start import parse


@pytest.mark.parametrize(
    ("command", "model", "rounds", "flags"),
    [
        ("", "smollm2", 7, ""),
        ("--rounds 3 -- --itl-slo-ms 50", "smollm2", 3, "--itl-slo-ms 50"),
        ("gemma3-270m --rounds 3 -- --itl-slo-ms 50 --port 1", "gemma3-270m", 3, "--itl-slo-ms 50 --port 1"),
        ("--rounds 3 gemma3-270m --", "gemma3-270m", 3, ""),
        ("-- --chat-template -- x", "smollm2", 7, "--chat-template -- x"),
    ],
)
def test_what_stands_behind_the_dashes_is_the_servers(command: str, model: str, rounds: int, flags: str) -> None:
    arguments, found = parse(command.split())
    assert (arguments.model, arguments.rounds, arguments.port) == (model, rounds, 0)
    assert found == flags.split()


def test_a_flag_before_the_dashes_that_is_not_its_own_is_refused() -> None:
    with pytest.raises(SystemExit):
        parse(["--itl-slo-ms", "50"])
