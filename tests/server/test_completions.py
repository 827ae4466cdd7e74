"""/v1/completions over the scripted runner: what the client reads is known by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.live_server import LiveServer
from support.outputs import IDS, OUTPUTS, SEEDS, byte_ids
from support.scripted import Script
from support.sse import read_chunks, read_events, stream_text


def complete(server: LiveServer, output: str = "letters", **fields: Any) -> dict[str, Any]:
    response = server.post("/v1/completions", {"prompt": "hi", "seed": SEEDS[output], "max_tokens": 100} | fields)
    assert response.status_code == 200, response.text
    return response.json()


def stream(server: LiveServer, output: str = "letters", **fields: Any) -> list[dict[str, Any]]:
    body = {"prompt": "hi", "seed": SEEDS[output], "max_tokens": 100, "stream": True} | fields
    response = server.post("/v1/completions", body)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    return read_chunks(response.text)


def test_answer_has_openais_shape(server: LiveServer) -> None:
    answer = complete(server, max_tokens=3)
    assert answer["id"].startswith("cmpl-")
    assert (answer["object"], answer["model"]) == ("text_completion", "scripted")
    assert answer["choices"] == [{"index": 0, "text": "ABCDEFG", "logprobs": None, "finish_reason": "length", "stop_reason": None}]
    details = {"cached_tokens": 0}
    assert answer["usage"] == {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5, "prompt_tokens_details": details}


def test_api_01_stop_string_across_tokens(server: LiveServer) -> None:
    whole = complete(server, stop="DEFGHIJ")["choices"][0]
    assert (whole["text"], whole["finish_reason"], whole["stop_reason"]) == ("ABC", "stop", "DEFGHIJ")
    chunks = stream(server, stop="DEFGHIJ")
    assert stream_text(chunks) == "ABC"
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("streamed", [False, True])
def test_api_02_text_ids_logprobs_usage_end_together(server: LiveServer, streamed: bool) -> None:
    fields = {"stop": "DEFGHIJ", "logprobs": 1, "return_token_ids": True}
    if streamed:
        chunks = stream(server, **fields, stream_options={"include_usage": True})
        usage, parts = chunks[-1]["usage"], [chunk["choices"][0] for chunk in chunks[:-1]]
    else:
        answer = complete(server, **fields)
        usage, parts = answer["usage"], answer["choices"]
    assert [token for part in parts for token in part["token_ids"]] == [IDS["ABC"]]
    assert [token for part in parts for token in (part["logprobs"] or {"tokens": []})["tokens"]] == ["ABC"]
    assert usage["completion_tokens"] == 1


def test_api_04_stop_string_that_is_a_special_token(server: LiveServer) -> None:
    whole = complete(server, "special", stop="<|im_end|>")["choices"][0]
    assert (whole["text"], whole["finish_reason"], whole["stop_reason"]) == ("Hello", "stop", "<|im_end|>")
    assert stream_text(stream(server, "special", stop="<|im_end|>")) == "Hello"


def test_api_05_stop_holds_back_only_what_may_become_one(server: LiveServer) -> None:
    chunks = stream(server, stop=["zzz"])
    assert all(chunk["choices"][0]["text"] or chunk["choices"][0]["finish_reason"] for chunk in chunks)
    assert stream_text(chunks) == "ABCDEFGHIJ"


@pytest.mark.parametrize(("output", "text"), [("emoji", "a😊b"), ("accents", "ďábelské 夢")])
def test_api_06_characters_split_over_tokens(server: LiveServer, output: str, text: str) -> None:
    assert complete(server, output)["choices"][0]["text"] == text
    chunks = stream(server, output)
    assert stream_text(chunks) == text
    assert all("\ufffd" not in chunk["choices"][0]["text"] for chunk in chunks)


def test_api_08_spaces_are_kept(server: LiveServer) -> None:
    text = "  two  spaces .\n\n has"
    assert complete(server, "spaces")["choices"][0]["text"] == text
    assert stream_text(stream(server, "spaces")) == text


def test_api_09_output_that_ends_inside_a_character(server: LiveServer) -> None:
    assert complete(server, "cut", max_tokens=3)["choices"][0]["text"] == "a\ufffd"
    assert stream_text(stream(server, "cut", max_tokens=3)) == "a\ufffd"


@pytest.mark.parametrize(
    ("options", "last"), [(None, False), ({}, False), ({"include_usage": False}, False), ({"include_usage": True}, True)]
)
def test_api_10_usage_chunk_only_when_asked(server: LiveServer, options: dict[str, bool] | None, last: bool) -> None:
    chunks = stream(server, max_tokens=3, stream_options=options)
    if last:
        usage = chunks.pop()
        assert usage["choices"] == []
        assert (usage["usage"]["prompt_tokens"], usage["usage"]["completion_tokens"]) == (2, 3)
    assert all(len(chunk["choices"]) == 1 and chunk.get("usage") is None for chunk in chunks)


def test_continuous_usage_counts_up(server: LiveServer) -> None:
    chunks = stream(server, max_tokens=3, stream_options={"continuous_usage_stats": True})
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert counts[-1] == 3


def test_api_13_context_length(server: LiveServer) -> None:
    context = 2048

    def ask(prompt: int, output: int | None) -> Any:
        return server.post("/v1/completions", {"prompt": [5] * prompt, "max_tokens": output})

    assert ask(context - 1, 1).status_code == 200
    for prompt, output in [(context, 1), (context + 1, 1), (context - 10, 11)]:
        response = ask(prompt, output)
        error = response.json()["error"]
        assert (response.status_code, error["code"]) == (400, "context_length_exceeded")
        assert all(str(number) in error["message"] for number in (prompt, output, context))


@pytest.mark.parametrize("fields", [{}, {"add_special_tokens": False}])
def test_api_13_a_text_far_beyond_the_context_is_refused_untokenized(server: LiveServer, fields: dict[str, Any]) -> None:
    response = server.post("/v1/completions", {"prompt": "x" * 10**6, **fields})
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, "context_length_exceeded")
    assert "1000000 characters" in error["message"]


def test_several_prompts_and_completions_are_numbered(server: LiveServer) -> None:
    answer = complete(server, prompt=["a", "bc"], n=2, max_tokens=1)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert [choice["text"] for choice in answer["choices"]] == ["ABC", "a", "ABC", "a"]  # seed 0, then seed 1
    assert answer["usage"]["prompt_tokens"] == 3
    assert answer["usage"]["completion_tokens"] == 4
    chunks = stream(server, prompt=["a", "bc"], n=2, max_tokens=1)
    assert [stream_text(chunks, index) for index in range(4)] == ["ABC", "a", "ABC", "a"]


def test_prompt_of_ids_and_lists_of_ids(server: LiveServer) -> None:
    assert complete(server, prompt=byte_ids("hey"))["usage"]["prompt_tokens"] == 3
    assert len(complete(server, prompt=[byte_ids("hey"), byte_ids("ho")])["choices"]) == 2


def test_api_28_echo_with_max_tokens_0_scores_the_prompt(server: LiveServer) -> None:
    for max_tokens, entries in ((0, 2), (1, 3)):
        choice = complete(server, prompt="hi", echo=True, logprobs=1, max_tokens=max_tokens)["choices"][0]
        scores = choice["logprobs"]
        expected = [None, *(-token / 100 for token in [*byte_ids("i"), IDS["ABC"]])][:entries]
        assert scores["token_logprobs"] == pytest.approx(expected)  # the scripted runner's rule
        assert choice["text"] == ("hi" if max_tokens == 0 else "hiABC")
        assert choice["finish_reason"] == "length"
    assert complete(server, echo=True, max_tokens=0)["usage"]["completion_tokens"] == 0


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("output", ["letters", "emoji", "accents", "cut", "special", "spaces"])
def test_api_29_token_texts_join_to_the_text(server: LiveServer, output: str, streamed: bool) -> None:
    prompt = "naïve 😊\n\n has"
    fields = {"prompt": prompt, "echo": True, "logprobs": 2, "max_tokens": 30}
    if streamed:
        parts = [chunk["choices"][0] for chunk in stream(server, output, **fields)]
    else:
        parts = complete(server, output, **fields)["choices"]
    text = "".join(part["text"] for part in parts)
    scored = [part["logprobs"] for part in parts if part["logprobs"]]
    tokens = [token for scores in scored for token in scores["tokens"]]
    offsets = [offset for scores in scored for offset in scores["text_offset"]]
    assert text.startswith(prompt)
    assert "".join(tokens) == text
    assert offsets == [len("".join(tokens[:place])) for place in range(len(tokens))]


def test_api_29_token_texts_are_cut_where_a_stop_string_cuts(server: LiveServer) -> None:
    choice = complete(server, stop="EFG", logprobs=0)["choices"][0]
    assert choice["text"] == "ABCD"
    assert choice["logprobs"]["tokens"] == ["ABC", "D"]


def test_api_42_choice_index_and_finish_reason(server: LiveServer) -> None:
    chunks = stream(server, max_tokens=5)
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert {chunk["choices"][0]["index"] for chunk in chunks} == {0}
    assert reasons[:-1] == [None] * (len(reasons) - 1)
    assert reasons[-1] == "length"


def test_api_44_error_in_mid_stream_is_an_event_without_done(start: Callable[..., LiveServer]) -> None:
    failing = start(Script(outputs=list(OUTPUTS.values()), fail_request_at=3, step_seconds=0.01))
    response = failing.post("/v1/completions", {"prompt": "hi", "stream": True, "seed": SEEDS["letters"]})
    *chunks, error = read_events(response.text)
    assert "ABCDEFG".startswith(stream_text(chunks))
    assert error["error"]["type"] == "server_error"
    whole = failing.post("/v1/completions", {"prompt": "hi"})
    assert (whole.status_code, whole.json()["error"]["type"]) == (500, "server_error")
    assert error["error"]["message"].endswith("failed: the script says so")
    failing.assert_idle()


def test_stop_token_ids_and_min_tokens(server: LiveServer) -> None:
    choice = complete(server, stop_token_ids=[IDS["G"]])["choices"][0]
    assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == ("ABCDEF", "stop", IDS["G"])
    shown = complete(server, stop_token_ids=[IDS["G"]], include_stop_str_in_output=True)["choices"][0]
    assert shown["text"] == "ABCDEFG"


def test_special_tokens_show_when_asked(server: LiveServer) -> None:
    assert complete(server, "special")["choices"][0]["text"] == "Hello world"
    assert complete(server, "special", skip_special_tokens=False)["choices"][0]["text"].startswith("Hello<|im_end|> world")


def test_prompt_logprobs_in_vllms_shape(server: LiveServer) -> None:
    first, second = complete(server, prompt="hi", prompt_logprobs=0, max_tokens=1)["choices"][0]["prompt_logprobs"]
    token = byte_ids("i")[0]
    assert first is None
    assert second == {str(token): {"logprob": -token / 100, "rank": 1, "decoded_token": "i"}}
