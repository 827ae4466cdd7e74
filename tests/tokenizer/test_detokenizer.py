"""Ids to text, whole and in pieces."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octavo.tokenizer.detokenizer import IncrementalDetokenizer
from octavo.tokenizer.gguf_vocab import tokenizer_from_metadata
from octavo.tokenizer.load import load_tokenizer
from octavo.tokenizer.tokenizer import Tokenizer

FRAGMENTS = ["Hello", " world", "  ", "é", "ď", "日本語", "😊", "👨\u200d👩", "\n", "<|im_end|>", "<|im_start|>", "</s>", ".", "\U00013cc2"]
relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)


def stream(detokenizer: IncrementalDetokenizer, ids: list[int], cuts: list[int]) -> str:
    """Append ``ids`` in chunks that end at ``cuts``, and flush."""
    bounds = [0, *sorted(cut % (len(ids) + 1) for cut in cuts), len(ids)]
    deltas = [detokenizer.append(ids[start:end]) for start, end in pairwise(bounds)]
    return "".join(deltas) + detokenizer.flush()


def one_by_one(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    detokenizer = IncrementalDetokenizer(tokenizer)
    return [*(detokenizer.append([token_id]) for token_id in ids), detokenizer.flush()]


def byte_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    """A text as one token a byte, after a plain letter."""
    of_byte = {piece[0]: i for i in range(tokenizer.vocab_size) if len(piece := tokenizer.token_bytes(i)) == 1}
    return [of_byte[byte] for byte in b"a" + text.encode()]


@relaxed
@given(data=st.data())
def test_api_06_deltas_join_to_the_whole_for_any_ids(tokenizer: Tokenizer, data: st.DataObject) -> None:
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size + 3), max_size=25))
    cuts = data.draw(st.lists(st.integers(0, 25), max_size=8))
    skip, spaces = data.draw(st.booleans()), data.draw(st.booleans())
    detokenizer = IncrementalDetokenizer(tokenizer, skip, spaces)
    assert stream(detokenizer, ids, cuts) == tokenizer.decode(ids, skip, spaces)


@relaxed
@given(data=st.data())
def test_api_06_deltas_join_to_the_whole_for_texts(tokenizer: Tokenizer, data: st.DataObject) -> None:
    text = "".join(data.draw(st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=3), max_size=12)))
    ids = tokenizer.encode(text)
    skip = data.draw(st.booleans())
    deltas = stream(IncrementalDetokenizer(tokenizer, skip), ids, data.draw(st.lists(st.integers(0, 60), max_size=60)))
    assert deltas == tokenizer.decode(ids, skip)
    assert "\ufffd" not in deltas or "\ufffd" in text or tokenizer.token_to_id("<unk>") in ids


@relaxed
@given(data=st.data())
def test_deltas_after_a_prompt_join_to_the_continuation(tokenizer: Tokenizer, data: st.DataObject) -> None:
    """A primed stream is what the whole text has more than the prompt's, wherever the ids are cut in two."""
    text = "x " + "".join(data.draw(st.lists(st.sampled_from(FRAGMENTS), max_size=12)))
    ids = tokenizer.encode(text)
    cut = data.draw(st.integers(len(tokenizer.encode("x")), len(ids)))
    detokenizer = IncrementalDetokenizer(tokenizer)
    detokenizer.prime(ids[:cut])
    whole_characters = tokenizer.decode(ids[:cut]).rstrip("\ufffd")
    assert whole_characters + stream(detokenizer, ids[cut:], [1, 2, 3]) == tokenizer.decode(ids)


@pytest.mark.parametrize("text", ["😊", "ďábelské", "夢", "👨\u200d👩"])
@pytest.mark.parametrize("chunk", [1, 2])
def test_api_06_characters_split_over_tokens(text: str, chunk: int, vocabularies: dict[str, Tokenizer]) -> None:
    for name in ("byte_level", "gguf_bpe", "llama2", "tiny_spm_plain"):
        tokenizer = vocabularies[name]
        ids = byte_ids(tokenizer, text)
        assert tokenizer.decode(ids) == "a" + text
        detokenizer = IncrementalDetokenizer(tokenizer)
        deltas = [detokenizer.append(ids[i : i + chunk]) for i in range(0, len(ids), chunk)]
        assert "".join(deltas) == "a" + text
        assert "\ufffd" not in "".join(deltas) and detokenizer.flush() == ""


def test_api_06_byte_fallback_tokens_make_a_character(vocabularies: dict[str, Tokenizer]) -> None:
    for name in ("llama2", "gemma", "metaspace", "tiny_spm_plain"):
        tokenizer = vocabularies[name]
        ids = [tokenizer.token_to_id(token) for token in ("<0xE5>", "<0xA4>", "<0xA2>")]
        assert one_by_one(tokenizer, [i for i in ids if i is not None]) == ["", "", "夢", ""]


def test_api_08_leading_spaces_streamed_and_whole(answers: Callable[[str], dict[str, Any]]) -> None:
    """The ids "▁", "▁leading", "▁x", " " and "." of a vocabulary that puts a space before a text, and of one that does not."""
    tokens = ["<unk>", "<s>", "</s>", "▁", "▁leading", "▁x", ".", "▁▁"]
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [2, 3, 3, 1, 1, 1, 1, 1],
        "tokenizer.ggml.scores": [0.0] * len(tokens),
    }
    ids = [3, 4, 5, 7, 6]
    for prefix, text in ((True, " leading x  ."), (False, "  leading x  .")):
        tokenizer = tokenizer_from_metadata(metadata | {"tokenizer.ggml.add_space_prefix": prefix}, "")
        assert tokenizer.decode(ids) == text
        assert "".join(one_by_one(tokenizer, ids)) == text
        detokenizer = IncrementalDetokenizer(tokenizer)
        assert detokenizer.append(ids) + detokenizer.flush() == text
        assert tokenizer.decode(ids, continuation=True) == "  leading x  ."


def test_api_08_space_after_the_prompt_is_kept(vocabularies: dict[str, Tokenizer]) -> None:
    """The token "▁the" begins a text without its space, and goes on from a prompt with it."""
    for name in ("llama2", "metaspace", "tiny_spm_prefix"):
        tokenizer = vocabularies[name]
        ids = tokenizer.encode("the fox", add_special_tokens=False)
        assert tokenizer.decode(ids) == "the fox"
        for prompt, expected in ((tokenizer.encode("x"), " the fox"), ([1], "the fox"), ([], "the fox")):
            detokenizer = IncrementalDetokenizer(tokenizer)
            detokenizer.prime(prompt)
            assert detokenizer.append(ids) == expected, (name, prompt)


def test_a_prompt_cut_inside_a_character_is_completed(vocabularies: dict[str, Tokenizer]) -> None:
    for name in ("byte_level", "gguf_bpe", "llama2", "tiny_spm_plain"):
        tokenizer = vocabularies[name]
        ids = byte_ids(tokenizer, "😊!")
        detokenizer = IncrementalDetokenizer(tokenizer)
        detokenizer.prime(ids[:3])
        assert detokenizer.append(ids[3:]) == "😊!"


@pytest.mark.parametrize("kept", [1, 2, 3])
def test_api_09_a_cut_character_is_one_replacement_at_the_end(kept: int, vocabularies: dict[str, Tokenizer]) -> None:
    for name in ("byte_level", "gguf_bpe", "llama2", "tiny_spm_plain"):
        tokenizer = vocabularies[name]
        ids = byte_ids(tokenizer, "😊")[: 1 + kept]
        assert tokenizer.decode(ids) == "a\ufffd"
        assert one_by_one(tokenizer, ids) == ["a", *[""] * kept, "\ufffd"]


def test_special_tokens_shown_and_hidden(tokenizer: Tokenizer) -> None:
    end = tokenizer.token_to_id("<|im_end|>") or 2
    text = tokenizer.id_to_token(end)
    ids = [*tokenizer.encode("x", add_special_tokens=False), end, *tokenizer.encode("x", add_special_tokens=False), end, end]
    bare = tokenizer.decode(ids)
    assert "<" not in bare and bare.replace(" ", "") == "xx"
    assert tokenizer.decode(ids, skip_special_tokens=False).replace(" ", "") == f"x{text}x{text}{text}"


def test_spaces_between_special_tokens() -> None:
    """Without them, a special token right after another loses the space that its own text begins with."""
    tokens = ["<unk>", "<s>", "</s>", " <a>", "▁x"]
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [2, 3, 3, 3, 1],
        "tokenizer.ggml.add_space_prefix": False,
    }
    tokenizer = tokenizer_from_metadata(metadata, "")
    assert tokenizer.decode([3, 3, 4, 3], skip_special_tokens=False) == " <a> <a> x <a>"
    assert tokenizer.decode([3, 3, 4, 3], skip_special_tokens=False, spaces_between_special_tokens=False) == " <a><a> x <a>"


def test_token_text_and_bytes(vocabularies: dict[str, Tokenizer]) -> None:
    tokenizer = vocabularies["tiny_spm_prefix"]
    space_the, first_byte = tokenizer.token_to_id("▁the"), tokenizer.token_to_id("<0xE5>")
    assert space_the is not None and first_byte is not None
    assert (tokenizer.token_text(space_the), tokenizer.token_bytes(space_the)) == (" the", b" the")
    assert (tokenizer.token_text(first_byte), tokenizer.token_bytes(first_byte)) == ("\ufffd", b"\xe5")


def test_bytes_of_tokens_join_to_the_text(tokenizer: Tokenizer, corpus: list[str]) -> None:
    for text in corpus:
        ids = tokenizer.encode(text)
        joined = b"".join(tokenizer.token_bytes(i) for i in ids if i not in tokenizer.special_ids)
        assert joined.decode("utf-8", "replace") == tokenizer.decode(ids, continuation=True)


def test_a_step_costs_the_same_late_as_early(vocabularies: dict[str, Tokenizer]) -> None:
    """Each append looks at its own ids only, however many came before."""
    tokenizer = vocabularies["gguf_bpe"]
    looked_up: list[int] = []
    detokenizer = IncrementalDetokenizer(Counting(tokenizer, looked_up))  # type: ignore[arg-type]
    ids = tokenizer.encode("a b c " * 200)
    for token_id in ids:
        detokenizer.append([token_id])
    assert looked_up == ids


class Counting:
    """A tokenizer that notes which ids it is asked about."""

    def __init__(self, tokenizer: Tokenizer, looked_up: list[int]) -> None:
        self._tokenizer, self._looked_up = tokenizer, looked_up

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def token_bytes(self, token_id: int) -> bytes:
        self._looked_up.append(token_id)
        return self._tokenizer.token_bytes(token_id)


@pytest.mark.parametrize("fixture", ["smollm2_path", "gemma3_path"])
def test_gg_02_real_models_return_the_text(fixture: str, request: pytest.FixtureRequest, corpus: list[str]) -> None:
    path: Path = request.getfixturevalue(fixture)
    tokenizer = load_tokenizer(path)
    for text in corpus:
        ids = tokenizer.encode(text)
        shown = text if "▁" not in text or fixture == "smollm2_path" else text.replace("▁", " ")
        assert tokenizer.decode(ids, skip_special_tokens=False) == tokenizer.bos_token * tokenizer.add_bos + shown
        assert "".join(one_by_one(tokenizer, ids)) == tokenizer.decode(ids)
