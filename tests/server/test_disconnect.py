"""A client that leaves: its request ends within a step and its blocks are free, in every state."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest

from support.live_server import LiveServer
from support.outputs import SEEDS


class Connection:
    """A request sent by hand, so that it can be left at any point."""

    def __init__(self, server: LiveServer, **fields: Any) -> None:
        body = json.dumps({"prompt": "hi", "max_tokens": 1000, "seed": SEEDS["long"]} | fields).encode()
        parts = urlsplit(server.url)
        self._socket = socket.create_connection((parts.hostname, parts.port))
        head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self._socket.sendall(head.encode() + body)

    def read(self, needle: bytes, times: int = 1) -> None:
        """Read until ``needle`` has come so many times."""
        data = b""
        while data.count(needle) < times:
            data += self._socket.recv(65536)

    def leave(self) -> None:
        self._socket.close()


def wait_for(server: LiveServer, condition: Callable[[Any], bool]) -> None:
    deadline = time.monotonic() + 5
    while not condition(server.engine.stats):
        assert time.monotonic() < deadline, server.engine.stats
        time.sleep(0.002)


@pytest.mark.parametrize("streamed", [False, True])
def test_api_32_client_leaves_while_decoding(slow: LiveServer, streamed: bool) -> None:
    connection = Connection(slow, stream=streamed)
    wait_for(slow, lambda stats: stats.running == 1)
    connection.leave()
    slow.assert_idle(0.5)


@pytest.mark.parametrize("streamed", [False, True])
def test_api_32_client_leaves_during_prefill(slow: LiveServer, streamed: bool) -> None:
    before = slow.engine.stats.generation_tokens
    connection = Connection(slow, prompt=[5 + i % 200 for i in range(1000)], stream=streamed)  # 63 steps of 16 tokens
    wait_for(slow, lambda stats: stats.running == 1)
    connection.leave()
    slow.assert_idle(0.5)
    assert slow.engine.stats.generation_tokens == before


@pytest.mark.parametrize("streamed", [False, True])
def test_api_32_client_leaves_while_queued(slow: LiveServer, streamed: bool) -> None:
    running = [Connection(slow, stream=True) for _ in range(2)]  # both places of the batch
    wait_for(slow, lambda stats: stats.running == 2)
    prompts = slow.engine.stats.prompt_tokens
    queued = Connection(slow, prompt="queued", stream=streamed)
    wait_for(slow, lambda stats: stats.waiting == 1)
    queued.leave()
    wait_for(slow, lambda stats: stats.waiting == 0)
    for connection in running:
        connection.leave()
    slow.assert_idle(0.5)
    assert slow.engine.stats.prompt_tokens == prompts


@pytest.mark.parametrize("streamed", [False, True])
def test_all_completions_of_a_request_end(slow: LiveServer, streamed: bool) -> None:
    connection = Connection(slow, prompt=["one", "two"], n=2, stream=streamed)
    wait_for(slow, lambda stats: stats.running == 2)
    connection.leave()
    slow.assert_idle(0.5)


def test_api_33_streams_with_logprobs_cancelled(server: LiveServer) -> None:
    for _ in range(50):
        connection = Connection(server, stream=True, logprobs=5)
        connection.read(b"data: ", 2)
        connection.leave()
    server.assert_idle()


def test_kv_06_300_streams_closed_early(server: LiveServer) -> None:
    assert server.post("/v1/completions", {"prompt": "hi", "max_tokens": 1}).status_code == 200
    open_connections = []
    for i in range(300):
        connection = Connection(server, stream=True, prompt=[5 + i % 90] * (1 + i % 50), max_tokens=20)
        if i % 3:
            connection.read(b"data: ", i % 3)
        open_connections.append(connection)
        if len(open_connections) == 10:
            for left in open_connections:
                left.leave()
            open_connections = []
    server.assert_idle(5)
    assert server.post("/v1/completions", {"prompt": "hi", "max_tokens": 1}).status_code == 200


def test_ob_04_aborted_and_successful_are_counted(slow: LiveServer) -> None:
    def count(reason: str) -> float:
        name = f'octavo_request_success_total{{finished_reason="{reason}"'
        return sum(float(line.split()[-1]) for line in slow.client.get("/metrics").text.splitlines() if line.startswith(name))

    before = {reason: count(reason) for reason in ("abort", "length", "stop", "error")}
    for _ in range(5):
        connection = Connection(slow, stream=True)
        connection.read(b"data: ")
        connection.leave()
        slow.assert_idle(0.5)
        assert slow.post("/v1/completions", {"prompt": "hi", "max_tokens": 1, "seed": SEEDS["long"]}).status_code == 200
    slow.assert_idle()
    assert {reason: count(reason) - before[reason] for reason in before} == {"abort": 5, "length": 5, "stop": 0, "error": 0}
