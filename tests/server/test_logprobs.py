"""Shapes of log-probabilities, against OpenAI's and vLLM's documented ones."""

from __future__ import annotations

from octavo.outputs import Logprob
from octavo.server.openai.logprobs import FLOOR, chat_logprobs, completion_logprobs, prompt_logprobs

POSITION = {7: Logprob(-3.0, 4, "é"), 1: Logprob(-0.1, 1, "a"), 2: Logprob(-1.0, 2, "b"), 3: Logprob(float("-inf"), 3, "c")}


def test_completions_hold_the_chosen_beside_the_likeliest() -> None:
    scores = completion_logprobs(["x", "é"], [9, 7], [None, POSITION], top=2, offset=5)
    assert scores == {
        "tokens": ["x", "é"],
        "token_logprobs": [None, -3.0],
        "top_logprobs": [None, {"a": -0.1, "b": -1.0, "é": -3.0}],
        "text_offset": [5, 6],
    }


def test_of_two_tokens_with_one_text_the_likelier_counts() -> None:
    position = {1: Logprob(-0.5, 1, ""), 2: Logprob(-0.9, 2, "")}
    assert completion_logprobs([""], [1], [position], top=2, offset=0)["top_logprobs"] == [{"": -0.5}]


def test_chat_holds_exactly_as_many_as_asked() -> None:
    [entry] = chat_logprobs([7], [POSITION], top=2)["content"]
    assert (entry["token"], entry["logprob"], entry["bytes"]) == ("é", -3.0, [0xC3, 0xA9])
    assert [top["token"] for top in entry["top_logprobs"]] == ["a", "b"]


def test_api_26_minus_infinity_has_a_floor() -> None:
    [entry] = chat_logprobs([7], [POSITION], top=3)["content"]
    assert entry["top_logprobs"][2]["logprob"] == FLOOR == -9999.0
    assert prompt_logprobs([None, POSITION])[1]["3"] == {"logprob": FLOOR, "rank": 3, "decoded_token": "c"}
