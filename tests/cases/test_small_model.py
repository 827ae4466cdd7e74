"""A real model and the native sampler behind the server: what scores, seeds, filters and limits do to tokens."""

from __future__ import annotations

import concurrent.futures
import json
import math
from typing import Any

import pytest
import torch

from support.routes import EVERY_WAY, PATHS, Choice, ask, body
from support.tiny_server import EOS, VOCAB, TinyServer

PROMPT = [70 + 7 * i % 150 for i in range(32)]


def tokens(tiny: TinyServer, **fields: Any) -> list[int]:
    return complete(tiny, **fields).token_ids


def complete(tiny: TinyServer, **fields: Any) -> Choice:
    defaults: dict[str, Any] = {"prompt": PROMPT, "max_tokens": 16, "ignore_eos": True}
    return ask(tiny.server, "completions", False, **(defaults | fields)).only


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("max_tokens", [0, 1])
def test_api_28_a_prompts_scores_are_transformers(tiny: TinyServer, max_tokens: int, streamed: bool) -> None:
    answer = ask(tiny.server, "completions", streamed, prompt=PROMPT, echo=True, logprobs=1, max_tokens=max_tokens, ignore_eos=True).only
    with torch.no_grad():
        scores = torch.log_softmax(tiny.oracle(torch.tensor([PROMPT])).logits[0], dim=-1)
    expected = [float(scores[at, token]) for at, token in enumerate(PROMPT[1:])]
    first, *scored = answer.logprobs
    assert first is None and len(scored) == len(PROMPT) - 1 + max_tokens
    assert scored[: len(expected)] == pytest.approx(expected, abs=1e-4)
    assert sum(scored[: len(expected)]) == pytest.approx(sum(expected), abs=1e-3)


@pytest.mark.parametrize("temperature", [1e-4, 1e-8, 0])
@pytest.mark.parametrize("top_p", [1e-4, 0, 1])
def test_api_20_tiny_temperatures_and_top_p_are_greedy(tiny: TinyServer, temperature: float, top_p: float) -> None:
    greedy = tokens(tiny, temperature=0)
    choice = complete(tiny, temperature=temperature, top_p=top_p, logprobs=2)
    assert choice.token_ids == greedy == tokens(tiny, temperature=1, top_p=min(top_p, 1e-4))
    assert all(value is not None and math.isfinite(value) for value in [*choice.logprobs, *choice.likeliest])


@pytest.mark.parametrize("fields", [{"top_k": 0}, {"top_k": -1}, {"top_k": 5}, {"min_p": 0.5}, {"top_p": 0.1}], ids=str)
def test_api_21_temperature_0_is_greedy_beside_any_filter(tiny: TinyServer, fields: dict[str, Any]) -> None:
    assert tokens(tiny, temperature=0, **fields) == tokens(tiny, temperature=0)
    assert tokens(tiny, seed=7, top_k=0) == tokens(tiny, seed=7, top_k=-1) == tokens(tiny, seed=7) != tokens(tiny, seed=7, top_k=2)


def test_api_22_cpu_10_a_seed_holds_whoever_runs_beside_it(tiny: TinyServer) -> None:
    alone = complete(tiny, seed=42, logprobs=1)
    assert alone.token_ids != tokens(tiny, seed=43)
    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        for length in range(4):
            unseeded = [pool.submit(tokens, tiny, prompt=PROMPT[length : 9 * (i + 1)], max_tokens=40) for i in range(3)]
            seeded = [pool.submit(complete, tiny, seed=42, logprobs=1) for _ in range(2)]
            assert [future.result() for future in seeded] == [alone, alone]
            assert all(len(future.result()) == 40 for future in unseeded)


@EVERY_WAY
def test_api_24_three_seeded_choices_differ_and_repeat(tiny: TinyServer, route: str, streamed: bool) -> None:
    first, second = (ask(tiny.server, route, streamed, n=3, seed=1, temperature=1, max_tokens=20, ignore_eos=True) for _ in range(2))
    assert sorted(first.choices) == [0, 1, 2]
    ids = [first.choices[index].token_ids for index in range(3)]
    assert len({tuple(one) for one in ids}) == 3
    assert [second.choices[index].token_ids for index in range(3)] == ids
    assert [choice.finish_reasons for choice in first.choices.values()] == [["length"]] * 3


@EVERY_WAY
@pytest.mark.parametrize(
    "fields",
    [{"top_k": 1}, {"logit_bias": {str(i): -100 for i in range(VOCAB - 3)}}, {"allowed_token_ids": [70]}, {"bad_words": ["A", "B"]}],
    ids=lambda fields: next(iter(fields)),
)
def test_api_26_logprobs_of_what_is_forbidden_are_json(tiny: TinyServer, fields: dict[str, Any], route: str, streamed: bool) -> None:
    asked = body(route, streamed, logprobs=5, max_tokens=4, ignore_eos=True, **fields)
    text = tiny.server.post(PATHS[route], asked).text
    assert not any(word in text for word in ("NaN", "Infinity"))
    choice = ask(tiny.server, route, streamed, logprobs=5, max_tokens=4, ignore_eos=True, **fields).only
    assert len(choice.scored) == 4
    assert all(value is not None and -9999.0 <= value <= 0 for value in [*choice.logprobs, *choice.likeliest])


def test_api_30_min_tokens_and_ignore_eos_hold_against_every_end(tiny: TinyServer) -> None:
    """Both ends are made likely, so that a run without the limits ends at once."""
    for end in EOS:
        wish = {"logit_bias": {str(end): 100}, "max_tokens": 50, "ignore_eos": False}
        assert tokens(tiny, **wish) == [end]
        limited = tokens(tiny, min_tokens=10, **wish)
        assert len(limited) == 11 and limited[-1] == end and not set(limited[:-1]) & set(EOS)
        assert tokens(tiny, **(wish | {"ignore_eos": True})) == [end] * 50


@pytest.mark.parametrize("length", [15, 16, 17, 32, 33])
def test_kv_09_kv_10_a_prompt_sent_again_is_answered_alike(tiny: TinyServer, length: int) -> None:
    """Whole blocks of 16 are found again, but never the last token, whose logits are asked for."""
    prompt = [90 + length, *PROMPT, 80, 81][:length]
    answers = [ask(tiny.server, "completions", False, prompt=prompt, temperature=0, logprobs=3, max_tokens=8) for _ in range(3)]
    cached = [answer.usage["prompt_tokens_details"]["cached_tokens"] for answer in answers if answer.usage]
    assert cached == [0, *[(length - 1) // 16 * 16] * 2]
    assert answers[0].only == answers[1].only == answers[2].only
    with torch.no_grad():
        assert answers[0].only.token_ids[0] == int(tiny.oracle(torch.tensor([prompt])).logits[0, -1].argmax())


def test_api_18_hostile_token_ids_leave_a_neighbour_alone(tiny: TinyServer) -> None:
    fields: dict[str, Any] = {"temperature": 0, "max_tokens": 400}
    alone = tokens(tiny, **fields)
    hostile = [{name: ids} for name in ("stop_token_ids", "allowed_token_ids") for ids in ([VOCAB + 7], [-1], [2**40])]
    hostile.append({"logit_bias": {str(VOCAB): 100}})
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        neighbours = [pool.submit(tokens, tiny, **fields) for _ in range(2)]
        rounds = 0
        while not any(neighbour.done() for neighbour in neighbours):
            answers = [tiny.server.post(PATHS["completions"], body("completions", False, **bad)) for bad in hostile]
            assert [answer.status_code for answer in answers] == [400] * len(hostile)
            rounds += 1
        assert rounds > 1, "the neighbours were gone too soon to prove anything"
        assert [future.result() for future in neighbours] == [alone, alone]


def test_api_17_a_bias_of_100_forces_a_token(tiny: TinyServer) -> None:
    assert tokens(tiny, logit_bias={"5": 100}) == [5] * 16
    assert json.loads(tiny.server.post(PATHS["completions"], body("completions", False, logit_bias={"5": 101})).text)["error"]["param"]
