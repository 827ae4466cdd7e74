"""What a client reads, from both routes, whole and streamed: the words are given, so it is known by hand."""

from __future__ import annotations

import pytest

from support.live_server import LiveServer
from support.outputs import EMOJI_HALVES, IDS, SEEDS
from support.routes import EVERY_WAY, PATHS, ask, body, collect
from support.sse import read_chunks, read_events


@EVERY_WAY
def test_api_01_api_02_all_ends_where_a_stop_string_begins(scripted: LiveServer, route: str, streamed: bool) -> None:
    answer = ask(scripted, route, streamed, seed=SEEDS["letters"], stop="DEFGHIJ", logprobs=1)
    assert (answer.only.text, answer.only.finish_reasons) == ("ABC", ["stop"])
    assert answer.only.token_ids == [IDS["ABC"]]
    assert answer.only.scored == ["ABC"]
    assert answer.usage is not None and answer.usage["completion_tokens"] == 1


@EVERY_WAY
def test_api_04_a_special_token_stops_and_does_not_show(scripted: LiveServer, route: str, streamed: bool) -> None:
    choice = ask(scripted, route, streamed, seed=SEEDS["special"], stop=["<|im_end|>"], skip_special_tokens=True).only
    assert (choice.text, choice.finish_reasons) == ("Hello", ["stop"])


@pytest.mark.parametrize("route", PATHS)
@pytest.mark.parametrize("stop", ["zzz", "ABD", "J!"])
def test_api_05_a_stop_holds_nothing_back_that_cannot_be_its_beginning(scripted: LiveServer, route: str, stop: str) -> None:
    """A chunk brings the text of the very tokens it brings; only what says the role, or the end, may be empty."""
    fields = body(route, True, seed=SEEDS["letters"], stop=[stop], stream_options=None)
    choices = [chunk["choices"][0] for chunk in read_chunks(scripted.post(PATHS[route], fields).text)]
    texts = [choice["text"] if "text" in choice else choice["delta"].get("content", "") for choice in choices]
    spelled = {IDS[piece]: piece for piece in ("ABC", "DEF", "G", "HI", "J")}
    assert "".join(texts) == "ABCDEFGHIJ"
    assert texts == ["".join(spelled.get(token, "") for token in choice.get("token_ids", ())) for choice in choices]
    assert all(texts[route == "chat" : -1])


@EVERY_WAY
@pytest.mark.parametrize(("words", "text"), [("halves", "a😊b"), ("emoji", "a😊b"), ("accents", "ďábelské 夢")])
def test_api_06_characters_in_two_or_four_tokens(scripted: LiveServer, words: str, text: str, route: str, streamed: bool) -> None:
    choice = ask(scripted, route, streamed, seed=SEEDS[words]).only
    assert choice.text == text
    assert all("\ufffd" not in piece for piece in choice.pieces)
    if words == "halves":
        assert {IDS[half] for half in EMOJI_HALVES} < set(choice.token_ids)


@EVERY_WAY
def test_api_08_spaces_are_neither_lost_nor_doubled(scripted: LiveServer, route: str, streamed: bool) -> None:
    assert ask(scripted, route, streamed, seed=SEEDS["spaces"]).only.text == "  two  spaces .\n\n has"


@EVERY_WAY
@pytest.mark.parametrize(("words", "limit"), [("halves", 2), ("emoji", 2), ("emoji", 4), ("cut", 3)])
def test_api_09_a_character_cut_short_is_one_replacement_at_the_end(
    scripted: LiveServer, words: str, limit: int, route: str, streamed: bool
) -> None:
    choice = ask(scripted, route, streamed, seed=SEEDS[words], max_tokens=limit).only
    assert (choice.text, choice.finish_reasons) == ("a\ufffd", ["length"])


@pytest.mark.parametrize("route", PATHS)
@pytest.mark.parametrize(
    ("options", "asked"), [(None, False), ({}, False), ({"include_usage": False}, False), ({"include_usage": True}, True)]
)
def test_api_10_usage_comes_last_and_only_when_asked(
    scripted: LiveServer, route: str, options: dict[str, bool] | None, asked: bool
) -> None:
    fields = body(route, True, seed=SEEDS["letters"], max_tokens=3, stream_options=options)
    *chunks, done = read_events(scripted.post(PATHS[route], fields).text)
    assert done == "[DONE]"
    if asked:
        last = chunks.pop()
        assert last["choices"] == []
        assert last["usage"]["completion_tokens"] == 3
        assert last["usage"]["total_tokens"] == last["usage"]["prompt_tokens"] + 3
    assert all(len(chunk["choices"]) == 1 and chunk.get("usage") is None for chunk in chunks)


@EVERY_WAY
def test_api_24_each_choice_has_its_text_and_its_own_end(scripted: LiveServer, route: str, streamed: bool) -> None:
    """Seeds 0, 1 and 2: five tokens and an end, more than eight, more than eight."""
    answer = ask(scripted, route, streamed, seed=0, n=3, max_tokens=8)
    assert sorted(answer.choices) == [0, 1, 2]
    assert [answer.choices[index].finish_reasons for index in range(3)] == [["stop"], ["stop"], ["length"]]
    assert [answer.choices[index].text for index in range(3)] == ["ABCDEFGHIJ", "a😊b", "ďábels"]
    assert answer.usage is not None and answer.usage["completion_tokens"] == 6 + 7 + 8


@pytest.mark.parametrize("route", PATHS)
def test_api_25_a_bad_n_is_refused_before_a_stream_begins(scripted: LiveServer, route: str) -> None:
    for n in (0, -1, "2", 10**6):
        response = scripted.post(PATHS[route], body(route, True, n=n))
        assert (response.status_code, response.headers["content-type"]) == (400, "application/json")
        assert response.json()["error"]["param"] == "n"


@pytest.mark.parametrize("streamed", [False, True])
def test_api_28_api_29_an_echoed_prompt_is_scored_token_by_token(scripted: LiveServer, streamed: bool) -> None:
    """Also where the prompt is prefilled in chunks, and found in the prefix cache the second time."""
    prompt = "naïve 😊\n\n has " * 3
    for _ in range(2):
        fields = body("completions", streamed, prompt=prompt, echo=True, logprobs=1, max_tokens=2, seed=SEEDS["letters"])
        response = scripted.post(PATHS["completions"], fields)
        parts = [response.json()] if not streamed else read_events(response.text)[:-1]
        choice = collect(parts).only
        assert choice.text == prompt + "ABCDEF" == "".join(choice.scored)
        offsets = [at for part in parts for c in part["choices"] if c["logprobs"] for at in c["logprobs"]["text_offset"]]
        assert offsets == [0, *(start + len(token) for start, token in zip(offsets, choice.scored, strict=True))][:-1]
        assert len(offsets) == len(prompt.encode()) + 2
