"""GGUF vocabularies: ids are llama.cpp's (fixtures; make_fixtures.py says how they are made)."""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import regex

from octavo.errors import ModelFileError
from octavo.tokenizer.gguf_vocab import tokenizer_from_metadata
from octavo.tokenizer.load import load_tokenizer
from octavo.tokenizer.pretokenizers import PRE_TOKENIZERS
from octavo.tokenizer.tokenizer import Tokenizer

Answers = Callable[[str], dict[str, Any]]
ASKED = [
    "default", "gpt-2", "smollm", "llama-bpe", "dbrx", "glm4", "qwen2", "qwen35", "tekken", "gpt-4o", "deepseek-llm", "deepseek-coder",
    "deepseek-v3", "falcon", "bloom", "viking",
]  # fmt: skip
"""One of each family of pre-tokenizers."""
APPROXIMATED = ("tekken", "gpt-4o")
"""Pre-tokenizers whose letter case and combining marks llama.cpp's expressions only approximate."""


@pytest.fixture(scope="module")
def real(smollm2_path: Path, gemma3_path: Path) -> dict[str, Tokenizer]:
    return {"smollm2": load_tokenizer(smollm2_path), "gemma3": load_tokenizer(gemma3_path)}


@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_gg_02_ids_of_real_models_are_llama_cpps(name: str, real: dict[str, Tokenizer], answers: Answers) -> None:
    for text, ids in answers(name)["cases"]:
        assert real[name].encode(text) == ids, text


@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_bytes_of_real_models_are_llama_cpps(name: str, real: dict[str, Tokenizer], answers: Answers) -> None:
    pieces = answers(name)["pieces"]
    assert {token_id: real[name].token_bytes(int(token_id)).hex() for token_id in pieces} == pieces


def test_facts_of_smollm2(real: dict[str, Tokenizer]) -> None:
    """Ends of generation are those that llama.cpp prints when it loads the file."""
    tokenizer = real["smollm2"]
    assert (tokenizer.vocab_size, tokenizer.bos_token, tokenizer.eos_token) == (49152, "<|im_start|>", "<|im_end|>")
    assert tokenizer.eos_token_ids == (2, 0, 4)
    assert not tokenizer.add_bos
    assert tokenizer.special_ids == frozenset(range(17))
    assert tokenizer.chat_template is not None
    assert tokenizer.encode("") == []


def test_facts_of_gemma3(real: dict[str, Tokenizer]) -> None:
    """llama.cpp prints </s> (212) among the ends too: here that is HTML, a user-defined token, and ends nothing."""
    tokenizer = real["gemma3"]
    assert (tokenizer.vocab_size, tokenizer.bos_token, tokenizer.eos_token) == (262144, "<bos>", "<eos>")
    assert tokenizer.eos_token_ids == (1, 106)
    assert tokenizer.add_bos
    assert tokenizer.chat_template is None
    assert tokenizer.encode("") == [2]
    assert tokenizer.decode(tokenizer.encode("<s>x</s>")) == "<s>x</s>"


@pytest.mark.parametrize("marker", ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<start_of_turn>", "<end_of_turn>", "<bos>"])
def test_gg_01_chat_markers_are_one_id_each(marker: str, real: dict[str, Tokenizer]) -> None:
    tokenizer = real["smollm2" if marker.startswith("<|") else "gemma3"]
    assert tokenizer.encode(f"a{marker}b", add_special_tokens=False)[1:-1] == [tokenizer.token_to_id(marker)]


@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_gg_01_every_special_token_is_one_id_wherever_it_stands(name: str, real: dict[str, Tokenizer]) -> None:
    tokenizer = real[name]
    for token_id in sorted(tokenizer.special_ids)[:200]:
        text = tokenizer.id_to_token(token_id)
        assert tokenizer.encode(f"{text}{text}x{text}", add_special_tokens=False).count(token_id) == 3, text


def test_gg_01_markers_beyond_ascii_are_one_id_each(answers: Answers) -> None:
    """DeepSeek's, with their full-width bars and the space of SentencePiece; as control tokens and as user-defined ones."""
    metadata = answers("tiny_bpe")["metadata"] | {"tokenizer.ggml.pre": "deepseek-v3"}
    markers = ["<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>"]
    tokens = [*metadata["tokenizer.ggml.tokens"], *markers]
    for kind in (3, 4):
        types = [*metadata["tokenizer.ggml.token_type"], *[kind] * len(markers)]
        tokenizer = tokenizer_from_metadata(metadata | {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types}, "")
        first = len(tokens) - len(markers)
        ids = tokenizer.encode("<｜User｜>Hi<｜Assistant｜><｜end▁of▁sentence｜>", add_special_tokens=False)
        assert [i for i in ids if i >= first] == [first, first + 1, first + 2]
        assert ids[1:-2] == tokenizer.encode("Hi", add_special_tokens=False)


def test_loading_is_quick(smollm2_path: Path, gemma3_path: Path) -> None:
    """Budgets of 0.25 s and 0.8 s on a quiet machine, of which each takes less than half; here twice the budget, as it may be busy."""
    for path, budget in ((smollm2_path, 0.25), (gemma3_path, 0.8)):
        seconds = []
        for _ in range(3):
            start = time.perf_counter()
            load_tokenizer(path)
            seconds.append(time.perf_counter() - start)
        assert min(seconds) < 2 * budget


def _by_pre(answers: Answers, pre: str) -> tuple[Tokenizer, list[tuple[str, list[int]]]]:
    fixture = answers("tiny_bpe")
    tokenizer = tokenizer_from_metadata(fixture["metadata"] | {"tokenizer.ggml.pre": pre}, "tiny_bpe")
    return tokenizer, [(text, ids) for name, text, ids in fixture["cases"] if name == pre]


def _within_approximation(text: str) -> bool:
    """Whether letter case beyond ASCII and combining marks play no part."""
    return all(ord(c) < 128 or unicodedata.category(c) not in ("Lu", "Ll", "Lt", "Lm", "Mn", "Mc", "Me") for c in text)


@pytest.mark.parametrize("pre", ASKED)
def test_gg_02_pre_tokenizers_cut_as_llama_cpp(pre: str, answers: Answers) -> None:
    tokenizer, cases = _by_pre(answers, pre)
    assert len(cases) > 80
    for text, ids in cases:
        if pre not in APPROXIMATED or _within_approximation(text):
            assert tokenizer.encode(text) == ids, text


HEAD, UPPER, LOWER = r"[^\r\n\p{L}\p{N}]?", r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
ENDING = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?"
MODELS_OWN = {
    "tekken": rf"{HEAD}{UPPER}*{LOWER}+|{HEAD}{UPPER}+{LOWER}*|\p{{N}}|{TAIL}",
    "gpt-4o": rf"{HEAD}{UPPER}*{LOWER}+{ENDING}|{HEAD}{UPPER}+{LOWER}*{ENDING}|\p{{N}}{{1,3}}|{TAIL}",
}


@pytest.mark.parametrize("pre", APPROXIMATED)
def test_pre_tokenizers_that_llama_cpp_approximates_cut_as_the_models_own(pre: str, answers: Answers) -> None:
    """The words are found by another engine, the `regex` package, and each tokenized alone."""
    tokenizer, cases = _by_pre(answers, pre)
    for text, _ in cases:
        if "<" not in text and "\ue000" not in text:
            words = regex.findall(MODELS_OWN[pre], text)
            assert "".join(words) == text
            separate = [token for word in words for token in tokenizer.encode(word, add_special_tokens=False)]
            assert tokenizer.encode(text, add_special_tokens=False) == separate, text


def test_unknown_pre_tokenizer_is_named(answers: Answers) -> None:
    metadata = answers("tiny_bpe")["metadata"] | {"tokenizer.ggml.pre": "brand-new"}
    with pytest.raises(ModelFileError, match=r"file\.gguf: tokenizer\.ggml\.pre: .*'brand-new'.*llama-bpe"):
        tokenizer_from_metadata(metadata, "file.gguf")


def test_missing_pre_tokenizer_is_the_default(answers: Answers) -> None:
    metadata = answers("tiny_bpe")["metadata"]
    default = tokenizer_from_metadata(metadata | {"tokenizer.ggml.pre": "default"}, "")
    assert tokenizer_from_metadata(metadata, "").encode("a 123 b!!") == default.encode("a 123 b!!")


@pytest.mark.parametrize("pre", sorted(PRE_TOKENIZERS))
def test_every_pre_tokenizer_works(pre: str, answers: Answers) -> None:
    tokenizer, _ = _by_pre(answers, pre)
    text = "It's 2024: naïve façade, 日本語\r\n\tx == y + 1;  "
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("name", ["tiny_spm_prefix", "tiny_spm_plain"])
def test_sentencepiece_ids_and_bytes_are_llama_cpps(name: str, answers: Answers) -> None:
    fixture = answers(name)
    tokenizer = tokenizer_from_metadata(fixture["metadata"], name)
    for text, ids in fixture["cases"]:
        assert tokenizer.encode(text) == ids, text
    assert {i: tokenizer.token_bytes(int(i)).hex() for i in fixture["pieces"]} == fixture["pieces"]


def test_gg_01_flags_of_the_file(answers: Answers) -> None:
    metadata = answers("tiny_spm_plain")["metadata"]
    text = tokenizer_from_metadata(metadata, "").encode("a", add_special_tokens=False)
    for bos in (True, False):
        for eos in (True, False):
            flags = {"tokenizer.ggml.add_bos_token": bos, "tokenizer.ggml.add_eos_token": eos}
            tokenizer = tokenizer_from_metadata(metadata | flags, "")
            assert tokenizer.add_bos == bos
            assert tokenizer.encode("a") == [1] * bos + text + [2] * eos
            assert tokenizer.encode("a", add_special_tokens=False) == text


def test_bos_where_the_file_does_not_say(answers: Answers) -> None:
    """As llama.cpp: "llama" vocabularies and Llama 3's begin with BOS, other byte-level ones do not."""
    assert tokenizer_from_metadata(answers("tiny_spm_plain")["metadata"], "").add_bos
    assert _by_pre(answers, "llama-bpe")[0].add_bos
    assert not _by_pre(answers, "qwen2")[0].add_bos


def test_ends_of_generation(answers: Answers) -> None:
    """The file's eos first; then its eot and the tokens known by their text, of whatever type; not </s> where it is plain."""
    metadata = dict(answers("tiny_bpe")["metadata"])
    size = len(metadata["tokenizer.ggml.tokens"])
    extra = ["</s>", "<|eot_id|>", "<end_of_turn>", "<turn over>", "<file_sep>"]
    metadata["tokenizer.ggml.tokens"] = metadata["tokenizer.ggml.tokens"] + extra
    metadata["tokenizer.ggml.token_type"] = metadata["tokenizer.ggml.token_type"] + [4, 1, 4, 3, 3]
    metadata |= {"tokenizer.ggml.eot_token_id": size + 3, "tokenizer.ggml.pre": "gpt-2"}
    tokenizer = tokenizer_from_metadata(metadata, "")
    assert tokenizer.eos_token_ids == (metadata["tokenizer.ggml.eos_token_id"], size + 1, size + 2, size + 3)
    assert tokenizer.encode("<|eot_id|>") == [size + 1]
    assert size + 1 in tokenizer.special_ids and size not in tokenizer.special_ids


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokenizer.ggml.model": "bert"}, r"tokenizer\.ggml\.model: 'bert' is not supported"),
        ({"tokenizer.ggml.model": None}, r"tokenizer\.ggml\.model: None"),
        ({"tokenizer.ggml.tokens": None}, r"tokenizer\.ggml\.tokens: it is missing"),
        ({"tokenizer.ggml.tokens": [1, 2]}, r"tokenizer\.ggml\.tokens: it is not an array"),
        ({"tokenizer.ggml.tokens": ["a", "b", "a"]}, r"'a' occurs twice"),
        ({"tokenizer.ggml.token_type": [1, 1]}, r"token_type: it has 2 items for 904 tokens"),
        ({"tokenizer.ggml.merges": None}, r"merges: it is missing"),
        ({"tokenizer.ggml.merges": ["zq zq"]}, r"merges: .*zq"),
    ],
)
def test_malformed_metadata_is_named(change: dict[str, Any], message: str, answers: Answers) -> None:
    metadata = answers("tiny_bpe")["metadata"] | change
    if change.get("tokenizer.ggml.tokens"):
        metadata.pop("tokenizer.ggml.token_type")
    with pytest.raises(ModelFileError, match=message):
        tokenizer_from_metadata(metadata, "file.gguf")
