"""The server process: from settings to a listening server, and in good order down again.

The engine's process starts first. What HTTP needs is imported and the tokenizer is loaded while the engine loads its weights.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import socket
import time
from typing import TYPE_CHECKING

from octavo.config import EngineArgs
from octavo.engine.async_llm import AsyncLLMEngine
from octavo.engine.processor import load_model_tokenizer
from octavo.engine.remote import EngineProcess
from octavo.errors import InvalidRequestError, OctavoError
from octavo.server.settings import ServerSettings

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI

logger = logging.getLogger(__name__)

KEEP_ALIVE_S = 75
"""How long an idle connection stays open: longer than clients' pools keep theirs."""


def serve(args: EngineArgs, settings: ServerSettings, *, access_log: bool = False) -> None:
    """Serve until SIGINT or SIGTERM.

    Raises:
        InvalidRequestError: a setting that cannot be.
        OctavoError: the port is in use, or needs rights that this user has not.
        ModelFileError, ModelFetchError: the model cannot be had.
        EngineDeadError: the engine ended while it started.
    """
    started = time.monotonic()
    with contextlib.closing(bind(settings.host, settings.port)) as listener:
        process = EngineProcess.launch(args)
        try:
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                tokenizer = pool.submit(load_model_tokenizer, args)
                from octavo.server.app import create_app  # fastapi and all that: after the engine's start, on purpose

            engine = AsyncLLMEngine(process, tokenizer.result())
            try:
                app = create_app(engine, settings)
                asyncio.run(_run(app, settings, listener, access_log, started))
            finally:
                engine.shutdown()
        finally:
            process.shutdown()


def bind(host: str, port: int) -> socket.socket:
    """A socket bound to the address, so that a port in use is told before a model is loaded."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InvalidRequestError(f"host = {host}: {error.strerror}", field="host") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise OctavoError(f"port {port} of {host} cannot be taken: {error.strerror}") from None
    return listener


async def _run(app: FastAPI, settings: ServerSettings, listener: socket.socket, access_log: bool, started: float) -> None:
    import uvicorn

    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=access_log,
        lifespan="off",
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=settings.shutdown_timeout,  # type: ignore[arg-type]
        server_header=False,
    )
    server = uvicorn.Server(config)
    announcer = asyncio.create_task(_announce(server, settings, listener, started))
    await server.serve(sockets=[listener])
    announcer.cancel()


async def _announce(server: uvicorn.Server, settings: ServerSettings, listener: socket.socket, started: float) -> None:
    while not server.started:
        await asyncio.sleep(0.005)
    port = listener.getsockname()[1]
    url = f"http://{f'[{settings.host}]' if ':' in settings.host else settings.host}:{port}"
    logger.info("Ready in %.2f s: %s", time.monotonic() - started, url)
    key = " -H 'Authorization: Bearer KEY'" if settings.api_keys else ""
    print(
        f"\nOctavo serves {', '.join(settings.served_model_names)} at {url}. Try:\n\n"
        f"  curl {url}/v1/completions{key} -H 'Content-Type: application/json' \\\n"
        f'    -d \'{{"model": "{settings.served_model_names[0]}", "prompt": "The octavo is a book", "max_tokens": 32}}\'\n',
        flush=True,
    )
