"""``octavo serve``"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Annotated

import typer

from octavo import envs
from octavo.cli.options import engine_flags, read_template
from octavo.cli.pull import ensure
from octavo.config import AsyncEngineArgs

PANEL = "Server"

_option = functools.partial(typer.Option, rich_help_panel=PANEL)


@engine_flags
def command(
    args: AsyncEngineArgs,
    host: Annotated[str, _option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, _option(help="Port to listen on; 0 takes any free one.", min=0, max=65535)] = 8000,
    served_model_name: Annotated[
        list[str] | None, _option(help="Name that requests use for the model; may be repeated. By default MODEL.")
    ] = None,
    api_key: Annotated[
        list[str] | None,
        _option(help="Ask every request for this key; may be repeated. Also OCTAVO_API_KEY, which other users cannot see."),
    ] = None,
    chat_template: Annotated[Path | None, _option(help="A Jinja file to use in place of the model's own template.")] = None,
    request_timeout: Annotated[
        float | None,
        _option(help="Seconds after which a request that has not ended is ended; a request may state fewer (timeout_s).", min=0.001),
    ] = None,
    shutdown_timeout: Annotated[
        float, _option(help="Seconds that running requests get to finish when the server is stopped.", min=0, max=3600)
    ] = 5.0,
    access_log: Annotated[bool, _option(help="Log a line for each request.")] = False,
) -> None:
    """Serve a model over HTTP, with an OpenAI API."""
    from octavo.server.launch import serve
    from octavo.server.settings import ServerSettings

    settings = ServerSettings(
        host=host,
        port=port,
        served_model_names=tuple(served_model_name or [args.model]),
        api_keys=(*(api_key or ()), *envs.api_keys()),
        chat_template=read_template(chat_template),
        request_timeout=request_timeout,
        shutdown_timeout=shutdown_timeout,
    )
    if args.kv_prefault is None:
        args = dataclasses.replace(args, kv_prefault=True)
    ensure(args.model)
    serve(args, settings, access_log=access_log)
