"""What the benchmarks over HTTP share: the server under test, at a URL or started for the purpose, and how it is spoken to."""

from __future__ import annotations

import contextlib
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from octavo import envs
from octavo.errors import InvalidRequestError

if TYPE_CHECKING:
    from octavo.bench.peers.process import ServerProcess

HOST = "127.0.0.1"

Served = Annotated[
    str | None, typer.Argument(metavar="[MODEL]", help="Start `octavo serve MODEL` for the benchmark; needed where there is no --url.")
]
ServeFlags = Annotated[list[str] | None, typer.Argument(metavar="[-- SERVE FLAGS]", help="Flags of `octavo serve`, after --.")]
Url = Annotated[str | None, typer.Option("--url", "--base-url", help="An OpenAI-compatible server that runs already.")]
ModelName = Annotated[str | None, typer.Option("--model", help="What the server calls the model; by default the first that it lists.")]
Endpoint = Annotated[str, typer.Option(help="/v1/completions or /v1/chat/completions.")]
ApiKey = Annotated[str | None, typer.Option(help="Of the server. Also OCTAVO_API_KEY, which other users cannot see.")]
Tokenizer = Annotated[
    str | None,
    typer.Option(help="Of the model: a folder, tokenizer.json, GGUF file or a name Octavo knows. By default MODEL's or --model's."),
]
RequestTimeout = Annotated[float, typer.Option(min=0.1, help="Seconds after which a request has expired.")]
MaxClientLag = Annotated[
    float,
    typer.Option(min=0.1, help="The run is not valid if the client itself is later than this: p99 of its sends, and of its event loop."),
]
TextPrompts = Annotated[bool, typer.Option("--text-prompts", help="Send text; by default completions are prompted with token ids.")]
Salt = Annotated[str | None, typer.Option(help="Other tokens, of the same lengths: a repeated run finds nothing in the prefix cache.")]
CacheSalt = Annotated[
    str | None, typer.Option(help="The same tokens under this cache_salt, which Octavo and vLLM know: hits only within the same salt.")
]

ENDPOINTS = ("/v1/completions", "/v1/chat/completions")


@dataclass(frozen=True, kw_only=True)
class Running:
    """A server that answers."""

    url: str
    model: str | None
    """Its name there; None: not known."""
    process: ServerProcess | None = None
    """If it was started for this."""
    command: tuple[str, ...] = ()


@contextlib.contextmanager
def serving(url: str | None, served: str | None, flags: Sequence[str] | None, model_name: str | None) -> Iterator[Running]:
    """The server at ``url``, or ``octavo serve`` with ``served`` and ``flags`` on a free port, which is stopped in the end.

    Raises:
        InvalidRequestError: neither is given, or both.
        OctavoError: it does not start; the message has its last words.
    """
    if (url is None) == (served is None):
        raise InvalidRequestError(f"url = {url}: give either --url, of a server that runs, or MODEL, to start one", field="url")
    if url is not None:
        yield Running(url=url, model=model_name)
        return
    from octavo.bench.peers.process import ServerProcess

    flags = list(flags or ())
    port = _free_port()
    command = [sys.executable, "-m", "octavo", "serve", str(served), *flags, "--host", HOST, "--port", str(port)]
    with tempfile.TemporaryDirectory(prefix="octavo-bench-") as folder:
        url = f"http://{HOST}:{port}"
        log = Path(folder) / "server.log"
        with ServerProcess(command, f"{url}/health", log_path=log, name=f"octavo serve {served}") as process:
            yield Running(url=url, model=model_name, process=process, command=("octavo", *command[3:]))


def key(given: str | None) -> str | None:
    """The API key, if any: that of the flag, else the environment's first."""
    return given if given is not None else next(iter(envs.api_keys()), None)


def check_endpoint(endpoint: str) -> bool:
    """Whether it is the chat's. Raises InvalidRequestError for another."""
    if endpoint not in ENDPOINTS:
        raise InvalidRequestError(f"endpoint = {endpoint}: choose one of {', '.join(ENDPOINTS)}", field="endpoint")
    return endpoint == ENDPOINTS[1]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
