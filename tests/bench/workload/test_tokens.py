"""Where a benchmark's tokenizer comes from, and which ids are safe when there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo.bench.workload.tokens import SAFE_IDS, Tokens, find_tokens
from octavo.errors import InvalidRequestError, OctavoError
from octavo.tokenizer.load import load_tokenizer
from support.toy_tokenizer import SPECIALS, byte_level, write_tokenizer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    write_tokenizer(tmp_path / "model", byte_level([" word", " Two", "x1", " 12", b"\xe5\xa4"])[0])
    return tmp_path / "model"


def test_a_tokenizer_by_folder_file_or_model(folder: Path) -> None:
    by_folder = find_tokens(str(folder))
    assert by_folder.tokenizer.encode("hi") == find_tokens(str(folder / "tokenizer.json")).tokenizer.encode("hi")
    assert by_folder.tokenizer.encode("hi") == find_tokens(None, str(folder)).tokenizer.encode("hi")
    assert by_folder.ordinary.tolist() == list(range(len(SPECIALS), by_folder.tokenizer.vocab_size))


def test_an_alias_and_a_gguf_file(smollm2_path: Path) -> None:
    vocab_size = load_tokenizer(smollm2_path).vocab_size
    for tokens in (find_tokens("smollm2"), find_tokens(str(smollm2_path)), find_tokens(None, "smollm2")):
        assert tokens.tokenizer.vocab_size == vocab_size


def test_words_are_a_space_and_letters(folder: Path) -> None:
    tokens = find_tokens(str(folder))
    assert [tokens.tokenizer.token_text(int(i)) for i in tokens.words] == [" word", " Two"]


def test_an_unknown_servers_model_gives_safe_ids_and_no_text(smollm2_path: Path, gemma3_path: Path) -> None:
    for model in (None, "org/model-of-a-server"):
        tokens = find_tokens(None, model)
        assert tokens.ordinary.tolist() == list(SAFE_IDS)
        with pytest.raises(InvalidRequestError, match=r"tokenizer is not given: .* name its folder"):
            _ = tokens.tokenizer
    for path in (smollm2_path, gemma3_path):
        known = Tokens.of(load_tokenizer(path))
        assert set(SAFE_IDS) <= set(known.ordinary.tolist()), "ordinary tokens of vocabularies that are here"


def test_a_tokenizer_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(OctavoError, match="tokenizer") as error:
        find_tokens(str(tmp_path / "none"))
    assert str(tmp_path / "none") in str(error.value)
