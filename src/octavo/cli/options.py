"""Flags derived from tables of settings, the same in every command that runs a model: one for each field of EngineArgs, and
those of SamplingParams that make sense at a terminal."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from octavo.bench.workload.flags import WorkloadFlags
from octavo.config import AsyncEngineArgs
from octavo.errors import InvalidRequestError
from octavo.sampling_params import SamplingParams

Command = Callable[..., int | None]
"""Returns an exit status; None is 0."""

SHOWN_BOUND = 2**16
"""An upper bound from here on is there for safety only, and not worth showing."""

SAMPLING: dict[str, tuple[Any, str]] = {
    "max_tokens": (int | None, "Most tokens of an answer; by default as many as the context holds."),
    "temperature": (float, "0 always takes the likeliest token; higher is more varied. 0 to 100."),
    "top_p": (float, "Keep the smallest set of tokens whose probability reaches this. 0 to 1."),
    "top_k": (int, "Keep this many likeliest tokens; 0 keeps all."),
    "min_p": (float, "Drop tokens less likely than this times the likeliest. 0 to 1."),
    "presence_penalty": (float, "Subtracted once from tokens that are in the answer already. -2 to 2."),
    "frequency_penalty": (float, "Subtracted for each time a token is in the answer already. -2 to 2."),
    "repetition_penalty": (float, "Makes tokens of prompt and answer less likely; 1 is neutral. 0.01 to 100."),
    "stop": (list[str] | None, "A string that ends the answer; may be repeated."),
    "min_tokens": (int, "Do not stop before this many tokens."),
    "ignore_eos": (bool, "Do not stop where the model would."),
}
"""Field of SamplingParams → type and help."""


def flag(field: str) -> str:
    """The command-line spelling of a setting: max_num_seqs → --max-num-seqs."""
    return "--" + field.replace("_", "-")


def in_flags(error: InvalidRequestError) -> str:
    """The error in the command line's own words: with the flag (or MODEL) where the setting's name stood."""
    message = str(error)
    if error.field and message.startswith(error.field):
        shown = error.field.upper() if error.field in ("model", "prompt") else flag(error.field)
        message = shown + message.removeprefix(error.field)
    return message


def read_template(path: Path | None) -> str | None:
    """The text of a --chat-template file, if there is one. Raises InvalidRequestError."""
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InvalidRequestError(f"chat_template = {path}: {reason}", field="chat_template") from None


def engine_flags(command: Command) -> Command:
    """Turn the ``args: AsyncEngineArgs`` parameter of ``command`` into MODEL and one flag for each setting.

    The other parameters stay as they are. A bad value raises InvalidRequestError, which octavo.cli.main puts into flags.
    """
    return derived_flags(command, "args", _engine_parameters(), AsyncEngineArgs)


def workload_flags(command: Command) -> Command:
    """Turn the ``load: WorkloadFlags`` parameter of ``command`` into its flags, after the command's own."""
    hints = typing.get_type_hints(WorkloadFlags)
    derived = [_engine_parameter(spec, hints[spec.name], "Load") for spec in dataclasses.fields(WorkloadFlags)]
    return derived_flags(command, "load", derived, WorkloadFlags, first=0)


def sampling_flags(command: Command) -> Command:
    """Turn the ``params: SamplingParams`` parameter of ``command`` into the flags of SAMPLING, in the same way."""
    return derived_flags(command, "params", [_sampling_parameter(name) for name in SAMPLING], SamplingParams)


def derived_flags(command: Command, name: str, derived: Sequence[inspect.Parameter], build: Callable[..., Any], first: int = 1) -> Command:
    """``command`` with ``derived``, the ``first`` of them before its own, in place of its parameter ``name``, built of their values."""
    hints = typing.get_type_hints(command, include_extras=True)
    own = [
        parameter.replace(annotation=hints[parameter.name], kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in inspect.signature(command).parameters.values()
        if parameter.name != name
    ]

    @functools.wraps(command)
    def run(**values: Any) -> int | None:
        settings = {parameter.name: values.pop(parameter.name) for parameter in derived}
        return command(**{name: build(**settings)}, **values)

    parameters = [*derived[:first], *own, *derived[first:]]  # MODEL comes before the command's own arguments
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def flag_group(name: str, group: type, first: int = 0) -> Callable[[Command], Command]:
    """Turn the parameter ``name`` of a command, a dataclass whose fields are annotated for typer, into one flag for each field.

    ``first``: how many of them stand before the command's own.
    """
    hints = typing.get_type_hints(group, include_extras=True)
    derived = [
        inspect.Parameter(spec.name, inspect.Parameter.KEYWORD_ONLY, default=spec.default, annotation=hints[spec.name])
        for spec in dataclasses.fields(group)
    ]
    return lambda command: derived_flags(command, name, derived, group, first)


@functools.cache
def _engine_parameters() -> tuple[inspect.Parameter, ...]:
    hints = typing.get_type_hints(AsyncEngineArgs)
    return tuple(_engine_parameter(spec, hints[spec.name]) for spec in dataclasses.fields(AsyncEngineArgs))


def _engine_parameter(spec: dataclasses.Field[Any], hint: Any, panel: str = "Engine") -> inspect.Parameter:
    if spec.name == "model":
        return _parameter(spec.name, spec.default, hint, typer.Argument(help=spec.metadata["doc"], metavar="MODEL"))
    choices = "|".join(spec.metadata["choices"] or ()) or None
    option = typer.Option(help=_help(spec.metadata), rich_help_panel=panel, metavar=choices or _metavar(hint))
    return _parameter(spec.name, spec.default, hint, option)


def _sampling_parameter(name: str) -> inspect.Parameter:
    hint, doc = SAMPLING[name]
    none = type(None) in typing.get_args(hint)
    option = typer.Option(help=doc, rich_help_panel="Sampling", metavar=_metavar(hint))
    return _parameter(name, None if none else getattr(SamplingParams(), name), hint, option)


def _parameter(name: str, default: Any, hint: Any, info: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[hint, info])


def _help(rule: Mapping[str, Any]) -> str:
    low, high = rule["low"], rule["high"]
    if rule["choices"] or low is None:
        return str(rule["doc"])
    if low == high:
        return f"{rule['doc']} Only {low:g}."
    bounds = f"{low:g} to {high:g}" if high < SHOWN_BOUND else f"At least {low:g}"
    return f"{rule['doc']} {bounds}."


def _metavar(hint: Any) -> str | None:
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    return {str: "TEXT", int: "INT", float: "FLOAT", list[str]: "TEXT"}.get(kinds[0])
