"""A mock OpenAI server whose behaviour is a script: what it sends, and when, is known exactly.

``MockServer`` runs it in a thread of the test, ``MockProcess`` in a process of its own. /mock/stats tells what it saw:
``in_flight``, ``peak_in_flight``, and of each request its body and its arrival in seconds after the first.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.request import urlopen

REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 429: "Too Many Requests", 503: "Service Unavailable"}


@dataclass(frozen=True, kw_only=True)
class Script:
    """What the server does. All that fits JSON, so that it can be handed to a process."""

    model: str = "mock"
    lists_models: bool = True
    """Answer /v1/models; otherwise 404."""
    api_key: str | None = None
    """Ask for it."""
    metrics: str = "mock:running {running}\nmock:waiting {waiting}\n"
    """/metrics; {running} and {waiting} are filled in."""
    refused_fields: tuple[str, ...] = ()
    """Of the body or of stream_options: one of these, and the answer is 400."""

    tokens_per_chunk: int = 1
    token_text: str = " word"
    role_ms: float = 0
    """Chat: the chunk with the role alone, after the start of the answer."""
    first_ms: float = 0
    """The first text, after the start of the answer."""
    gap_ms: float = 0
    """From chunk to chunk: chunk i comes at first_ms + i * gap_ms."""
    textless: tuple[int, ...] = ()
    """Chunks, by number, that carry tokens but no text yet: the start of a character."""
    stop_short: int | None = None
    """Tokens after which it stops, whatever max_tokens says."""
    finish_reason: str | None = None
    """None: "length", or "stop" where it stops short."""
    usage: bool = True
    """Knows stream_options.include_usage."""
    usage_without: tuple[str, ...] = ()
    """Keys that are left out of it."""
    continuous_usage: bool = True
    """Knows stream_options.continuous_usage_stats; ignores it otherwise."""
    token_ids: bool = True
    """Knows return_token_ids; ignores it otherwise."""
    cached_tokens: int | None = None
    """Of every prompt."""
    prompt_tokens: int | None = None
    """In usage; None: the length of a prompt of ids, or its words."""

    freezes: tuple[tuple[float, float], ...] = ()
    """(start, seconds): nothing is read or sent, counted from the first request."""
    service: str | None = None
    """"exponential" or "constant": one server, one queue (M/M/1, M/D/1 under Poisson arrivals); the answer starts when its turn is over."""
    service_rate: float = 1
    """Requests a second."""
    seed: int = 0
    max_in_flight: int | None = None
    """Over it, a request is refused with ``over_status``."""
    over_status: int = 429

    status: int = 200
    """Answer with this, and no stream."""
    retry_after: int | None = None
    message: str = "the mock says no"
    die_after: float | None = None
    """Seconds after the first request: all connections and the listener are closed."""
    drop_at: int | None = None
    """The connection is cut in place of this chunk."""
    malformed_at: int | None = None
    """This chunk is no JSON."""
    error_at: int | None = None
    """In place of this chunk comes an event with an error, and the stream ends."""
    no_done: bool = False
    """The stream ends without [DONE]."""
    hang_at: int | None = None
    """From this chunk on nothing comes any more; the connection stays open."""

    lies: bool = False
    """Answers 200 with JSON where a stream was asked for."""
    drops_idle_after: int | None = None
    """Each connection is cut by the server, without a word, when it is used again after so many requests."""

    crlf: bool = False
    comments: bool = False
    """A comment line before every event."""
    piece_bytes: int | None = None
    """Each event goes out in HTTP chunks of this many bytes."""
    overrides: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Number of a request, from "0" → fields that differ for it."""

    def of(self, number: int) -> Script:
        return dataclasses.replace(self, **_hashable(self.overrides[str(number)])) if str(number) in self.overrides else self


class _Server:
    """The server in its event loop."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.in_flight = self.peak_in_flight = self.waiting = 0
        self.seen: list[dict[str, Any]] = []
        self.first: float | None = None
        self._random = random.Random(script.seed)
        self._free_at = 0.0
        self._writers: set[asyncio.StreamWriter] = set()
        self._listener: asyncio.Server | None = None

    async def listen(self, port: int = 0) -> int:
        self._listener = await asyncio.start_server(self._connected, "127.0.0.1", port, backlog=1024)
        return int(self._listener.sockets[0].getsockname()[1])

    def close(self) -> None:
        """At once, in the middle of whatever goes on."""
        if self._listener is not None:
            self._listener.close()
        for writer in list(self._writers):
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        served = 0
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                path = head.split(" ", 2)[1]
                headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head.split("\r\n")[1:])}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                if served == self.script.drops_idle_after:
                    break
                served += 1
                await self._answer(path, headers, body, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, path: str, headers: dict[str, str], body: bytes, writer: asyncio.StreamWriter) -> None:
        if path == "/mock/stats":
            stats = {"in_flight": self.in_flight, "peak_in_flight": self.peak_in_flight, "seen": self.seen}
            return _send(writer, 200, json.dumps(stats))
        if self.script.api_key is not None and headers.get("authorization") != f"Bearer {self.script.api_key}":
            return _send(writer, 401, _error("invalid API key", 401))
        await self._thaw()
        if path == "/health":
            return _send(writer, 200, "{}")
        if path == "/v1/models" and self.script.lists_models:
            return _send(writer, 200, json.dumps({"object": "list", "data": [{"id": self.script.model, "object": "model"}]}))
        if path == "/metrics":
            running = min(self.in_flight, 1) if self.script.service else self.in_flight
            return _send(writer, 200, self.script.metrics.replace("{running}", str(running)).replace("{waiting}", str(self.waiting)))
        if path in ("/v1/completions", "/v1/chat/completions"):
            return await self._generate(json.loads(body), path.endswith("/chat/completions"), writer)
        return _send(writer, 404, _error(f"no such path: {path}", 404))

    async def _generate(self, body: dict[str, Any], chat: bool, writer: asyncio.StreamWriter) -> None:
        now = time.monotonic()
        if self.first is None:
            self.first = now
            if self.script.die_after is not None:
                asyncio.get_running_loop().call_later(self.script.die_after, self.close)
        script = self.script.of(len(self.seen))
        self.seen.append({"arrival": now - self.first, "body": body})
        await self._thaw()
        fields = {*body, *(body.get("stream_options") or {})}
        if refused := [name for name in script.refused_fields if name in fields]:
            return _send(writer, 400, _error(f"Extra inputs are not permitted: {refused[0]}", 400))
        if body.get("model") != script.model:
            return _send(writer, 404, _error(f"The model `{body.get('model')}` does not exist.", 404))
        if script.status != 200:
            return _send(writer, script.status, _error(script.message, script.status), script.retry_after)
        if script.lies:
            return _send(writer, 200, json.dumps({"object": "list"}))
        if script.max_in_flight is not None and self.in_flight >= script.max_in_flight:
            return _send(writer, script.over_status, _error(script.message, script.over_status), script.retry_after)
        self.in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        try:
            await self._turn(script)
            await self._stream(script, body, chat, writer)
        finally:
            self.in_flight -= 1

    async def _turn(self, script: Script) -> None:
        """Queue for the one server, and be served. The queue's clock is exact, however late a sleep wakes."""
        if script.service is None:
            return
        seconds = (self._random.expovariate(1) if script.service == "exponential" else 1) / script.service_rate
        self._free_at = max(self._free_at, time.monotonic()) + seconds
        self.waiting += 1
        try:
            await _sleep_until(self._free_at)
        finally:
            self.waiting -= 1

    async def _thaw(self) -> None:
        if self.first is not None:
            for start, seconds in self.script.freezes:
                if self.first + start <= time.monotonic() < self.first + start + seconds:
                    await _sleep_until(self.first + start + seconds)

    async def _stream(self, script: Script, body: dict[str, Any], chat: bool, writer: asyncio.StreamWriter) -> None:
        start = time.monotonic()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        if chat:
            await _sleep_until(start + script.role_ms / 1000)
            _event(writer, script, {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]})
        for number, event in enumerate(_events(script, body, chat)):
            await _sleep_until(start + (script.first_ms + number * script.gap_ms) / 1000)
            await self._thaw()
            if number == script.drop_at:
                return writer.transport.abort()
            if number == script.hang_at:
                await asyncio.sleep(3600)
            if number == script.malformed_at:
                _write(writer, script, '{"choices": [{"index": 0, "te')
            elif number == script.error_at:
                _event(writer, script, json.loads(_error(script.message, 500)))
                break
            else:
                _event(writer, script, event)
        else:
            options = body.get("stream_options") or {}
            if script.usage and options.get("include_usage"):
                _event(writer, script, {"choices": [], "usage": _usage(script, body, _length(script, body))})
        if not script.no_done:
            _write(writer, script, "[DONE]")
        writer.write(b"0\r\n\r\n")


def _events(script: Script, body: dict[str, Any], chat: bool) -> Iterator[dict[str, Any]]:
    """Those that bring tokens, in order."""
    total, step = _length(script, body), script.tokens_per_chunk
    held = 0
    for number, first in enumerate(range(0, total, step)):
        tokens = min(step, total - first)
        held += tokens
        text, held = ("", held) if number in script.textless else (script.token_text * held, 0)
        last = first + tokens == total
        reason = (script.finish_reason or ("stop" if script.stop_short is not None else "length")) if last else None
        content: dict[str, Any] = {"delta": {"content": text}} if chat else {"text": text}
        choice = {"index": 0, **content, "finish_reason": reason}
        if script.token_ids and body.get("return_token_ids"):
            choice["token_ids"] = list(range(first, first + tokens))
        event: dict[str, Any] = {"id": "mock", "model": script.model, "choices": [choice]}
        if script.usage and script.continuous_usage and (body.get("stream_options") or {}).get("continuous_usage_stats"):
            event["usage"] = _usage(script, body, first + tokens)
        yield event


def _length(script: Script, body: dict[str, Any]) -> int:
    asked = int(body.get("max_tokens") or body.get("max_completion_tokens") or 16)
    return asked if script.stop_short is None else min(asked, script.stop_short)


def _usage(script: Script, body: dict[str, Any], tokens: int) -> dict[str, Any]:
    prompt = body.get("prompt") or " ".join(message["content"] for message in body.get("messages", ()))
    count = script.prompt_tokens or len(prompt if isinstance(prompt, list) else prompt.split())
    usage: dict[str, Any] = {"prompt_tokens": count, "completion_tokens": tokens, "total_tokens": count + tokens}
    if script.cached_tokens is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": script.cached_tokens}
    return {key: value for key, value in usage.items() if key not in script.usage_without}


def _error(message: str, code: int) -> str:
    return json.dumps({"error": {"message": message, "type": REASONS.get(code, "error"), "param": None, "code": code}})


def _send(writer: asyncio.StreamWriter, status: int, body: str, retry_after: int | None = None) -> None:
    """A whole answer with a length."""
    head = [f"HTTP/1.1 {status} {REASONS.get(status, 'Error')}", "Content-Type: application/json", f"Content-Length: {len(body.encode())}"]
    head += [f"Retry-After: {retry_after}"] if retry_after is not None else []
    writer.write("\r\n".join([*head, "", body]).encode())


def _event(writer: asyncio.StreamWriter, script: Script, event: dict[str, Any]) -> None:
    _write(writer, script, json.dumps(event))


def _write(writer: asyncio.StreamWriter, script: Script, data: str) -> None:
    line = "\r\n" if script.crlf else "\n"
    payload = f"{': ping' + line if script.comments else ''}data: {data}{line}{line}".encode()
    size = script.piece_bytes or len(payload)
    pieces = (payload[i : i + size] for i in range(0, len(payload), size))
    writer.write(b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces))


async def _sleep_until(when: float) -> None:
    if (seconds := when - time.monotonic()) > 0:
        await asyncio.sleep(seconds)


def _hashable(values: dict[str, Any]) -> dict[str, Any]:
    """With tuples where JSON has lists."""
    return {k: tuple(tuple(x) if isinstance(x, list) else x for x in v) if isinstance(v, list) else v for k, v in values.items()}


class MockServer:
    """Serves in a thread from ``with`` to its end: ``url``, ``seen``, ``peak_in_flight``."""

    def __init__(self, script: Script | None = None, port: int = 0, **fields: Any) -> None:
        """``fields`` are those of a Script."""
        self._script = script or Script(**fields)
        self._port = port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> MockServer:
        self._thread.start()
        self._server = _Server(self._script)
        port = asyncio.run_coroutine_threadsafe(self._server.listen(self._port), self._loop).result()
        self.url = f"http://127.0.0.1:{port}"
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def die(self) -> None:
        """Now."""
        self._loop.call_soon_threadsafe(self._server.close)

    @property
    def seen(self) -> list[dict[str, Any]]:
        return self._server.seen

    @property
    def peak_in_flight(self) -> int:
        return self._server.peak_in_flight


class MockProcess:
    """Serves in a process of its own from ``with`` to its end: ``url``, ``stats()``."""

    def __init__(self, script: Script | None = None, port: int = 0, **fields: Any) -> None:
        self._script = script or Script(**fields)
        self._port = port

    def __enter__(self) -> MockProcess:
        command = [sys.executable, __file__, "--port", str(self._port), "--script", json.dumps(dataclasses.asdict(self._script))]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def stats(self) -> dict[str, Any]:
        with urlopen(f"{self.url}/mock/stats") as answer:
            return dict(json.load(answer))


async def _serve(script: Script, port: int) -> None:
    bound = await _Server(script).listen(port)
    print(f"http://127.0.0.1:{bound}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--script", type=json.loads, default={}, help="fields of Script, as JSON")
    given = parser.parse_args()
    asyncio.run(_serve(Script(**_hashable(given.script)), given.port))
