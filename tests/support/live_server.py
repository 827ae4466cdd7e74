"""The real HTTP server, on a free port of 127.0.0.1, in a thread of the test process; its engine has a process of its own."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from octavo.config import AsyncEngineArgs
from octavo.engine.async_llm import AsyncLLMEngine
from octavo.server.app import create_app
from octavo.server.launch import bind
from octavo.server.settings import ServerSettings

TESTS = str(Path(__file__).parents[1])


class LiveServer:
    """Starts serving when made; ``close`` ends it."""

    def __init__(self, args: AsyncEngineArgs, **settings: Any) -> None:
        if TESTS not in os.environ.get("PYTHONPATH", "").split(":"):  # the engine's process finds support.scripted there
            os.environ["PYTHONPATH"] = f"{TESTS}:{os.environ.get('PYTHONPATH', '')}"
        self.engine = AsyncLLMEngine.from_engine_args(args)
        self.app = create_app(self.engine, ServerSettings(served_model_names=("scripted",), **settings))
        listener = bind("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self._server = uvicorn.Server(uvicorn.Config(self.app, log_config=None, lifespan="off", timeout_graceful_shutdown=1))
        self._thread = threading.Thread(target=lambda: asyncio.run(self._server.serve(sockets=[listener])))
        self._thread.start()
        while not self._server.started:
            time.sleep(0.005)
        headers = {"Authorization": f"Bearer {settings['api_keys'][0]}"} if settings.get("api_keys") else None
        self.client = httpx.Client(base_url=self.url, timeout=30, headers=headers)

    def post(self, path: str, body: Any = None, **options: Any) -> httpx.Response:
        return self.client.post(path, json=body, **options) if body is not None else self.client.post(path, **options)

    def gauge(self, name: str) -> float:
        """A metric's value, or the sum of its series."""
        lines = [line for line in self.client.get("/metrics").text.splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
        assert lines, f"no metric {name}"
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    def assert_idle(self, seconds: float = 2.0) -> None:
        """The survive check: nothing runs or waits, and no slot of the pool is held."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            stats = self.engine.stats
            if stats.running == stats.waiting == 0 and not any(group["slots"]["held"] for group in stats.kv.get("groups", ())):
                break
            time.sleep(0.005)
        stats = self.engine.stats
        assert (stats.running, stats.waiting) == (0, 0)
        assert all(group["slots"]["held"] == 0 for group in stats.kv["groups"])
        assert self.client.get("/health").status_code == 200

    def close(self) -> None:
        self.client.close()
        self._server.should_exit = True
        self._thread.join()
        self.engine.shutdown()
