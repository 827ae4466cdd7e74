"""Ids to text, stop strings and log-probabilities, without an engine: outputs are made by hand."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.engine.info import EngineInfo
from octavo.engine.output_processor import OutputKind, OutputProcessor
from octavo.engine.processor import InputProcessor
from octavo.errors import InvalidRequestError
from octavo.outputs import CompletionOutput, EngineCoreOutput, EngineCoreOutputs, RequestOutput
from octavo.sampling_params import SamplingParams
from octavo.tokenizer.load import load_tokenizer
from octavo.tokenizer.tokenizer import Tokenizer
from support.scripted import Script, made_up_logprobs
from support.toy_tokenizer import byte_level, sentence_piece, write_model

TEXTS = ["ABC", "DEF", "G", "HI", "J", "a", "b", "ab", "ba"]
DOCUMENT, IDS = byte_level(TEXTS)
SPM_DOCUMENT, SPM_IDS = sentence_piece(["▁", "▁leading", "▁x", "."])


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    return load_tokenizer(write_model(tmp_path_factory.mktemp("bytes") / "model", Script(), DOCUMENT))


@pytest.fixture(scope="module")
def spm(tmp_path_factory) -> Tokenizer:
    return load_tokenizer(write_model(tmp_path_factory.mktemp("spm") / "model", Script(), SPM_DOCUMENT))


class Run:
    """One request through the two processors, step by step."""

    def __init__(self, tokenizer: Tokenizer, kind: str = "delta", prompt: str = "?", **params) -> None:
        info = EngineInfo(
            model="m", max_model_len=512, max_num_seqs=8, max_logprobs=20, vocab_size=tokenizer.vocab_size, eos_token_ids=[0],
            numerics_id="", block_size=16, num_blocks=[1], pool_tokens=10**6, pool_bytes=0,
        )  # fmt: skip
        prepared = InputProcessor(tokenizer, info).prepare("r", prompt, SamplingParams(**({"max_tokens": 100} | params)))
        self.processor = OutputProcessor(tokenizer)
        self.kind = OutputKind(kind)
        self.state = self.processor.add(prepared)
        self.children = [child.request_id for child in prepared.children]
        self.num_logprobs = prepared.params.logprobs
        self.seen: list[RequestOutput] = []
        self.aborted: list[str] = []

    def step(self, *token_ids: int, child: int = 0, **fields) -> RequestOutput | None:
        logprobs = None if self.num_logprobs is None else [made_up_logprobs(t, self.num_logprobs) for t in token_ids]
        output = EngineCoreOutput(self.children[child], list(token_ids), new_logprobs=logprobs, **fields)
        _, to_abort = self.processor.process(EngineCoreOutputs([output]))
        self.aborted += to_abort
        taken = self.state.take(self.kind)
        if taken is not None:
            self.seen.append(taken)
        return taken

    def deltas(self, index: int = 0) -> CompletionOutput:
        """All deltas of one completion, joined."""
        parts = [part for output in self.seen for part in output.outputs if part.index == index]
        return dataclasses.replace(
            parts[-1],
            text="".join(part.text for part in parts),
            token_ids=[token for part in parts for token in part.token_ids],
            logprobs=None if parts[-1].logprobs is None else [entry for part in parts for entry in part.logprobs],
        )


def ids(*texts: str) -> list[int]:
    return [IDS[text] for text in texts]


@pytest.mark.parametrize("per_step", [1, 2, 5])
def test_api_01_a_stop_string_across_tokens_never_shows(tokenizer, per_step):
    run = Run(tokenizer, stop=["DEFGHIJ"])
    tokens = ids("ABC", "DEF", "G", "HI", "J")
    for i in range(0, len(tokens), per_step):
        run.step(*tokens[i : i + per_step])
    whole = run.deltas()
    assert (whole.text, whole.finish_reason, whole.stop_reason) == ("ABC", "stop", "DEFGHIJ")
    assert all(set(part.text) <= set("ABC") for output in run.seen for part in output.outputs)
    assert run.aborted == run.children and run.seen[-1].finished


@pytest.mark.parametrize("kind", ["delta", "cumulative", "final"])
def test_api_02_ids_and_logprobs_are_cut_where_the_text_is(tokenizer, kind):
    run = Run(tokenizer, kind, stop=["DEFGHIJ"], logprobs=2)
    for token in ids("ABC", "DEF", "G", "HI", "J"):
        run.step(token)
    whole = run.deltas() if kind == "delta" else run.seen[-1].outputs[0]
    assert whole.text == "ABC" and whole.token_ids == ids("ABC")
    assert [next(iter(entry)) for entry in whole.logprobs] == ids("ABC")
    assert whole.cumulative_logprob == pytest.approx(-IDS["ABC"] / 100)


def test_api_02_a_stop_inside_a_token_keeps_the_token(tokenizer):
    run = Run(tokenizer, stop=["BCD"])
    run.step(*ids("ABC", "DEF"))
    assert run.deltas().text == "A" and run.deltas().token_ids == ids("ABC")


def test_a_stop_string_can_be_kept(tokenizer):
    run = Run(tokenizer, stop=["FG"], include_stop_str_in_output=True)
    for token in ids("ABC", "DEF", "G", "HI"):
        run.step(token)
    assert run.deltas().text == "ABCDEFG" and run.deltas().token_ids == ids("ABC", "DEF", "G")


@pytest.mark.parametrize("include", [False, True])
def test_api_04_a_special_token_as_a_stop_string(tokenizer, include):
    run = Run(tokenizer, stop=["<|im_end|>"], include_stop_str_in_output=include, skip_special_tokens=not include)
    run.step(*ids("ABC"))
    run.step(2, finish_reason="stop", stop_reason=2)
    whole = run.deltas()
    assert (whole.finish_reason, whole.stop_reason) == ("stop", "<|im_end|>")
    assert whole.text == ("ABC<|im_end|>" if include else "ABC")
    assert whole.token_ids == ([*ids("ABC"), 2] if include else ids("ABC"))


def test_api_05_only_a_possible_beginning_is_held_back(tokenizer):
    run = Run(tokenizer, stop=["zzz"])
    texts = [run.step(token).outputs[0].text for token in ids("ABC", "DEF", "G")]
    assert texts == ["ABC", "DEF", "G"]


def test_held_text_comes_when_it_is_no_stop_after_all(tokenizer):
    run = Run(tokenizer, stop=["DEFX"])
    assert run.step(*ids("ABC")).outputs[0].text == "ABC"
    assert run.step(*ids("DEF")) is None
    later = run.step(*ids("G")).outputs[0]
    assert later.text == "DEFG" and later.token_ids == ids("DEF", "G")


@pytest.mark.parametrize("text", ["ďábelské", "夢", "😊 ok", "👩‍👩‍👧"])
@pytest.mark.parametrize("per_step", [1, 2, 3])
def test_api_06_characters_split_over_tokens(tokenizer, text, per_step):
    run = Run(tokenizer)
    tokens = byte_ids_of(tokenizer, text)
    for i in range(0, len(tokens), per_step):
        run.step(*tokens[i : i + per_step])
    run.step(0, finish_reason="stop")
    assert run.deltas().text == text
    assert all("\ufffd" not in part.text for output in run.seen for part in output.outputs)


def byte_ids_of(tokenizer: Tokenizer, text: str) -> list[int]:
    by_byte = {tokenizer.token_bytes(i): i for i in range(tokenizer.vocab_size) if len(tokenizer.token_bytes(i)) == 1}
    return [by_byte[bytes([b])] for b in text.encode()]


@pytest.mark.parametrize("per_step", [1, 2, 3, 8])
def test_api_08_spaces_survive_piecewise_decoding(spm, per_step):
    tokens = [SPM_IDS[p] for p in ("▁", "▁leading", "▁x", "▁", "▁", ".")]
    run = Run(spm, prompt="<|im_start|>")
    for i in range(0, len(tokens), per_step):
        run.step(*tokens[i : i + per_step])
    run.step(0, finish_reason="stop")
    assert run.deltas().text == spm.decode(tokens)


@pytest.mark.parametrize("kind", ["delta", "cumulative", "final"])
def test_api_09_an_output_that_ends_inside_a_character(tokenizer, kind):
    """One U+FFFD at the end stands for the cut character, in every mode."""
    run = Run(tokenizer, kind)
    *most, last = byte_ids_of(tokenizer, "ok 😊")[:-1]
    for token in most:
        run.step(token)
    run.step(last, finish_reason="length")
    whole = run.deltas() if kind == "delta" else run.seen[-1].outputs[0]
    assert whole.text == "ok \ufffd" and whole.finish_reason == "length"


def test_a_stop_tokens_own_text_shows_only_if_asked(tokenizer):
    for include, text in ((False, "ABC"), (True, "ABCG")):
        run = Run(tokenizer, stop_token_ids=ids("G"), include_stop_str_in_output=include)
        run.step(*ids("ABC"))
        run.step(*ids("G"), finish_reason="stop", stop_reason=IDS["G"])
        whole = run.deltas()
        assert (whole.text, whole.token_ids, whole.stop_reason) == (text, ids("ABC", "G"), IDS["G"])


def test_api_30_a_stop_string_counts_after_min_tokens(tokenizer):
    run = Run(tokenizer, stop=["G"], min_tokens=3)
    for token in ids("G", "ABC", "G", "HI", "G", "J"):
        run.step(token)
    assert run.deltas().text == "GABCGHI" and len(run.deltas().token_ids) == 4


def test_min_tokens_hold_though_a_stop_straddles_them(tokenizer):
    """The stop may not begin inside the first min_tokens tokens, or fewer would remain."""
    run = Run(tokenizer, stop=["CDEF"], min_tokens=1)
    run.step(*ids("ABC", "DEF", "G"), finish_reason="length")
    assert run.deltas().text == "ABCDEFG"


def test_api_24_completions_finish_on_their_own(tokenizer):
    run = Run(tokenizer, "cumulative", n=3, seed=1)
    run.step(*ids("ABC"), child=2)
    run.step(*ids("DEF"), child=0, finish_reason="length")
    run.step(*ids("G"), child=1, finish_reason="stop")
    assert not run.seen[-1].finished
    run.step(*ids("HI"), child=2, finish_reason="length")
    last = run.seen[-1]
    assert last.finished and [o.index for o in last.outputs] == [0, 1, 2]
    assert [o.text for o in last.outputs] == ["DEF", "", "ABCHI"]
    assert [o.finish_reason for o in last.outputs] == ["length", "stop", "length"]


def test_deltas_name_only_what_is_new(tokenizer):
    run = Run(tokenizer, n=2)
    assert [o.index for o in run.step(*ids("ABC"), child=1).outputs] == [1]
    assert [o.index for o in run.step(*ids("ABC"), child=0, finish_reason="length").outputs] == [0]


def test_what_comes_after_the_end_is_dropped(tokenizer):
    run = Run(tokenizer, stop=["G"])
    run.step(*ids("ABC", "G", "HI"))
    assert run.step(*ids("J")) is None
    assert run.deltas().text == "ABC"


def test_abort_ends_with_what_is_there(tokenizer):
    run = Run(tokenizer, stop=["DEFX"])
    run.step(*ids("ABC", "DEF"))
    _, to_abort = run.processor.abort(["r", "unknown"])
    last = run.state.take(OutputKind.DELTA)
    assert to_abort == run.children and last.finished
    assert (last.outputs[0].text, last.outputs[0].finish_reason) == ("DEF", "abort")


def test_a_failed_completion_says_why(tokenizer):
    run = Run(tokenizer)
    run.step(finish_reason="error", error="it broke")
    assert run.state.error == "it broke" and run.state.finished and run.seen[-1].outputs[0].finish_reason is None


def test_api_34_one_id_twice_at_once_is_refused(tokenizer):
    run = Run(tokenizer)
    with pytest.raises(InvalidRequestError, match="request_id = r"):
        run.processor.add(run.state.prepared)
    run.processor.remove(run.state)
    run.processor.add(run.state.prepared)


def test_without_detokenize_there_are_only_ids(tokenizer):
    run = Run(tokenizer, detokenize=False)
    run.step(*ids("ABC", "G"), finish_reason="length")
    assert run.deltas().text == "" and run.deltas().token_ids == ids("ABC", "G")


def test_logprobs_carry_rank_and_text(tokenizer):
    run = Run(tokenizer, logprobs=2)
    run.step(*ids("G"), finish_reason="length")
    (entry,) = run.deltas().logprobs
    g = IDS["G"]
    assert list(entry) == [g, g + 1]
    assert (entry[g].logprob, entry[g].rank, entry[g].decoded_token) == (-g / 100, 1, "G")
    assert (entry[g + 1].rank, entry[g + 1].decoded_token) == (2, tokenizer.token_text(g + 1))


def test_prompt_logprobs_leave_out_the_first_token(tokenizer):
    run = Run(tokenizer, prompt="ABC", prompt_logprobs=0)
    b, c = run.state.prepared.prompt_token_ids[1:]
    run.step(new_prompt_logprobs=[made_up_logprobs(b, 0)])
    run.step(*ids("G"), new_prompt_logprobs=[made_up_logprobs(c, 0)], finish_reason="length")
    first, *others = run.seen[-1].prompt_logprobs
    assert first is None and [next(iter(entry)) for entry in others] == [b, c]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from(["a", "b", "ab", "ba", "G"]), min_size=1, max_size=12),
    st.lists(st.text("abG", min_size=1, max_size=4), max_size=2),
    st.booleans(),
    st.integers(0, 4),
    st.data(),
)
def test_any_chunking_gives_the_same_completion(tokenizer, texts, stops, include, min_tokens, data):
    """Streamed in pieces of any size, the deltas joined are the whole, and the whole does not depend on the pieces."""
    params = {"stop": stops, "include_stop_str_in_output": include, "min_tokens": min_tokens, "logprobs": 0}
    tokens = ids(*texts)
    whole = Run(tokenizer, "final", **params)
    whole.step(*tokens, finish_reason="length")
    pieces = Run(tokenizer, "delta", **params)
    at = 0
    while at < len(tokens) and not pieces.state.finished:
        size = data.draw(st.integers(1, 3))
        done = at + size >= len(tokens)
        pieces.step(*tokens[at : at + size], finish_reason="length" if done else None)
        at += size
    final, joined = whole.seen[-1].outputs[0], pieces.deltas()
    assert dataclasses.asdict(joined) == dataclasses.asdict(final)
    if final.finish_reason == "length":
        assert final.text == "".join(texts) and final.token_ids == tokens
    else:
        assert len(final.token_ids) >= min_tokens
        assert "".join(texts).startswith(final.text)
        covered = "".join(texts[: len(final.token_ids)])
        assert covered.startswith(final.text)  # the tokens bring at least the text
