"""Every bad value is a 400 before anything is generated or streamed, and names field, value and limit."""

from __future__ import annotations

import json
import socket
from typing import Any
from urllib.parse import urlsplit

import pytest

from support.live_server import LiveServer

VOCABULARY = 1000


def refused(server: LiveServer, path: str = "/v1/completions", **fields: Any) -> dict[str, Any]:
    """The error of a request with these fields, which must be the same streamed and not."""
    base = {"prompt": "hi"} if path == "/v1/completions" else {"messages": [{"role": "user", "content": "hi"}]}
    errors = []
    for streamed in (False, True):
        response = server.post(path, base | {"stream": streamed} | fields)
        assert response.status_code == 400, response.text
        assert response.headers["content-type"] == "application/json"
        errors.append(response.json()["error"])
    assert errors[0] == errors[1]
    assert set(errors[0]) == {"message", "type", "param", "code"}
    return errors[0]


OUT_OF_RANGE: list[tuple[str, Any]] = [
    *[("n", value) for value in (0, -1, "2", 10**6, True, 1.0)],
    *[("temperature", value) for value in (-0.1, 101, "0", True)],
    *[("top_p", value) for value in (-0.1, 1.1)],
    *[("top_k", value) for value in (-2, 1.5)],
    *[("min_p", value) for value in (-0.1, 1.1)],
    *[("presence_penalty", value) for value in (-2.1, 2.1)],
    *[("frequency_penalty", value) for value in (-2.1, 2.1)],
    *[("repetition_penalty", value) for value in (0, -1, 1e-300, 101)],
    *[("seed", value) for value in (-1, 2**63, 1.5, "1")],
    *[("max_tokens", value) for value in (-1, 1.5, "16", 2**31)],
    *[("min_tokens", value) for value in (-1, 17)],
    *[("logprobs", value) for value in (-1, 21, True)],
    *[("prompt_logprobs", value) for value in (-1, 21)],
    *[("stop", value) for value in ("", [""], ["a"] * 65, 5, [5])],
    *[("bad_words", value) for value in ([""], [5], ["a"] * 1025, ["a" * 1025])],
    *[("priority", value) for value in (2**31, "high")],
    *[("cache_salt", value) for value in ("s" * 257, 5)],
    *[("stream", value) for value in ("yes", 1)],
    *[("echo", value) for value in ("yes", 1)],
]


@pytest.mark.parametrize(("field", "value"), OUT_OF_RANGE, ids=lambda value: json.dumps(value)[:20])
def test_api_25_out_of_range(server: LiveServer, field: str, value: Any) -> None:
    error = refused(server, **{field: value})
    assert error["param"].split(".")[0] == field
    assert error["message"].startswith(field)


@pytest.mark.parametrize(
    "prompt",
    [
        *([VOCABULARY], [-1], [5279552648203111001], [1.5], [2**70], [[VOCABULARY]], [[2**70]], [True], [None]),
        *([], "", None, 5, {}, [[]], [["a"]], [[1], "a"], ["a", [1]], ["a", 1], [1, "a"]),
    ],
    ids=lambda value: json.dumps(value)[:30],
)
def test_api_16_prompt_ids_outside_the_vocabulary(server: LiveServer, prompt: Any) -> None:
    assert "prompt" in refused(server, prompt=prompt)["message"]


def test_api_16_a_list_of_texts_is_no_list_of_ids(server: LiveServer) -> None:
    assert server.post("/v1/completions", {"prompt": ["1"], "max_tokens": 1}).json()["usage"]["prompt_tokens"] == 1


@pytest.mark.parametrize(
    "bias", [{"99999999": 5}, {"-1": 5}, {"a": 1}, {"5": 1000}, {"5": None}, {"5": "x"}, {"9" * 30: 1}, {"٣": 1}, [], 5]
)
def test_api_17_logit_bias(server: LiveServer, bias: Any) -> None:
    assert refused(server, logit_bias=bias)["param"].startswith("logit_bias")


@pytest.mark.parametrize("field", ["stop_token_ids", "allowed_token_ids"])
@pytest.mark.parametrize("value", [[VOCABULARY + 7], [-1], [2**70], ["5"], [1.5], 5])
def test_api_18_token_ids(server: LiveServer, field: str, value: Any) -> None:
    assert refused(server, **{field: value})["param"].startswith(field)


def test_api_18_no_token_allowed(server: LiveServer) -> None:
    assert refused(server, allowed_token_ids=[])["param"] == "allowed_token_ids"


UNSUPPORTED: list[tuple[str, Any]] = [
    ("best_of", 2),
    ("best_of", 10**6),
    ("suffix", "end"),
    ("use_beam_search", True),
    ("tools", [{"type": "function", "function": {"name": "f"}}]),
    ("tool_choice", "required"),
    ("functions", [{"name": "f"}]),
    ("response_format", {"type": "json_object"}),
    ("response_format", {"type": "json_schema", "json_schema": {"schema": {}}}),
    ("structured_outputs", {"json": {}}),
    ("guided_json", {"type": "object"}),
    ("guided_regex", "a*"),
    ("modalities", ["text", "audio"]),
    ("audio", {"voice": "alloy"}),
    ("truncate_prompt_tokens", 10),
    ("chat_template", "{{ 1 }}"),
]


@pytest.mark.parametrize(("field", "value"), UNSUPPORTED, ids=lambda value: json.dumps(value)[:20])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_api_53_unsupported_fields_are_refused(server: LiveServer, path: str, field: str, value: Any) -> None:
    error = refused(server, path, **{field: value})
    assert (error["param"], error["code"]) == (field, "unsupported_parameter")


def test_api_53_harmless_values_of_unsupported_fields_pass(server: LiveServer) -> None:
    harmless = {"best_of": 1, "suffix": None, "tools": [], "tool_choice": "auto", "response_format": {"type": "text"}, "user": "me",
                "metadata": {"a": "b"}, "store": False, "modalities": ["text"]}  # fmt: skip
    response = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], **harmless})
    assert response.status_code == 200
    assert "x-octavo-warning" not in response.headers


def test_api_53_unknown_fields_are_warned_of(server: LiveServer, caplog: pytest.LogCaptureFixture) -> None:
    response = server.post("/v1/completions", {"prompt": "hi", "max_tokens": 1, "temprature": 0, "a\r\nb": 1, "é" * 99: 1})
    assert response.status_code == 200
    assert "temprature" in response.headers["x-octavo-warning"]
    assert "temprature" in caplog.text


def test_unknown_model_is_404(server: LiveServer) -> None:
    for path in ("/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"):
        body = {"model": "gpt-5", "prompt": "hi", "messages": [{"role": "user", "content": "hi"}], "tokens": [5]}
        response = server.post(path, body)
        assert response.status_code == 404, path
        assert response.json()["error"]["code"] == "model_not_found"


def test_chat_only_fields(server: LiveServer) -> None:
    path = "/v1/chat/completions"
    assert refused(server, path, top_logprobs=5)["param"] == "top_logprobs"
    assert refused(server, path, logprobs=True, top_logprobs=21)["param"] == "top_logprobs"
    assert refused(server, path, logprobs=True, top_logprobs=-1)["param"] == "top_logprobs"
    assert refused(server, path, logprobs=1)["param"] == "logprobs"


def test_stream_options_need_a_stream(server: LiveServer) -> None:
    for stream in (False, None):
        response = server.post("/v1/completions", {"prompt": "hi", "stream": stream, "stream_options": {"include_usage": True}})
        error = response.json()["error"]
        assert (response.status_code, error["param"]) == (400, "stream_options")
        assert error["message"] == "stream_options = a JSON object: it needs stream = true"
    assert server.post("/v1/completions", {"prompt": "hi", "stream": True, "stream_options": {"x": 1}}).status_code == 400


MALFORMED: list[bytes] = [
    b"",
    b"{",
    b"null",
    b"[]",
    b'"text"',
    b"5",
    b'{"prompt": "hi"',
    b'{"prompt": "hi",}',
    b'{"prompt": "hi", "temperature": NaN}',
    b'{"prompt": "hi", "temperature": Infinity}',
    b'{"prompt": "hi", "temperature": 1e400}',
    b'{"prompt": "hi", "max_tokens": 1e400}',
    b'{"prompt": "\xff"}',
    b"{'prompt': 'hi'}",
    b'\xef\xbb\xbf{"prompt": "hi"}',
    b"[" * 10_000,
    b'{"a":' * 10_000,
    b'{"prompt": ' + b"[" * 10_000 + b"]" * 10_000 + b"}",
]


@pytest.mark.parametrize("body", MALFORMED, ids=lambda body: repr(body[:24]))
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"])
def test_malformed_json_is_400(server: LiveServer, path: str, body: bytes) -> None:
    response = server.post(path, content=body)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/tokenize"])
@pytest.mark.parametrize(
    "text", [r"\ud800", r"a\udfffb", r"\ud800\ud800", r"\u0000", "e" + r"\u0301" * 100_000], ids=lambda text: text[:12]
)
def test_api_52_surrogates_nul_and_combining_marks(server: LiveServer, path: str, text: str) -> None:
    body = f'{{"prompt": "{text}", "max_tokens": 1}}'
    if "chat" in path:
        body = f'{{"messages": [{{"role": "user", "content": "{text}"}}], "max_tokens": 1}}'
    response = server.post(path, content=body)
    assert response.status_code in (200, 400)
    if r"\u0000" in text:
        assert response.status_code == 200  # a character as any other


def test_se_13_large_bodies(server: LiveServer) -> None:
    response = server.post("/v1/completions", content=b'{"prompt": "' + b"x" * (30 * 2**20) + b'"}')
    assert (response.status_code, response.json()["error"]["code"]) == (413, "body_too_large")

    def endless() -> Any:
        for _ in range(40):
            yield b" " * 2**20

    assert server.post("/v1/completions", content=endless()).status_code == 413
    assert server.client.get("/health").status_code == 200


def test_se_13_slow_body(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo.server.body.BODY_TIMEOUT_S", 0.1)
    parts = urlsplit(server.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=5) as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        assert b"408" in connection.recv(1000)


def test_api_53_priority_needs_the_policy(server: LiveServer) -> None:
    assert "--scheduling-policy" in refused(server, priority=1)["message"]
    assert server.post("/v1/completions", {"prompt": "hi", "priority": 0}).status_code == 200


def test_se_02_too_many_choices(server: LiveServer) -> None:
    assert refused(server, prompt=["a"] * 100, n=21)["param"] == "n"
    assert refused(server, prompt=["a"] * 1025)["param"] == "prompt"


def test_wrong_methods_and_paths(server: LiveServer) -> None:
    assert server.client.get("/v1/completions").status_code == 405
    assert server.client.get("/v1/nothing").json()["error"]["type"] == "not_found_error"


def test_nothing_of_all_this_reached_the_engine(server: LiveServer) -> None:
    steps = server.engine.stats.steps
    refused(server, n=0)
    refused(server, prompt=[VOCABULARY])
    assert server.engine.stats.steps == steps
    server.assert_idle()
