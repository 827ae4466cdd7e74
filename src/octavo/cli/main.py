"""The ``octavo`` command. A command's heavy imports happen when it runs, so that --help answers at once.

Where the command is named, no other is imported or built: the flags of all of them take a tenth of a second.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

import typer
from typer.exceptions import TyperException

from octavo.cli.options import in_flags
from octavo.engine.logs import show_logs
from octavo.errors import InvalidRequestError, OctavoError

COMMANDS = ("serve", "generate", "chat", "pull", "inspect", "kv-report", "version", "bench")


def _tree(names: Sequence[str]) -> typer.Typer:
    """These of COMMANDS."""
    tree = typer.Typer(
        name="octavo",
        help="Serve large language models, on what you have.",
        no_args_is_help=True,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    tree.callback()(lambda: None)  # one command alone must be named too
    for name in names:
        module = importlib.import_module(f"octavo.cli.{name.replace('-', '_')}")
        if name == "bench":
            tree.add_typer(module.commands, name=name)
        else:
            tree.command(name=name)(module.command)
    return tree


def app(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 2 for a bad value, 1 for what failed; each is told in one line."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        show_logs()
        named = arguments[:1] if arguments[:1] and arguments[0] in COMMANDS else COMMANDS
        status = typer.main.get_command(_tree(named)).main(arguments, prog_name="octavo", standalone_mode=False)
    except TyperException as error:
        return _fail(_usage(error, arguments), error.exit_code)
    except InvalidRequestError as error:
        return _fail(in_flags(error), 1 if error.field == "model" else 2)
    except (OctavoError, OSError) as error:
        return _fail(str(error), 1)
    except typer.Abort:
        return 130
    return status if isinstance(status, int) else 0


def _usage(error: TyperException, arguments: Sequence[str]) -> str:
    """The error, in the form of the others if it is about an option's value: flag, value, limit."""
    names = getattr(getattr(error, "param", None), "opts", ())
    for place, argument in enumerate(arguments):
        name, joined, value = argument.partition("=")
        if name in names and name.startswith("-") and (joined or place + 1 < len(arguments)):
            return f"{name} = {value if joined else arguments[place + 1]}: {error.message[:1].lower()}{error.message[1:]}"
    return error.format_message()


def _fail(message: str, status: int) -> int:
    if message:
        print(f"octavo: {message}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(app())
