"""Shares of a text by token: whatever the tokens and the chunks, the shares joined are the text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.outputs import CompletionOutput
from octavo.sampling_params import SamplingParams
from octavo.server.openai.token_texts import OutputTexts, prompt_texts
from octavo.tokenizer.load import load_tokenizer
from octavo.tokenizer.tokenizer import Tokenizer
from support.outputs import IDS, TOKENIZER, byte_ids
from support.scripted import Script
from support.toy_tokenizer import write_model


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return load_tokenizer(Path(write_model(tmp_path_factory.mktemp("model"), Script(), TOKENIZER)))


def delta(text: str, ids: list[int], finished: bool = False) -> CompletionOutput:
    return CompletionOutput(0, text, ids, finish_reason="stop" if finished else None)


TOKENS = st.lists(st.one_of(st.sampled_from([*IDS.values(), 0, 1, 2]), st.integers(3, 258)), min_size=1, max_size=12)


@given(prompt=TOKENS, output=TOKENS, cuts=st.lists(st.integers(1, 11), max_size=3), hidden=st.integers(0, 6), skip=st.booleans())
def test_api_29_shares_join_to_the_text(
    tokenizer: Tokenizer, prompt: list[int], output: list[int], cuts: list[int], hidden: int, skip: bool
) -> None:
    """``hidden``: characters that a stop string cuts from the end."""
    whole = tokenizer.decode(output, skip_special_tokens=skip, continuation=True)
    params = SamplingParams(skip_special_tokens=skip)
    texts = OutputTexts(tokenizer, params, byte_ids("a"))
    shown = whole[: len(whole) - hidden] if hidden else whole
    shares: list[str] = []
    given_text = ""
    places = sorted({cut for cut in cuts if cut < len(output)})
    for start, end in zip([0, *places], [*places, len(output)], strict=True):
        last = end == len(output)
        certain = tokenizer.decode(output[:end], skip_special_tokens=skip, continuation=True).rstrip("\ufffd")
        upto = shown if last else shown[: min(len(certain), len(shown))]
        shares += texts.cut(delta(upto[len(given_text) :], output[start:end], last))
        given_text = upto
    assert len(shares) == len(output)
    assert "".join(shares) == shown

    pieces = prompt_texts(tokenizer, prompt)
    assert len(pieces) == len(prompt)
    assert "".join(pieces) == tokenizer.decode(prompt, skip_special_tokens=False)


def test_text_that_was_held_back_goes_to_the_token_that_released_it(tokenizer: Tokenizer) -> None:
    texts = OutputTexts(tokenizer, SamplingParams(), byte_ids("a"))
    assert texts.cut(delta("AB", [IDS["ABC"]])) == ["AB"]  # a stop string may begin with C
    assert texts.cut(delta("CG", [IDS["G"]])) == ["CG"]  # it did not
