"""What a client learns of KV memory: that a request is too big for it, and that nobody else's prefixes are found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.live_server import LiveServer

KEYS = ("key-of-one", "key-of-another")


def test_kv_01_a_prompt_bigger_than_the_pool_is_a_400(start: Callable[..., LiveServer]) -> None:
    """49 blocks of 16 hold 784 tokens; max_model_len alone would let more through."""
    server = start(num_gpu_blocks_override=49, max_model_len=2048)

    def ask(length: int, max_tokens: int = 1) -> tuple[int, str]:
        response = server.post("/v1/completions", {"prompt": [9] * length, "max_tokens": max_tokens}, timeout=10)
        return response.status_code, response.text

    for length in (1000, 785):
        status, text = ask(length)
        assert status == 400 and f"{length} tokens" in text and "the KV pool holds 784 tokens" in text
    assert ask(10, 4)[0] == ask(784)[0] == 200
    status, text = ask(700, 100)
    assert status == 400 and "the KV pool holds 784 tokens" in text
    server.assert_idle()


@pytest.fixture(scope="module")
def guarded(start: Callable[..., LiveServer]) -> LiveServer:
    return start(settings={"api_keys": KEYS}, num_gpu_blocks_override=64)


@pytest.mark.parametrize("route", ["completions", "chat/completions"])
def test_kv_14_nobody_finds_the_prefixes_of_another_salt_or_key(guarded: LiveServer, route: str) -> None:
    guarded.post("/admin/kv/reset")

    def cached_tokens(salt: str | None, key: str = KEYS[0]) -> int:
        prompt = {"prompt": [9] * 40} if route == "completions" else {"messages": [{"role": "user", "content": "again and again " * 9}]}
        body = prompt | {"max_tokens": 2, "cache_salt": salt}
        response = guarded.post(f"/v1/{route}", body, headers={"Authorization": f"Bearer {key}"})
        found: int = response.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
        return found

    assert cached_tokens("A") == 0 < cached_tokens("A")  # it is on
    assert cached_tokens("B") == cached_tokens(None) == 0  # and apart
    assert cached_tokens("A", KEYS[1]) == cached_tokens(None, KEYS[1]) == 0
    assert 0 < cached_tokens(None) == cached_tokens("A") == cached_tokens(None, KEYS[1])


def test_kv_14_without_keys_the_salt_is_the_requests_own(server: LiveServer) -> None:
    def cached_tokens(salt: str | None) -> int:
        body = {"prompt": [8] * 40, "max_tokens": 2, "cache_salt": salt}
        found: int = server.post("/v1/completions", body).json()["usage"]["prompt_tokens_details"]["cached_tokens"]
        return found

    server.post("/admin/kv/reset")
    assert [cached_tokens(salt) for salt in ("A", "A", "B", None, None)] == [0, 32, 0, 0, 32]
