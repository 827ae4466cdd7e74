"""Hugging Face folders: ids, text and special tokens are transformers'."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from octavo.errors import InvalidRequestError, ModelFileError
from octavo.tokenizer.load import load_tokenizer
from octavo.tokenizer.tokenizer import Tokenizer

Pair = tuple[Tokenizer, Any]


@pytest.fixture(scope="module")
def pairs(folders: dict[str, Path]) -> dict[str, Pair]:
    """Octavo's tokenizer and transformers', by kind."""
    return {kind: (load_tokenizer(folder), AutoTokenizer.from_pretrained(folder)) for kind, folder in folders.items()}


@pytest.fixture(params=["byte_level", "llama2", "gemma", "metaspace"])
def pair(request: pytest.FixtureRequest, pairs: dict[str, Pair]) -> Pair:
    return pairs[request.param]


def test_gg_02_ids_are_transformers_on_the_corpus(pair: Pair, corpus: list[str]) -> None:
    ours, theirs = pair
    for text in [*corpus, "<s>x</s>", "a<tool>b [spaced out] c", "  <|im_end|>  "]:
        for special in (True, False):
            assert ours.encode(text, special) == theirs.encode(text, add_special_tokens=special), text


def test_text_is_transformers_on_the_corpus(pair: Pair, corpus: list[str]) -> None:
    ours, theirs = pair
    for text in corpus:
        ids = theirs.encode(text)
        for skip in (True, False):
            assert ours.decode(ids, skip) == theirs.decode(ids, skip_special_tokens=skip), text


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(text=st.text(max_size=40))
def test_ids_and_text_are_transformers_on_any_text(pair: Pair, text: str) -> None:
    ours, theirs = pair
    ids = theirs.encode(text)
    assert ours.encode(text) == ids
    assert ours.decode(ids, False) == theirs.decode(ids)


@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_broken_bytes_of_a_byte_level_vocabulary_are_transformers(pairs: dict[str, Pair], data: st.DataObject) -> None:
    ours, theirs = pairs["byte_level"]
    ids = data.draw(st.lists(st.integers(0, ours.vocab_size - 1), max_size=20))
    assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)


def test_gg_01_special_tokens_are_one_id_each(pair: Pair) -> None:
    ours, _ = pair
    for text in ("<s>", "</s>", "<|im_start|>", "<|im_end|>", "<tool>", "[spaced out]"):
        assert ours.encode(text, add_special_tokens=False) == [ours.token_to_id(text)]


def test_facts_of_the_folder(pair: Pair) -> None:
    ours, theirs = pair
    assert ours.vocab_size == len(theirs)
    assert (ours.bos_token, ours.bos_token_id, ours.add_bos) == ("<s>", 1, True)
    assert (ours.eos_token, ours.eos_token_ids) == ("</s>", (2, 4))
    assert ours.special_ids == frozenset(range(5))
    assert ours.id_to_token(ours.vocab_size) is None
    assert ours.token_bytes(ours.vocab_size) == ours.token_bytes(-1) == b""
    assert ours.chat_template is None


def test_special_tokens_of_the_configuration_are_added(folders: dict[str, Path], tmp_path: Path) -> None:
    """additional_special_tokens and added_tokens_decoder name tokens that tokenizer.json lacks; the ids are transformers'."""
    folder = tmp_path / "model"
    shutil.copytree(folders["byte_level"], folder)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text()) | {"pad_token": "<pad>", "additional_special_tokens": ["<|extra|>"]}
    path.write_text(json.dumps(config))
    ours, theirs = load_tokenizer(folder), AutoTokenizer.from_pretrained(folder)
    for text in ("<pad>", "<|extra|>", "x<pad>y"):
        assert ours.encode(text) == theirs.encode(text)
    assert {theirs.convert_tokens_to_ids("<pad>"), theirs.convert_tokens_to_ids("<|extra|>")} <= ours.special_ids


def test_bos_that_the_post_processor_does_not_add(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(folders["gemma"], folder)
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"post_processor": None}))
    tokenizer = load_tokenizer(folder)
    assert not tokenizer.add_bos
    assert tokenizer.encode("a") == tokenizer.encode("a", add_special_tokens=False)


def test_truncation_and_padding_of_the_file_are_off(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(folders["gemma"], folder)
    path = folder / "tokenizer.json"
    limit = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"truncation": limit}))
    assert len(load_tokenizer(folder).encode("one two three four five six seven")) > 4


@pytest.mark.parametrize(
    ("files", "template"),
    [
        ({"tokenizer_config.json": {"chat_template": "A"}}, "A"),
        ({"tokenizer_config.json": {"chat_template": [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]}}, "D"),
        ({"tokenizer_config.json": {"chat_template": "A"}, "chat_template.jinja": "J"}, "J"),
        ({"chat_template.json": {"chat_template": "C"}}, "C"),
    ],
)
def test_where_chat_templates_lie(files: dict[str, Any], template: str, folders: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(folders["gemma"], folder)
    for name, content in files.items():
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    assert load_tokenizer(folder).chat_template == template


def test_eos_of_config_json_where_generation_config_has_none(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(folders["gemma"], folder)
    (folder / "generation_config.json").unlink()
    (folder / "config.json").write_text(json.dumps({"eos_token_id": 3}))
    assert load_tokenizer(folder).eos_token_ids == (2, 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "tokenizer.json").unlink(), "no tokenizer.json"),
        (lambda folder: (folder / "tokenizer.json").write_text("{"), "tokenizer.json"),
        (lambda folder: (folder / "tokenizer_config.json").write_text("[1"), "tokenizer_config.json: not valid JSON"),
        (lambda folder: (folder / "generation_config.json").write_text("[]"), "generation_config.json: it holds no JSON object"),
        (lambda folder: (folder / "generation_config.json").write_text('{"eos_token_id": ["x"]}'), "malformed: ValueError"),
        (lambda folder: (folder / "tokenizer_config.json").write_text('{"added_tokens_decoder": {"9": {}}}'), "malformed: KeyError"),
        (lambda folder: (folder / "tokenizer_config.json").write_text('{"chat_template": [{}]}'), "malformed: KeyError"),
        (lambda folder: (folder / "chat_template.jinja").write_bytes(b"\xff"), "malformed: UnicodeDecodeError"),
    ],
)
def test_malformed_folders_are_named(change: Callable[[Path], object], message: str, folders: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(folders["gemma"], folder)
    change(folder)
    with pytest.raises(ModelFileError, match=message):
        load_tokenizer(folder)


def test_unknown_decoder_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(folders["gemma"], folder)
    path = folder / "tokenizer.json"
    decoder = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"decoder": decoder}))
    with pytest.raises(ModelFileError, match=r"decoder.*WordPiece.*not supported"):
        load_tokenizer(folder)


def test_a_path_that_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="no tokenizer here"):
        load_tokenizer(tmp_path / "missing")


def test_lone_surrogates_are_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(InvalidRequestError, match=r"U\+D83D at character 3"):
        tokenizer.encode("abc\ud83d")
