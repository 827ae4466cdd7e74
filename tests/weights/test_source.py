"""One interface for GGUF files and Hugging Face folders; digests and their memory."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from octavo.errors import ModelFileError
from octavo.weights import digest
from octavo.weights.source import open_source

ONES = ("F32", np.ones((2, 32), np.float32))


def test_gguf(make_gguf: Callable[..., Path]) -> None:
    path = make_gguf({"a.weight": ONES}, metadata={"llama.block_count": 3})
    source = open_source(str(path))
    assert (source.kind, source.path, source.config) == ("gguf", path, {})
    assert source.metadata["llama.block_count"] == 3
    assert source.names() == ["a.weight"]
    weight = source.weight("a.weight", "a")
    source.close()
    assert weight.data.view(np.float32).sum() == 64  # A view outlives the source.
    with pytest.raises(ModelFileError, match=r"no tensor 'b\.weight'"):
        open_source(path).weight("b.weight", "b")


def test_folder(make_safetensors: Callable[..., Path]) -> None:
    path = make_safetensors({"v": ("BF16", (4,), b"\x80\x3f" * 4), "mask": ("BOOL", (1,), b"\0")})
    (path.parent / "generation_config.json").write_text('{"eos_token_id": [1, 2]}')
    source = open_source(path.parent)
    assert (source.kind, source.metadata) == ("hf", {})
    assert source.config == {"model_type": "llama", "generation_config": {"eos_token_id": [1, 2]}}
    assert source.names() == ["v"]
    assert source.weight("v", "x").format.name == "BF16"
    with pytest.raises(ModelFileError, match="'mask': its type BOOL is not supported"):
        source.info("mask")
    with pytest.raises(ModelFileError, match="give the folder"):
        open_source(path)


def test_folder_of_gguf_files(make_gguf: Callable[..., Path]) -> None:
    with pytest.raises(ModelFileError, match="give one of them"):
        open_source(make_gguf({"a": ONES}).parent)


@pytest.mark.parametrize("text", [None, "", "[]", '{"a":'])
def test_folder_without_a_sound_config(make_safetensors: Callable[..., Path], text: str | None) -> None:
    config = make_safetensors({}).parent / "config.json"
    config.unlink() if text is None else config.write_text(text)
    with pytest.raises(ModelFileError, match=r"config\.json"):
        open_source(config.parent)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_digest_of_one_file_is_its_sha256(make_gguf: Callable[..., Path]) -> None:
    path = make_gguf({"a": ONES})
    assert open_source(path).digest() == sha256(path)


def test_digest_of_several_files_is_that_of_all(make_gguf: Callable[..., Path], make_safetensors: Callable[..., Path]) -> None:
    first = make_gguf({"a": ONES, "b": ONES}, per_part=1).with_name("model-00001-of-00002.gguf")
    second = first.with_name("model-00002-of-00002.gguf")
    listing = f"{sha256(first)}  {first.name}\n{sha256(second)}  {second.name}\n"
    assert open_source(first).digest() == open_source(second).digest() == hashlib.sha256(listing.encode()).hexdigest()

    folder = make_safetensors({"v": ("F32", (1,), bytes(4))}).parent
    before = open_source(folder).digest()
    (folder / "config.json").write_text('{"model_type": "llama", "rope_theta": 1}')
    assert open_source(folder).digest() != before


def test_digest_is_remembered_until_the_file_changes(
    make_gguf: Callable[..., Path], octavo_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_gguf({"a": ONES})
    first = digest.file_digest(path)
    with monkeypatch.context() as patch:
        patch.setattr(hashlib, "file_digest", lambda *_: pytest.fail("the file was read again"))
        assert digest.file_digest(path) == first
        assert digest.file_digest(path.parent / "octavo_home" / ".." / path.name) == first
    path.write_bytes(path.read_bytes()[:-1] + b"\7")
    assert digest.file_digest(path) == sha256(path) != first
    os.utime(path, ns=(1, 1))
    assert digest.file_digest(path) == sha256(path)

    memo = next((octavo_home / "digests").iterdir())
    for text in ("", "{}", "[]", json.dumps({"path": str(path), "sha256": "0" * 64})):
        memo.write_text(text)
        assert digest.file_digest(path) == sha256(path)


def test_digest_without_a_home(make_gguf: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("OCTAVO_HOME", str(blocked))
    path = make_gguf({"a": ONES})
    assert digest.file_digest(path) == sha256(path)
