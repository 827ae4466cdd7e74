"""The real openai client against the server."""

from __future__ import annotations

import openai
import pytest

from support.live_server import LiveServer
from support.outputs import SEEDS


@pytest.fixture
def client(server: LiveServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def test_models(client: openai.OpenAI) -> None:
    [model] = client.models.list().data
    assert client.models.retrieve(model.id).id == "scripted"


def test_completion(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="scripted", prompt="hi", seed=SEEDS["emoji"], max_tokens=20, logprobs=2)
    assert answer.choices[0].text == "a😊b"
    assert answer.choices[0].finish_reason == "stop"
    assert "".join(answer.choices[0].logprobs.tokens) == "a😊b"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_streamed_completion(client: openai.OpenAI) -> None:
    stream = client.completions.create(
        model="scripted", prompt="hi", seed=SEEDS["emoji"], stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == "a😊b"
    assert chunks[-1].usage.completion_tokens == 7


def test_chat(client: openai.OpenAI) -> None:
    messages = [{"role": "developer", "content": "be brief"}, {"role": "user", "content": "hi"}]
    answer = client.chat.completions.create(model="scripted", messages=messages, seed=0, n=2, logprobs=True, top_logprobs=2)
    assert [choice.message.content for choice in answer.choices] == ["ABCDEFGHIJ", "a😊b"]
    assert len(answer.choices[0].logprobs.content[0].top_logprobs) == 2


def test_streamed_chat(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(model="scripted", messages=[{"role": "user", "content": "hi"}], seed=0, stream=True)
    chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "ABCDEFGHIJ"
    assert [chunk.choices[0].finish_reason for chunk in chunks][-1] == "stop"


def test_vllms_fields_through_extra_body(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model="scripted", prompt="hi", extra_body={"stop_token_ids": [0], "top_k": 5, "return_token_ids": True}
    )
    assert answer.choices[0].token_ids


def test_errors_become_the_clients_exceptions(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        client.completions.create(model="scripted", prompt="hi", temperature=-1)
    assert bad.value.param == "temperature"
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="gpt", messages=[{"role": "user", "content": "hi"}])
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as long:
        client.completions.create(model="scripted", prompt="x" * 3000)
    assert long.value.code == "context_length_exceeded"


def test_api_34_request_ids_are_echoed_and_may_repeat(server: LiveServer) -> None:
    import concurrent.futures

    def ask(_: int) -> tuple[str, str]:
        response = server.post("/v1/completions", {"prompt": "hi"}, headers={"X-Request-Id": "mine"})
        assert response.status_code == 200
        return response.headers["x-request-id"], response.json()["id"]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(8)))
    assert {echoed for echoed, _ in answers} == {"mine"}
    assert len({own for _, own in answers}) == 8
    made_up = server.client.get("/health").headers["x-request-id"]
    assert made_up != server.client.get("/health").headers["x-request-id"]
    assert server.client.get("/health", headers={"X-Request-Id": "x" * 300}).headers["x-request-id"] != "x" * 300
