"""``octavo chat``"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.cli.options import SAMPLING, engine_flags, read_template, sampling_flags
from octavo.config import AsyncEngineArgs
from octavo.errors import InvalidRequestError
from octavo.sampling_params import SamplingParams

if TYPE_CHECKING:
    from octavo.cli.session import Session

HELP = """\
/help              this list
/reset             forget the conversation
/system [TEXT]     show the system message, or set it and start again
/params            show how answers are sampled
/set NAME VALUE    change one of these, e.g. /set temperature 0.2
/exit              leave; Ctrl-D does too. Ctrl-C stops an answer"""


@engine_flags
@sampling_flags
def command(
    args: AsyncEngineArgs,
    params: SamplingParams,
    system: Annotated[str | None, typer.Option(help="The system message.")] = None,
    chat_template: Annotated[Path | None, typer.Option(help="A Jinja file to use in place of the model's own template.")] = None,
) -> None:
    """Talk with a model at the terminal. /help lists what else you can type; with input from a pipe, each line is a message."""
    from octavo.cli.session import open_session

    override = read_template(chat_template)
    with open_session(args) as session:
        Chat(session, params, system, override).run(_reader(args.model))


class Chat:
    """One conversation."""

    def __init__(self, session: Session, params: SamplingParams, system: str | None = None, template: str | None = None) -> None:
        """``template`` replaces the model's own. Raises InvalidRequestError if there is neither."""
        from octavo.tokenizer.chat_template import ChatTemplate

        self._session = session
        self._template = ChatTemplate.of(session.engine.tokenizer, template)
        self._template.require()
        self._params = params
        self._system = system
        self.messages: list[dict[str, str]] = []
        self._commands: dict[str, Callable[[str], None]] = {
            "/help": lambda _: print(HELP),
            "/reset": lambda _: self._reset(),
            "/system": self._set_system,
            "/params": lambda _: self._show_params(),
            "/set": self._set_param,
        }
        self._reset()

    def run(self, read: Callable[[], str | None]) -> None:
        """Answer line after line, until ``read`` returns None or /exit comes."""
        while (line := read()) is not None:
            line = line.strip()
            name, _, rest = line.partition(" ")
            if name in ("/exit", "/quit"):
                return
            if name in self._commands:
                self._commands[name](rest.strip())
            elif name.startswith("/") and "/" not in name[1:]:
                print(f"{name}: no such command; /help lists them", file=sys.stderr)
            elif line:
                self._answer(line)

    def _answer(self, line: str) -> None:
        asked = [*self.messages, {"role": "user", "content": line}]
        try:
            self._session.print_answer(self._template.apply(self._session.engine.tokenizer, asked), self._params)
        except KeyboardInterrupt:
            print(" [stopped]", end="")
        except InvalidRequestError as error:
            hint = "; /reset starts a new conversation" if error.code == "context_length_exceeded" else ""
            print(f"{error}{hint}", file=sys.stderr)
            return
        print("\n" if sys.stdin.isatty() else "", flush=True)
        self.messages = [*asked, {"role": "assistant", "content": self._session.answer}]

    def _reset(self) -> None:
        self.messages = [{"role": "system", "content": self._system}] if self._system else []

    def _set_system(self, text: str) -> None:
        if text:
            self._system = text
            self._reset()
        print(f"system: {self._system or '(none)'}")

    def _show_params(self) -> None:
        for name in SAMPLING:
            print(f"{name} = {getattr(self._params, name)}")

    def _set_param(self, rest: str) -> None:
        name, _, value = rest.partition(" ")
        if name not in SAMPLING:
            print(f"/set {name}: choose one of {', '.join(SAMPLING)}", file=sys.stderr)
            return
        try:
            self._params = self._params.clone(**{name: _parsed(value)})
            print(f"{name} = {getattr(self._params, name)}")
        except InvalidRequestError as error:
            print(error, file=sys.stderr)


def _parsed(value: str) -> object:
    """A number, true, false, none or else a text."""
    words: dict[str, object] = {"true": True, "false": False, "none": None}
    if value.lower() in words:
        return words[value.lower()]
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def _reader(model: str) -> Callable[[], str | None]:
    """Reads a line, with editing and history at a terminal; None at the end of input."""
    if sys.stdin.isatty():
        importlib.import_module("readline")  # gives input() its editing

        print(f"Chatting with {model}. /help lists commands, /exit leaves.")

    def read() -> str | None:
        while True:
            try:
                return input("> " if sys.stdin.isatty() else "")
            except KeyboardInterrupt:
                print("\n/exit or Ctrl-D leaves")
            except EOFError:
                return None

    return read
