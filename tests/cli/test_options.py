"""Flags come from the tables of settings, and a bad value is told as a flag, a value and a limit."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import typer

from octavo.cli.options import SAMPLING, engine_flags, flag, in_flags, sampling_flags
from octavo.config import AsyncEngineArgs
from octavo.errors import InvalidRequestError
from octavo.sampling_params import SamplingParams

FLAGS = {field.name for field in dataclasses.fields(AsyncEngineArgs)}
EXAMPLES: dict[str, tuple[list[str], Any]] = {
    "tokenizer": (["--tokenizer", "t"], "t"),
    "max_model_len": (["--max-model-len", "128"], 128),
    "max_num_seqs": (["--max-num-seqs=4"], 4),
    "gpu_memory_utilization": (["--gpu-memory-utilization", "0.5"], 0.5),
    "enable_prefix_caching": (["--no-enable-prefix-caching"], False),
    "enable_chunked_prefill": (["--enable-chunked-prefill"], True),
    "enforce_eager": (["--enforce-eager"], True),
    "block_size": (["--block-size", "32"], 32),
    "dtype": (["--dtype", "float32"], "float32"),
}


def parsed(*arguments: str) -> tuple[AsyncEngineArgs, SamplingParams, bool]:
    """What a command with all flags receives."""
    received: list[Any] = []
    app = typer.Typer()

    @app.command()
    @engine_flags
    @sampling_flags
    def command(args: AsyncEngineArgs, params: SamplingParams, loud: bool = False) -> None:
        received.extend((args, params, loud))

    typer.main.get_command(app).main(list(arguments), standalone_mode=False)
    return received[0], received[1], received[2]


def test_defaults_are_the_settings_own() -> None:
    args, params, loud = parsed()
    assert args == AsyncEngineArgs()
    assert params == SamplingParams(max_tokens=None)
    assert loud is False


def test_every_setting_has_a_flag() -> None:
    app = typer.Typer()

    @app.command()
    @engine_flags
    def command(args: AsyncEngineArgs) -> None:
        raise AssertionError

    names = {parameter.name for parameter in typer.main.get_command(app).params}
    assert names >= FLAGS


@pytest.mark.parametrize("field", EXAMPLES)
def test_flag_reaches_its_setting(field: str) -> None:
    arguments, expected = EXAMPLES[field]
    args, _, _ = parsed(*arguments)
    assert getattr(args, field) == expected


def test_model_comes_first_and_own_options_stay() -> None:
    args, params, loud = parsed("some/model", "--loud", "--temperature", "0", "--stop", "a", "--stop", "b", "--max-tokens", "3")
    assert (args.model, loud) == ("some/model", True)
    assert (params.temperature, params.stop, params.max_tokens) == (0.0, ["a", "b"], 3)


@pytest.mark.parametrize(
    "arguments", [("--max-num-seqs", "0"), ("--block-size", "12"), ("--temperature", "101"), ("--quantization", "int3")]
)
def test_bad_values_name_flag_value_and_limit(arguments: tuple[str, str]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parsed(*arguments)
    message = in_flags(caught.value)
    assert message.startswith(arguments[0])
    assert arguments[1] in message
    assert ":" in message


def test_arguments_without_a_flag_are_named_as_the_usage_names_them() -> None:
    assert in_flags(InvalidRequestError("prompt is empty", field="prompt")) == "PROMPT is empty"
    assert in_flags(InvalidRequestError("model = 'x': unknown", field="model")) == "MODEL = 'x': unknown"


def test_sampling_table_names_real_fields() -> None:
    assert set(SAMPLING) <= set(SamplingParams.__struct_fields__)
    assert flag("max_num_seqs") == "--max-num-seqs"
