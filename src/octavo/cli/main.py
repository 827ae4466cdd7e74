"""The ``octavo`` command. A command's heavy imports happen when it runs, so that --help answers at once."""

from __future__ import annotations

import sys

import typer
from typer.exceptions import TyperException

from octavo.cli import chat, generate, inspect, pull, serve, version
from octavo.errors import OctavoError

commands = typer.Typer(
    name="octavo",
    help="Serve large language models, on what you have.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for module in (serve, generate, chat, pull, inspect, version):
    commands.command(name=module.__name__.rpartition(".")[2])(module.command)


def app(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status: 2 for a bad value, 1 for what failed; each is told in one line."""
    try:
        result = typer.main.get_command(commands).main(arguments, prog_name="octavo", standalone_mode=False)
    except TyperException as error:
        return _fail(error.format_message(), error.exit_code)
    except (OctavoError, OSError) as error:
        return _fail(str(error), 1)
    except typer.Abort:
        return 130
    return result if isinstance(result, int) else 0


def _fail(message: str, status: int) -> int:
    print(f"octavo: {message}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(app())
