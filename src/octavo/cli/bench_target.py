"""What the benchmarks over HTTP share: the server under test, at a URL or started for the purpose, and how it is spoken to."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from octavo import envs
from octavo.cli.bench_alone import WaitForLock
from octavo.cli.options import flag_group
from octavo.errors import InvalidRequestError

if TYPE_CHECKING:
    from octavo.bench.measures.slo import Slo
    from octavo.bench.peers.process import ServerProcess
    from octavo.bench.serve import ServePlan
    from octavo.bench.workload.requests import Workload

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
Price = Annotated[
    float | None, typer.Option(min=0, help="What the machine costs an hour, in any currency: adds the cost of a million tokens.")
]
Output = Annotated[Path | None, typer.Option(help="Write the result here as JSON.", dir_okay=False)]
Report = Annotated[Path | None, typer.Option(help="Write the report, as HTML, Markdown and JSON, in this folder.", file_okay=False)]

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


@dataclass(frozen=True, kw_only=True)
class TargetFlags:
    """Which server is measured, how it is spoken to, and where the result goes."""

    served: Served = None
    serve_flags: ServeFlags = None
    url: Url = None
    model_name: ModelName = None
    endpoint: Endpoint = "/v1/completions"
    api_key: ApiKey = None
    tokenizer: Tokenizer = None
    text_prompts: TextPrompts = False
    salt: Salt = None
    cache_salt: CacheSalt = None
    request_timeout: RequestTimeout = 600.0
    max_client_lag_ms: MaxClientLag = 50.0
    price_per_hour: Price = None
    wait_for_lock: WaitForLock = False
    output: Output = None
    report: Report = None

    def plan(self, workload: Workload, slos: Sequence[Slo] = ()) -> ServePlan:
        """All of a plan but the server (see ``at``). Raises InvalidRequestError for a flag that makes no sense."""
        from octavo.bench.load.run import LoadOptions
        from octavo.bench.serve import ServePlan
        from octavo.bench.workload.tokens import find_tokens

        return ServePlan(
            url=self.url or "",
            model=self.model_name,
            endpoint=self.endpoint,
            api_key=key(self.api_key),
            workload=workload,
            tokens=find_tokens(self.tokenizer, self.served or self.model_name),
            as_text=check_endpoint(self.endpoint) or self.text_prompts,
            salt=self.salt or "",
            cache_salt=self.cache_salt,
            slos=slos,
            options=LoadOptions(request_timeout=self.request_timeout, max_client_lag=self.max_client_lag_ms / 1000),
            price_per_hour=self.price_per_hour,
            served=self.served,
            rates=self.report is not None,
        )

    @contextlib.contextmanager
    def at(self, plan: ServePlan) -> Iterator[ServePlan]:
        """``plan`` with the server at --url, or with one that is started for it, and stopped in the end; see ``serving``."""
        with serving(self.url, self.served, self.serve_flags, self.model_name) as server:
            yield dataclasses.replace(plan, url=server.url, model=server.model, server=server.process, server_command=server.command)


target_flags = flag_group("target", TargetFlags, first=2)
"""Turns the ``target: TargetFlags`` parameter of a command into its flags."""


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
