"""What reaches the engine, and what is refused before it does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.config import EngineArgs
from octavo.engine.info import EngineInfo
from octavo.engine.processor import InputProcessor, load_model_tokenizer, render_chat
from octavo.errors import InvalidRequestError
from octavo.sampling_params import SamplingParams
from octavo.tokenizer.load import load_tokenizer
from octavo.tokenizer.tokenizer import Tokenizer
from support.scripted import Script
from support.toy_tokenizer import byte_level, write_model

VOCAB, CONTEXT = 300, 64


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    return load_tokenizer(write_model(tmp_path_factory.mktemp("models") / "model", Script(), byte_level()[0]))


def inputs(tokenizer: Tokenizer, pool_tokens: int = 10**6, seed: int | None = None, **changes) -> InputProcessor:
    facts = dict(
        model="m", max_model_len=CONTEXT, max_num_seqs=8, max_logprobs=20, vocab_size=VOCAB, eos_token_ids=[0], numerics_id="",
        block_size=16, num_blocks=[1], pool_tokens=pool_tokens, pool_bytes=0,
    )  # fmt: skip
    return InputProcessor(tokenizer, EngineInfo(**(facts | changes)), seed)


@pytest.mark.parametrize(
    "prompt",
    ["ab", {"prompt": "ab"}, [100, 101], {"prompt_token_ids": [100, 101]}, {"prompt": "ab", "prompt_token_ids": [100, 101]}],
)
def test_every_form_of_a_prompt(tokenizer, prompt):
    prepared = inputs(tokenizer).prepare("r", prompt)
    assert prepared.prompt_token_ids == [100, 101]  # bytes 97 and 98 after the three special tokens
    assert prepared.prompt == (None if isinstance(prompt, list) or ("prompt" not in prompt and prompt != "ab") else "ab")


@pytest.mark.parametrize(
    "prompt", [[VOCAB], [-1], [5279552648203111001], [1.5], ["1"], [True], [1, None], 7, None, {"text": "a"}, {"prompt": 3}, [[1]]]
)
def test_api_16_ids_outside_the_vocabulary(tokenizer, prompt):
    with pytest.raises(InvalidRequestError) as error:
        inputs(tokenizer).prepare("r", prompt)
    assert error.value.field == "prompt"


def test_a_tokenizer_may_know_more_tokens_than_the_model(tokenizer):
    """100 is the id of "a". Gemma 3's tokenizer, for one, has a token for images that the text models lack."""
    processor = inputs(tokenizer, vocab_size=100)
    with pytest.raises(InvalidRequestError, match=r"prompt token 100: .* 0 to 99") as error:
        processor.prepare("r", "!a")
    assert error.value.field == "prompt"
    params = processor.prepare("r", "!", SamplingParams(bad_words=["a", "!a", "!"], stop=["a"])).children[0].sampling_params
    assert params.bad_words_token_ids == [[36]]
    assert inputs(tokenizer, vocab_size=2).prepare("r", [1], SamplingParams(stop=["<|im_end|>"])).special_stops == {}


def test_what_ends_a_generation_comes_from_the_tokenizer_too(tokenizer, monkeypatch):
    monkeypatch.setattr(tokenizer, "eos_token_ids", (2, 0, VOCAB + 5))
    processor = inputs(tokenizer, eos_token_ids=[7])
    assert processor.prepare("r", "a").children[0].eos_token_ids == [2, 0]
    for allowed in ([2], [0], [7]):
        with pytest.raises(InvalidRequestError, match="every token is forbidden"):
            processor.prepare("r", "a", SamplingParams(allowed_token_ids=allowed, min_tokens=1))


@pytest.mark.parametrize("prompt", ["", [], {"prompt_token_ids": []}, {"prompt": ""}])
def test_an_empty_prompt(tokenizer, prompt):
    with pytest.raises(InvalidRequestError, match="empty"):
        inputs(tokenizer).prepare("r", prompt)


def test_api_13_the_context_is_a_hard_limit(tokenizer):
    processor = inputs(tokenizer)
    one = SamplingParams(max_tokens=1)
    assert processor.prepare("r", [5] * (CONTEXT - 1), one).params.max_tokens == 1
    for length in (CONTEXT, CONTEXT + 1):
        with pytest.raises(InvalidRequestError) as error:
            processor.prepare("r", [5] * length, one)
        assert error.value.code == "context_length_exceeded" and error.value.field == "prompt"
        assert str(length) in str(error.value) and str(CONTEXT) in str(error.value)
    with pytest.raises(InvalidRequestError) as error:
        processor.prepare("r", [5] * 50, SamplingParams(max_tokens=CONTEXT + 1 - 50))
    assert error.value.code == "context_length_exceeded" and error.value.field == "max_tokens"
    for number in (50, 15, CONTEXT + 1, CONTEXT):
        assert str(number) in str(error.value)


def test_api_13_no_max_tokens_fills_the_context(tokenizer):
    assert inputs(tokenizer).prepare("r", [5] * 50, SamplingParams(max_tokens=None)).params.max_tokens == 14
    with pytest.raises(InvalidRequestError, match="64 tokens"):
        inputs(tokenizer).prepare("r", [5] * CONTEXT, SamplingParams(max_tokens=None))


def test_the_pool_is_a_limit_too(tokenizer):
    """48 slots hold a sequence of 49 tokens, whose last is not stored."""
    processor = inputs(tokenizer, pool_tokens=48)
    assert processor.prepare("r", [5] * 48, SamplingParams(max_tokens=1)).params.max_tokens == 1
    assert processor.prepare("r", [5] * 40, SamplingParams(max_tokens=None)).params.max_tokens == 9
    for length, max_tokens in ((49, 1), (48, 2), (10, 40), (49, None)):
        with pytest.raises(InvalidRequestError, match="KV pool holds 48 tokens") as error:
            processor.prepare("r", [5] * length, SamplingParams(max_tokens=max_tokens))
        assert error.value.code == "context_length_exceeded"


@pytest.mark.parametrize(
    "params",
    [{"logit_bias": {VOCAB: 1.0}}, {"logit_bias": {-1: 5.0}}, {"stop_token_ids": [VOCAB + 7]}, {"allowed_token_ids": [-1]}],
)
def test_api_17_18_parameters_outside_the_vocabulary(tokenizer, params):
    with pytest.raises(InvalidRequestError) as error:
        inputs(tokenizer).prepare("r", "a", SamplingParams(**params))
    assert error.value.field in params


@pytest.mark.parametrize(
    ("params", "possible"),
    [
        ({"allowed_token_ids": [0]}, True),
        ({"allowed_token_ids": [0], "min_tokens": 1}, False),  # 0 is the end of a sequence
        ({"allowed_token_ids": [0, 9], "min_tokens": 1}, True),
        ({"allowed_token_ids": [0, 9], "min_tokens": 1, "stop_token_ids": [9]}, False),
        ({"allowed_token_ids": [0, 9], "stop_token_ids": [9]}, True),
        ({"allowed_token_ids": [2, 0], "stop": ["<|im_end|>"], "min_tokens": 1}, False),
        ({"allowed_token_ids": [100], "bad_words": ["a"]}, False),
        ({"allowed_token_ids": [100], "bad_words": ["ab"]}, True),
        ({"stop_token_ids": list(range(VOCAB)), "min_tokens": 1}, False),
        ({"stop_token_ids": list(range(1, VOCAB - 1)), "min_tokens": 1}, True),
    ],
)
def test_some_token_must_be_possible(tokenizer, params, possible):
    """By the rules of SamplingParams; a request that forbids every token would fail in the sampler."""
    if possible:
        assert inputs(tokenizer).prepare("r", "a", SamplingParams(**params)).children
    else:
        with pytest.raises(InvalidRequestError, match="every token is forbidden"):
            inputs(tokenizer).prepare("r", "a", SamplingParams(**params))


@pytest.mark.parametrize("field", ["logprobs", "prompt_logprobs"])
def test_more_logprobs_than_the_server_allows(tokenizer, field):
    with pytest.raises(InvalidRequestError, match=f"{field} = 21: .*20"):
        inputs(tokenizer).prepare("r", "a", SamplingParams(**{field: 21}))


def test_stop_strings_need_text(tokenizer):
    with pytest.raises(InvalidRequestError, match="stop"):
        inputs(tokenizer).prepare("r", "a", SamplingParams(stop=["x"], detokenize=False))


def test_api_24_children_have_seeds_of_their_own(tokenizer):
    prepared = inputs(tokenizer).prepare("r", "a", SamplingParams(n=3, seed=2**63 - 2, prompt_logprobs=1))
    params = [child.sampling_params for child in prepared.children]
    assert [p.seed for p in params] == [2**63 - 2, 2**63 - 1, 0]
    assert [p.n for p in params] == [1, 1, 1] and [p.prompt_logprobs for p in params] == [1, None, None]
    assert len({child.request_id for child in prepared.children}) == 3


def test_api_34_ids_of_children_are_unique_though_the_callers_are_not(tokenizer):
    processor = inputs(tokenizer)
    ids = [processor.prepare("same", "a").children[0].request_id for _ in range(5)]
    assert len(set(ids)) == 5
    assert len({processor.prepare("", "a").request_id for _ in range(5)}) == 5


def test_seeds_are_drawn_and_repeatable(tokenizer):
    def draw(seed):
        processor = inputs(tokenizer, seed=seed)
        return [processor.prepare("r", "a").params.seed for _ in range(4)]

    assert draw(7) == draw(7) != draw(8) and draw(None) != draw(None)
    assert len(set(draw(7))) == 4


def test_a_stop_string_that_is_a_special_token_becomes_a_stop_token(tokenizer):
    prepared = inputs(tokenizer).prepare("r", "a", SamplingParams(stop=["<|im_end|>", "a"], stop_token_ids=[9]))
    assert prepared.special_stops == {2: "<|im_end|>"}
    assert prepared.children[0].sampling_params.stop_token_ids == [9, 2]
    assert prepared.children[0].sampling_params.stop == []


def test_bad_words_become_ids(tokenizer):
    params = inputs(tokenizer).prepare("r", "a", SamplingParams(bad_words=["ab"])).children[0].sampling_params
    assert params.bad_words == [] and [100, 101] in params.bad_words_token_ids


def test_numpy_prompts_are_told_apart_from_lists(tokenizer):
    with pytest.raises(InvalidRequestError):
        inputs(tokenizer).prepare("r", np.array([1, 2]))


def test_a_tokenizer_that_is_not_there_is_told_under_its_own_name():
    with pytest.raises(InvalidRequestError, match=r"^tokenizer = '/nowhere': there is no such file") as error:
        load_model_tokenizer(EngineArgs(tokenizer="/nowhere"))
    assert error.value.field == "tokenizer"


def test_a_conversation_is_rendered_and_tokenized(tokenizer):
    prompt = render_chat(tokenizer, [{"role": "user", "content": "hi"}])
    assert prompt["prompt"] == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert prompt["prompt_token_ids"][0] == 1 and tokenizer.decode(prompt["prompt_token_ids"], False) == prompt["prompt"]
    other = render_chat(tokenizer, [{"role": "user", "content": "hi"}], template="{{ messages[0].content }}{{ x }}", variables={"x": 1})
    assert other["prompt"] == "hi1"


@given(st.integers(1, 80), st.one_of(st.none(), st.integers(1, 80)), st.integers(1, 90))
def test_whatever_is_accepted_fits(tokenizer, length, max_tokens, pool):
    try:
        prepared = inputs(tokenizer, pool_tokens=pool).prepare("r", [5] * length, SamplingParams(max_tokens=max_tokens))
    except InvalidRequestError:
        whole = length + (max_tokens or 1)
        assert whole > CONTEXT or whole - 1 > pool
    else:
        whole = length + prepared.params.max_tokens
        assert whole <= CONTEXT and whole - 1 <= pool and (max_tokens is None or prepared.params.max_tokens == max_tokens)


def test_a_text_that_is_sure_to_be_too_long_is_refused_untokenized(tokenizer, monkeypatch):
    """No token of this vocabulary has more than the 13 bytes of <|endoftext|>, so 63 tokens hold at most 819."""
    processor = inputs(tokenizer)
    monkeypatch.setattr(tokenizer, "encode", lambda *_: pytest.fail("tokenized"))
    for text in ("a" * 820, {"prompt": "a" * 10**6}):
        with pytest.raises(InvalidRequestError, match="characters, which take more than 63 tokens") as error:
            processor.prepare("r", text)
        assert error.value.code == "context_length_exceeded" and error.value.field == "prompt"


def test_the_longest_text_that_fits(tokenizer):
    prepared = inputs(tokenizer).prepare("r", "<|endoftext|>" * 63, SamplingParams(max_tokens=1))
    assert prepared.prompt_token_ids == [0] * 63


def test_children_share_what_is_the_same(tokenizer):
    """A bias of every token is checked once, and held once, however many the children are."""
    prepared = inputs(tokenizer).prepare("r", "a", SamplingParams(n=128, logit_bias=dict.fromkeys(range(VOCAB), 1.0)))
    assert len({id(child.sampling_params.logit_bias) for child in prepared.children}) == 1
    assert len({id(child.sampling_params) for child in prepared.children}) == 128


@pytest.mark.parametrize("field", ["stop_token_ids", "allowed_token_ids"])
def test_api_18_lists_no_longer_than_the_vocabulary(tokenizer, field):
    prepared = inputs(tokenizer).prepare("r", "a", SamplingParams(**{field: list(range(VOCAB))}))
    assert len(getattr(prepared.children[0].sampling_params, field)) == VOCAB
    with pytest.raises(InvalidRequestError, match=f"{field} = 301 token ids: at most 300"):
        inputs(tokenizer).prepare("r", "a", SamplingParams(**{field: [5] * (VOCAB + 1)}))


def test_long_lists_for_many_completions(tokenizer):
    """200,000 of a vocabulary of 262,144 ids: ten children may carry them, eleven not (2,097,152 ids in all)."""
    processor = inputs(tokenizer, vocab_size=262_144)
    ids = list(range(200_000))
    assert len(processor.prepare("r", "a", SamplingParams(n=10, allowed_token_ids=ids)).children) == 10
    with pytest.raises(InvalidRequestError, match=r"n = 11: with 200000 token ids .* at most 10") as error:
        processor.prepare("r", "a", SamplingParams(n=11, allowed_token_ids=ids))
    assert error.value.field == "n"
