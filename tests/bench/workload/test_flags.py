"""Flags of a load: vLLM's names and meanings, what changes a file, and what is refused."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from octavo.bench.workload.arrivals import Arrivals
from octavo.bench.workload.file import load_workload, parse_workload
from octavo.bench.workload.flags import WorkloadFlags, at_rate
from octavo.bench.workload.requests import Workload
from octavo.bench.workload.tokens import Tokens
from octavo.cli.options import in_flags, workload_flags
from octavo.errors import InvalidRequestError

EXAMPLES = Path(__file__).parents[3] / "examples" / "workloads"
TOKENS = Tokens.of_size(1000)


def test_by_default_all_requests_come_at_once() -> None:
    load = WorkloadFlags().build()
    assert load.arrivals.process == "at_once" and load.num_requests == 100
    assert {(len(r.prompt_token_ids), r.output_tokens, r.max_tokens) for r in load.draw(TOKENS)} == {(128, 128, 128)}
    assert WorkloadFlags(request_rate=math.inf).build() == load


def test_a_rate_is_poisson_and_burstiness_is_the_gammas_shape() -> None:
    for burstiness, process, variation in ((None, "poisson", 1.0), (1.0, "poisson", 1.0), (0.25, "gamma", 2.0), (4.0, "gamma", 0.5)):
        load = WorkloadFlags(request_rate=5.0, burstiness=burstiness, num_prompts=4000, input_len=1, output_len=1).build()
        assert load.arrivals.process == process
        gaps = np.diff([r.arrival for r in load.draw(TOKENS)], prepend=0.0)
        assert gaps.mean() == pytest.approx(0.2, rel=0.1)
        assert gaps.std() / gaps.mean() == pytest.approx(variation, rel=0.1)


def test_most_at_a_time_caps_an_open_loop_and_makes_a_closed_one_without_a_rate() -> None:
    assert WorkloadFlags(max_concurrency=4).build().arrivals == Arrivals(process="closed", concurrency=4)
    capped = WorkloadFlags(max_concurrency=4, request_rate=2).build().arrivals
    assert capped == Arrivals(process="poisson", rate=2, max_concurrency=4)


def test_lengths_spread_by_a_ratio_and_a_prefix_that_comes_on_top() -> None:
    """vLLM: floor(100 × 0.7) to ceil(100 × 1.3), and 50 more that all prompts share."""
    load = WorkloadFlags(input_len=100, output_len=10, random_range_ratio=0.3, random_prefix_len=50, num_prompts=2000).build()
    drawn = load.draw(TOKENS)
    lengths = [len(r.prompt_token_ids) - 50 for r in drawn]
    assert (min(lengths), max(lengths)) == (70, 130) and np.mean(lengths) == pytest.approx(100, rel=0.02)
    assert {r.output_tokens for r in drawn} == set(range(7, 14))
    assert len({tuple(r.prompt_token_ids[:50]) for r in drawn}) == 1
    assert load.max_model_len == 50 + 130 + 13


def test_prompts_of_text_from_flags(tmp_path: Path) -> None:
    assert WorkloadFlags(prompt="random").build() == WorkloadFlags().build()
    built_in, own = WorkloadFlags(prompt="text").build(), tmp_path / "x.txt"
    own.write_text("Once upon a time.")
    assert built_in.requests[0].prompt is not None and "GNU GENERAL PUBLIC LICENSE" in built_in.requests[0].prompt.text
    prompt = WorkloadFlags(prompt=str(own)).build().requests[0].prompt
    assert prompt is not None and prompt.text == "Once upon a time."


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"request_rate": 2.5, "burstiness": 0.5, "max_concurrency": 3},
        {"random_prefix_len": 9, "random_range_ratio": 0.5, "prompt": "text"},
    ],
)
def test_a_load_from_flags_can_be_written_as_a_file(flags: dict[str, Any]) -> None:
    load = WorkloadFlags(**flags).build()
    assert parse_workload(load.as_toml(), "again") == load


def changed(name: str, **flags: Any) -> tuple[Workload, Workload]:
    path = EXAMPLES / f"{name}.toml"
    return load_workload(path), WorkloadFlags(workload=str(path), **flags).build()


def test_a_file_and_what_changes_it() -> None:
    before, after = changed("tenants")
    assert before == after
    before, after = changed("tenants", seed=9, num_prompts=7)
    assert after == dataclasses.replace(before, seed=9, num_requests=7)
    before, after = changed("tenants", request_rate=8)
    assert after.arrivals == dataclasses.replace(before.arrivals, rate=8), "gamma arrivals stay gamma"
    before, after = changed("conversations", request_rate=3, num_prompts=100)
    assert after.arrivals == Arrivals(process="poisson", rate=3) and after.trace == before.trace
    _, after = changed("long_context", request_rate=math.inf)
    assert after.arrivals == Arrivals(process="at_once")
    _, after = changed("ramp", request_rate=2)
    assert parse_workload(after.as_toml(), "again").arrivals == at_rate(Arrivals(process="poisson", rate=1), 2)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"request_rate": 0.0}, "--request-rate = 0.0: it must be at least 1e-06"),
        ({"request_rate": math.nan}, "--request-rate = nan: it must be at least 1e-06"),
        ({"burstiness": 0.0, "request_rate": 1.0}, "--burstiness = 0.0: it must be from 0.001 to 1000"),
        ({"burstiness": 2.0}, "--burstiness = 2.0: it shapes the gaps between requests, and without --request-rate"),
        ({"num_prompts": 0}, "--num-prompts = 0: it must be from 1 to 1000000"),
        ({"input_len": 0}, "--input-len = 0: it must be from 1 to 1048576"),
        ({"random_range_ratio": 1.0}, "--random-range-ratio = 1.0: it must be from 0 to 0.999"),
        ({"seed": -1}, "--seed = -1: it must be from 0"),
        ({"prompt": "nothing.txt"}, "nothing.txt: No such file"),
        ({"workload": "nothing.toml"}, "--workload = nothing.toml: No such file"),
        ({"workload": str(EXAMPLES / "chat.toml"), "input_len": 4}, "--input-len = 4: the workload file"),
        ({"workload": str(EXAMPLES / "chat.toml"), "burstiness": 0.5}, "--burstiness = 0.5: the workload file"),
        ({"workload": str(EXAMPLES / "conversations.toml"), "num_prompts": 99}, "--num-prompts = 99: the trace conversations.jsonl has 46"),
    ],
)
def test_bad_flags_are_named_with_value_and_limit(flags: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequestError) as error:
        WorkloadFlags(**flags).build()
    assert said in in_flags(error.value)


def test_a_command_with_these_flags() -> None:
    seen: list[tuple[WorkloadFlags, str]] = []

    @workload_flags
    def command(load: WorkloadFlags, url: str = "here") -> None:
        seen.append((load, url))

    app = typer.Typer()
    app.command()(command)
    given = ["--request-rate", "inf", "--num-prompts", "3", "--random-prefix-len", "5", "--seed", "2", "--url", "there"]
    assert CliRunner().invoke(app, given).exit_code == 0
    assert seen == [(WorkloadFlags(request_rate=math.inf, num_prompts=3, random_prefix_len=5, seed=2), "there")]
