"""The survive check: after each hostile request a normal one is answered, nothing runs or waits, every block is back, health is 200."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest

from octavo.outputs import EngineStats
from support.live_server import LiveServer
from support.outputs import SEEDS
from support.routes import PATHS, ask, body
from support.tiny_server import EOS, VOCAB, TinyServer

CONTEXT, POOL_SLOTS = 512, 64 * 16
HOSTILE: list[tuple[str, dict[str, Any]]] = [
    ("api_13", {"prompt": [5] * CONTEXT, "max_tokens": 1}),
    ("api_13", {"prompt": [5] * (CONTEXT + 1), "max_tokens": None}),
    ("api_13", {"prompt": [5] * 500, "max_tokens": 13}),
    *(("api_16", {"prompt": prompt}) for prompt in ([VOCAB], [-1], [5279552648203111001], [1.5], [[2**70]], [])),
    *(("api_17", {"logit_bias": bias}) for bias in ({"99999999": 5}, {"-1": 5}, {"a": 1}, {"5": 1000}, {"5": None}, {str(VOCAB): 1})),
    *(("api_18", {name: [VOCAB + 7]}) for name in ("stop_token_ids", "allowed_token_ids")),
    ("api_18", {"allowed_token_ids": []}),
    *(("api_20", {name: value}) for name, value in (("temperature", -1), ("top_p", 1.5), ("top_p", -1e-9), ("min_p", 2), ("top_k", -2))),
    *(("api_25", {"n": n}) for n in (0, -1, "2", 10**9)),
    *(("api_26", {"logprobs": logprobs}) for logprobs in (-1, 21, 10**9)),
    ("api_30", {"allowed_token_ids": [*EOS], "min_tokens": 2}),
    *(("api_30", {"min_tokens": tokens}) for tokens in (-1, 101, 10**9)),
]
"""Case, and what is wrong with a request to the small model."""


def check_survival(server: LiveServer, slots: int) -> None:
    """A normal request is answered; then the engine is idle, healthy, and its ``slots`` are free or hold only cached prefixes."""
    assert ask(server, "completions", False, max_tokens=2, ignore_eos=True).only.finish_reasons == ["length"]
    server.assert_idle(5)
    (group,) = server.engine.stats.kv["groups"]
    assert group["slots"]["held"] == 0
    assert group["slots"]["free"] + group["slots"]["cached"] == group["slots"]["total"] == slots


@pytest.mark.parametrize(("case", "fields"), HOSTILE, ids=[f"{case}-{json.dumps(fields)[:40]}" for case, fields in HOSTILE])
def test_a_hostile_request_is_refused_and_survived(tiny: TinyServer, case: str, fields: dict[str, Any]) -> None:
    steps = tiny.server.engine.stats.steps
    for streamed in (False, True):
        response = tiny.server.post(PATHS["completions"], body("completions", streamed, **fields))
        assert (response.status_code, response.headers["content-type"]) == (400, "application/json"), response.text
        (name, *_) = fields
        assert response.json()["error"]["param"].startswith((name, "max_tokens"))
    assert tiny.server.engine.stats.steps == steps, "it reached the engine"
    check_survival(tiny.server, POOL_SLOTS)


@pytest.mark.parametrize("length", [CONTEXT - 1, CONTEXT, CONTEXT + 1])
def test_api_13_the_context_is_full_at_its_last_token(tiny: TinyServer, length: int) -> None:
    """Prompt and output together have at most CONTEXT tokens."""
    response = tiny.server.post(PATHS["completions"], body("completions", False, prompt=[5] * length, max_tokens=1))
    if length == CONTEXT - 1:
        assert (response.status_code, response.json()["usage"]["completion_tokens"]) == (200, 1)
    else:
        error = response.json()["error"]
        assert (response.status_code, error["code"]) == (400, "context_length_exceeded")
        assert all(f" {number} " in error["message"] for number in (length, CONTEXT))
    check_survival(tiny.server, POOL_SLOTS)


class Stream:
    """A streamed request, sent by hand so that it can be left at any point."""

    def __init__(self, server: LiveServer, **fields: Any) -> None:
        data = json.dumps(body("completions", True, **fields)).encode()
        parts = urlsplit(server.url)
        self._socket = socket.create_connection((parts.hostname, parts.port), timeout=30)
        head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        self._socket.sendall(head.encode() + data)

    def read(self, chunks: int) -> None:
        data = b""
        while data.count(b"data: ") < chunks:
            received = self._socket.recv(65536)
            assert received, data
            data += received

    def leave(self) -> None:
        self._socket.close()


def wait_for(server: LiveServer, condition: Callable[[EngineStats], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition(server.engine.stats):
        assert time.monotonic() < deadline, server.engine.stats
        time.sleep(0.001)


def test_kv_06_three_hundred_streams_closed_in_every_state(scripted: LiveServer) -> None:
    """In turns of six in a batch of three: after one to three chunks, during a prefill of some forty steps, and while queued."""
    for turn in range(50):
        long = {"seed": SEEDS["long"], "max_tokens": 300, "cache_salt": f"turn {turn}"}
        decoding = [Stream(scripted, prompt=[5 + turn] * (1 + turn % 20), **long) for _ in range(2)]
        for place, stream in enumerate(decoding):
            stream.read(1 + (turn + place) % 3)
        prefilling = Stream(scripted, prompt=[5 + turn] * 600, **long)
        wait_for(scripted, lambda stats: stats.running == 3)
        queued = [Stream(scripted, prompt=[5 + turn] * 20, **long) for _ in range(3)]
        wait_for(scripted, lambda stats: stats.waiting == 3)
        for stream in (queued[0], prefilling, queued[1], *decoding, queued[2]):
            stream.leave()
        wait_for(scripted, lambda stats: stats.running == stats.waiting == 0)
    check_survival(scripted, POOL_SLOTS)
