"""Sampling fields reach the sampler: the runner's logits are made up, but the engine and its sampler are the real ones."""

from __future__ import annotations

import concurrent.futures
import json
import math
from typing import Any

import pytest

from support.live_server import LiveServer
from support.sse import read_chunks, stream_text


def choice(server: LiveServer, **fields: Any) -> dict[str, Any]:
    response = server.post("/v1/completions", {"prompt": "hi", "max_tokens": 12, "return_token_ids": True, "ignore_eos": True} | fields)
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]


def tokens(server: LiveServer, **fields: Any) -> list[int]:
    return choice(server, **fields)["token_ids"]


def test_api_17_logit_bias_forces_a_token(sampling: LiveServer) -> None:
    assert tokens(sampling, logit_bias={"5": 100}) == [5] * 12


def test_allowed_token_ids(sampling: LiveServer) -> None:
    assert set(tokens(sampling, allowed_token_ids=[70, 71])) <= {70, 71}


def test_bad_words_are_not_said(sampling: LiveServer) -> None:
    text = choice(sampling, temperature=0)["text"]
    word = next(char for char in text if char.isascii() and char.isprintable())
    assert word not in choice(sampling, temperature=0, bad_words=[word])["text"]


@pytest.mark.parametrize(
    "fields",
    [{"temperature": 1e-8}, {"temperature": 0}, {"temperature": 1e-4}, {"top_p": 1e-4}, {"top_p": 0}, {"top_k": 1}, {"min_p": 1.0}],
    ids=str,
)
def test_api_20_tiny_temperature_and_top_p_are_greedy(sampling: LiveServer, fields: dict[str, Any]) -> None:
    assert tokens(sampling, **fields) == tokens(sampling, temperature=0)


@pytest.mark.parametrize(
    "fields", [{"top_k": 0}, {"top_k": -1}, {"min_p": 0.5}, {"top_p": 0.1}, {"top_k": 50, "top_p": 0.9, "min_p": 0.1}], ids=str
)
def test_api_21_greedy_with_other_filters(sampling: LiveServer, fields: dict[str, Any]) -> None:
    assert tokens(sampling, temperature=0, **fields) == tokens(sampling, temperature=0)


def test_api_21_top_k_0_and_minus_1_are_both_off(sampling: LiveServer) -> None:
    assert tokens(sampling, seed=7, top_k=0) == tokens(sampling, seed=7, top_k=-1) == tokens(sampling, seed=7)


def test_api_22_a_seed_holds_beside_unseeded_neighbours(sampling: LiveServer) -> None:
    alone = tokens(sampling, seed=42)
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        for _ in range(4):
            neighbours = [pool.submit(tokens, sampling, prompt=f"neighbour {i}") for i in range(5)]
            assert tokens(sampling, seed=42) == alone
            concurrent.futures.wait(neighbours)


def test_api_24_seeded_choices_differ_and_repeat(sampling: LiveServer) -> None:
    def texts() -> list[str]:
        body = {"prompt": "hi", "n": 3, "seed": 1, "temperature": 1, "max_tokens": 12, "ignore_eos": True}
        return [c["text"] for c in sampling.post("/v1/completions", body).json()["choices"]]

    body = {"prompt": "hi", "n": 3, "seed": 1, "temperature": 1, "max_tokens": 12, "ignore_eos": True, "stream": True}
    chunks = read_chunks(sampling.post("/v1/completions", body).text)
    first = texts()
    assert len(set(first)) == 3
    assert texts() == first
    assert [stream_text(chunks, index) for index in range(3)] == first


@pytest.mark.parametrize(
    "fields", [{"top_k": 1}, {"logit_bias": {str(i): -100 for i in range(200)}}, {"allowed_token_ids": [70]}], ids=lambda f: next(iter(f))
)
def test_api_26_logprobs_are_finite_json(sampling: LiveServer, fields: dict[str, Any]) -> None:
    body = {"prompt": "hi", "logprobs": 5, "max_tokens": 4, "ignore_eos": True} | fields
    text = sampling.post("/v1/completions", body).text
    scores = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))["choices"][0]["logprobs"]
    values = [*scores["token_logprobs"], *(value for top in scores["top_logprobs"] for value in top.values())]
    assert all(math.isfinite(value) and value >= -9999.0 for value in values)


def test_api_30_min_tokens_and_ignore_eos_know_every_end(sampling: LiveServer) -> None:
    ends = {"0": 10, "77": 10}  # makes both end-of-sequence tokens likely
    for seed in range(10):
        fields = {"logit_bias": ends, "seed": seed, "ignore_eos": False}
        assert len(tokens(sampling, min_tokens=10, max_tokens=50, **fields)) >= 10
        assert len(tokens(sampling, max_tokens=50, **(fields | {"ignore_eos": True}))) == 50
    assert len(tokens(sampling, logit_bias={"77": 100}, ignore_eos=False)) == 1
