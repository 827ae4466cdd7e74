"""/v1/chat/completions over the scripted runner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.live_server import LiveServer
from support.outputs import IDS, IM_END, IM_START, SEEDS, byte_ids
from support.sse import chat_text, read_chunks

HELLO = [{"role": "user", "content": "hello"}]


def chat(server: LiveServer, output: str = "letters", **fields: Any) -> dict[str, Any]:
    response = server.post("/v1/chat/completions", {"messages": HELLO, "seed": SEEDS[output]} | fields)
    assert response.status_code == 200, response.text
    return response.json()


def stream(server: LiveServer, output: str = "letters", **fields: Any) -> list[dict[str, Any]]:
    body = {"messages": HELLO, "seed": SEEDS[output], "stream": True} | fields
    response = server.post("/v1/chat/completions", body)
    assert response.status_code == 200, response.text
    return read_chunks(response.text)


def refused(server: LiveServer, **fields: Any) -> dict[str, Any]:
    response = server.post("/v1/chat/completions", {"messages": HELLO} | fields)
    assert response.status_code == 400, response.text
    return response.json()["error"]


def test_answer_has_openais_shape(server: LiveServer) -> None:
    answer = chat(server)
    assert (answer["object"], answer["model"]) == ("chat.completion", "scripted")
    [choice] = answer["choices"]
    assert choice["message"] == {"role": "assistant", "content": "ABCDEFGHIJ"}
    assert (choice["index"], choice["finish_reason"]) == (0, "stop")
    assert answer["usage"]["completion_tokens"] == 6  # five pieces and the end of text


def test_api_42_stream_begins_with_the_role_and_ends_with_one_finish_reason(server: LiveServer) -> None:
    chunks = stream(server)
    assert chunks[0]["choices"] == [{"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}]
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + ["stop"]
    assert chat_text(chunks) == "ABCDEFGHIJ"
    assert all("role" not in chunk["choices"][0]["delta"] for chunk in chunks[1:])


def test_api_05_only_the_role_chunk_is_empty(server: LiveServer) -> None:
    chunks = stream(server, stop=["zzz"])
    assert all(chunk["choices"][0]["delta"].get("content") for chunk in chunks[1:-1])


def test_api_24_choices_are_numbered_and_end_by_themselves(server: LiveServer) -> None:
    texts = ["ABCDEFGHIJ", "a😊b", "ďábelské 夢"]  # of seeds 0, 1 and 2
    answer = chat(server, n=3)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert [choice["message"]["content"] for choice in answer["choices"]] == texts
    chunks = stream(server, n=3)
    assert [chat_text(chunks, index) for index in range(3)] == texts
    for index in range(3):
        reasons = [c["finish_reason"] for chunk in chunks for c in chunk["choices"] if c["index"] == index]
        assert [reason for reason in reasons if reason] == ["stop"]


def test_logprobs_have_exactly_the_alternatives_asked_for(server: LiveServer) -> None:
    for top in (0, 3):
        content = chat(server, logprobs=True, top_logprobs=top, max_tokens=2)["choices"][0]["logprobs"]["content"]
        assert [entry["token"] for entry in content] == ["ABC", "DEF"]
        assert content[0]["logprob"] == pytest.approx(-IDS["ABC"] / 100)
        assert content[0]["bytes"] == [65, 66, 67]
        assert all(len(entry["top_logprobs"]) == top for entry in content)
    assert chat(server)["choices"][0]["logprobs"] is None
    scored = [c["choices"][0]["logprobs"] for c in stream(server, logprobs=True, max_tokens=2)]
    assert [entry["token"] for scores in scored if scores for entry in scores["content"]] == ["ABC", "DEF"]


def test_max_completion_tokens_wins_over_max_tokens(server: LiveServer) -> None:
    assert chat(server, max_tokens=1, max_completion_tokens=2)["usage"]["completion_tokens"] == 2
    assert refused(server, max_completion_tokens=0)["param"] == "max_completion_tokens"
    assert refused(server, max_tokens=0)["param"] == "max_tokens"


def test_without_a_limit_the_answer_may_fill_the_context(server: LiveServer) -> None:
    assert chat(server, "long", seed=SEEDS["long"])["usage"]["completion_tokens"] == 1501


def test_content_may_be_text_parts(server: LiveServer) -> None:
    parts = [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]
    one = chat(server, messages=[{"role": "user", "content": "hel\nlo"}])["usage"]["prompt_tokens"]
    assert chat(server, messages=[{"role": "user", "content": parts}])["usage"]["prompt_tokens"] == one


def test_se_09_images_are_refused(server: LiveServer) -> None:
    for url in ("http://127.0.0.1/x.png", "http://169.254.169.254/", "file:///etc/passwd"):
        part = {"type": "image_url", "image_url": {"url": url}}
        error = refused(server, messages=[{"role": "user", "content": [part]}])
        assert "image_url" in error["message"]


def test_api_36_tokenize_and_chat_agree_on_the_prompt(server: LiveServer) -> None:
    expected = [IM_START, *byte_ids("user\nhello"), IM_END, *byte_ids("\n"), IM_START, *byte_ids("assistant\n")]
    tokens = server.post("/tokenize", {"messages": HELLO}).json()["tokens"]
    assert tokens == expected
    answer = chat(server, return_token_ids=True)
    assert answer["prompt_token_ids"] == expected
    assert answer["usage"]["prompt_tokens"] == len(expected)


@pytest.mark.parametrize("end", ["OK! ", "OK!\n", "OK!\t", "OK!"])
def test_api_38_continue_final_message_goes_on_from_the_exact_text(server: LiveServer, end: str) -> None:
    messages = [*HELLO, {"role": "assistant", "content": end}]
    answer = chat(server, messages=messages, continue_final_message=True, return_token_ids=True)
    assert answer["prompt_token_ids"][-len(end) :] == byte_ids(end)
    assert (
        "continue_final_message" in refused(server, messages=messages, continue_final_message=True, add_generation_prompt=True)["message"]
    )


def test_api_37_the_templates_own_words_reach_the_client(start: Callable[..., LiveServer]) -> None:
    template = "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{{ messages[0].content }}"
    strict = start(settings={"chat_template": template})
    error = refused(strict, messages=[{"role": "system", "content": "x"}])
    assert "System role not supported" in error["message"]
    assert strict.post("/v1/chat/completions", {"messages": HELLO}).status_code == 200


@pytest.mark.parametrize(
    "fields",
    [{"chat_template": "{{ 1 }}"}, {"chat_template_kwargs": {"chat_template": "{% for i in range(9**9) %}{% endfor %}"}}]
    + [{"chat_template_kwargs": {name: 5}} for name in ("messages", "tools", "tokenizer", "template", "self", "add_generation_prompt")],
)
def test_se_04_a_request_cannot_bring_a_template(server: LiveServer, fields: dict[str, Any]) -> None:
    assert "chat_template" in refused(server, **fields)["message"]


@pytest.mark.parametrize(
    "messages",
    [[], [{}], [{"role": "user", "content": 5}], [{"role": 5, "content": "x"}], [{"role": "", "content": "x"}], ["hi"], {}, "hi", None,
     [{"role": "user", "content": ["x"]}], [{"role": "user", "content": [{"type": "text"}]}], [{"role": "user", "content": {}}]],
)  # fmt: skip
def test_malformed_messages_are_refused(server: LiveServer, messages: Any) -> None:
    assert refused(server, messages=messages)["param"].startswith("messages")


def test_se_13_too_many_messages(server: LiveServer) -> None:
    assert "10000" in refused(server, messages=HELLO * 100_000)["message"]


def test_api_13_a_conversation_far_beyond_the_context_is_refused_untokenized(server: LiveServer) -> None:
    error = refused(server, messages=[{"role": "user", "content": "x" * 10**6}])
    assert error["code"] == "context_length_exceeded" and " characters" in error["message"]


def test_api_37_a_model_without_a_template_says_so(start: Callable[..., LiveServer]) -> None:
    plain = start(with_template=False)
    error = refused(plain)
    assert error["code"] == "no_chat_template"
    assert plain.post("/v1/completions", {"prompt": "hi"}).status_code == 200
