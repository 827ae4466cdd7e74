"""Malformed bodies while good streams run: only deliberate answers, and the streams do not notice."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import httpx

from support.live_server import LiveServer
from support.outputs import SEEDS
from support.sse import read_chunks, stream_text

PATHS = ("/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize")
VALUES: list[Any] = [
    *(None, True, -1, 0, 1, 2**31, 2**63, 2**64, 2**70, 1.5, -1e308),
    *("", "x", "\0", "9" * 50),
    *([], {}, [[]], [None], {"a": 1}, ["x", 1], [2**70], {"1": "x"}, {"type": "text"}, [{"role": "user"}], ["x"] * 100),
]
COMMON: dict[str, Any] = {
    **{"max_tokens": 2, "n": 1, "temperature": 1.0, "top_p": 1.0, "top_k": 0, "stop": ["x"], "seed": 0, "min_tokens": 0, "priority": 0},
    **{"logit_bias": {"5": 1}, "stop_token_ids": [5], "allowed_token_ids": [5], "bad_words": ["x"], "prompt_logprobs": 1},
    **{"stream": False, "stream_options": None, "cache_salt": "s", "model": "scripted", "return_token_ids": True},
}
VALID: dict[str, dict[str, Any]] = {
    "/v1/completions": COMMON | {"prompt": "hi", "logprobs": 1, "echo": False, "add_special_tokens": True},
    "/v1/chat/completions": COMMON
    | {"messages": [{"role": "user", "content": "hi"}], "logprobs": True, "top_logprobs": 1, "max_completion_tokens": 2}
    | {"chat_template_kwargs": {"x": 1}, "add_generation_prompt": True, "continue_final_message": False}
    | {"tools": [], "response_format": {"type": "text"}},
    "/tokenize": {"prompt": "hi", "add_special_tokens": True, "return_token_strs": True},
    "/detokenize": {"tokens": [5, 6]},
}


def mutated(rng: random.Random) -> tuple[str, bytes]:
    """A path and a body: valid but for one to three fields, or for some bytes."""
    path = rng.choice(PATHS)
    body = dict(VALID[path])
    for _ in range(rng.randint(1, 3)):
        name = rng.choice([*body, "unknown"])
        if rng.random() < 0.15:
            body.pop(name, None)
        else:
            body[name] = rng.choice(VALUES)
    data = bytearray(json.dumps(body).encode())
    if rng.random() < 0.4:
        for _ in range(rng.randint(1, 4)):
            place = rng.randrange(len(data))
            data[place : place + rng.randint(0, 3)] = bytes(rng.randrange(256) for _ in range(rng.randint(0, 3)))
            if not data:
                break
    return path, bytes(data)


async def test_ob_13_fuzzed_bodies_leave_streams_alone(slow: LiveServer, server: LiveServer) -> None:
    rng = random.Random(13)
    bodies = [mutated(rng) for _ in range(500)]
    good = {"prompt": "hi", "stream": True, "max_tokens": 60, "seed": SEEDS["long"]}

    async with httpx.AsyncClient(base_url=slow.url, timeout=60, limits=httpx.Limits(max_connections=24)) as client:
        streams = [asyncio.create_task(client.post("/v1/completions", json=good)) for _ in range(4)]
        places = asyncio.Semaphore(8)

        async def send(path: str, body: bytes) -> httpx.Response:
            async with places:
                return await client.post(path, content=body)

        answers = await asyncio.gather(*(send(path, body) for path, body in bodies))
        texts = [stream_text(read_chunks((await stream).text)) for stream in streams]

    assert texts == ["G" * 60] * 4
    odd = [(body, answer.status_code, answer.text) for (_, body), answer in zip(bodies, answers, strict=True) if answer.status_code >= 500]
    assert not odd
    statuses = [answer.status_code for answer in answers]
    assert statuses.count(400) > 200
    slow.assert_idle(10)
