"""The server process: from settings to a listening server, and in good order down again.

The engine's process starts first. What HTTP needs is imported, and the tokenizer loaded, while the engine loads its weights:
so the imports inside the functions are in their places on purpose.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING

from octavo.config import EngineArgs
from octavo.engine.garbage import settle
from octavo.engine.remote import EngineProcess
from octavo.errors import InvalidRequestError, OctavoError
from octavo.server.settings import ServerSettings

if TYPE_CHECKING:
    from octavo.engine.async_llm import AsyncLLMEngine

logger = logging.getLogger(__name__)


def serve(args: EngineArgs, settings: ServerSettings, *, access_log: bool = False) -> None:
    """Serve until SIGINT or SIGTERM.

    Raises:
        InvalidRequestError: a setting that cannot be.
        OctavoError: the port is in use, or needs rights that this user has not.
        ModelFileError, ModelFetchError: the model cannot be had.
        EngineDeadError: the engine ended while it started.
    """
    start = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # while it loads: end the engine too
    with contextlib.closing(bind(settings.host, settings.port)) as listener:
        process = EngineProcess.launch(args)
        try:
            engine = _take_over(process)
            asyncio.run(_run(engine, settings, listener, access_log, start))
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
        listener.listen(1)  # two sockets that only bind may share a port; uvicorn lengthens the queue
    except OSError as error:
        listener.close()
        raise OctavoError(f"port {port} of {host} cannot be taken: {error.strerror}") from None
    return listener


def _take_over(process: EngineProcess) -> AsyncLLMEngine:
    """The engine, once it is ready; imports and the tokenizer fill the time until then."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        http = pool.submit(_import_http)
        from octavo.engine.async_llm import AsyncLLMEngine
        from octavo.engine.processor import load_model_tokenizer

        tokenizer = load_model_tokenizer(process.args)
        http.result()
    return AsyncLLMEngine(process, tokenizer)


def _import_http() -> None:
    import octavo.server.app
    import octavo.server.http_server  # noqa: F401


async def _run(engine: AsyncLLMEngine, settings: ServerSettings, listener: socket.socket, access_log: bool, start: float) -> None:
    from octavo.server.app import create_app
    from octavo.server.http_server import HttpServer

    info = engine.info
    logger.info("numerics_id %.12s", info.numerics_id)
    phases = dict(info.phases)
    app = create_app(engine, settings, phases)

    def ready() -> None:
        seconds = time.monotonic() - start
        phases["http"] = max(0.0, seconds - info.start_seconds)  # what it took longer than the engine beside it
        settle()
        _announce(settings, listener, seconds)

    async def abort_all() -> None:
        await engine.abort(list(app.state.serving.in_flight))

    server = HttpServer(app, access_log=access_log, shutdown_timeout=settings.shutdown_timeout, on_ready=ready, on_timeout=abort_all)
    await server.serve(sockets=[listener])


def _announce(settings: ServerSettings, listener: socket.socket, seconds: float) -> None:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    url = f"http://{host}:{listener.getsockname()[1]}"
    name = settings.served_model_names[0]
    key = " -H 'Authorization: Bearer KEY'" if settings.api_keys else ""
    logger.info("Ready in %.2f s", seconds)
    print(
        f"\nOctavo serves {', '.join(settings.served_model_names)} at {url}. Try:\n\n"
        f"  curl {url}/v1/completions{key} -H 'Content-Type: application/json' \\\n"
        f'    -d \'{{"model": "{name}", "prompt": "The octavo is a book", "max_tokens": 32}}\'\n',
        flush=True,
    )
