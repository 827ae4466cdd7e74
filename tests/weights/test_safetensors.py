"""Folders of safetensors: whole, sharded, and wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octavo.errors import ModelFileError
from octavo.weights.dequantize import dequantize
from octavo.weights.safetensors import INDEX, read_safetensors

ONES = np.ones((2, 4), np.float32).tobytes()
A, B, C = ("F32", (2, 4), ONES), ("BF16", (2, 4), b"\x80\x3f" * 8), ("F16", (8,), b"\x00\x3c" * 8)


def refused(folder: Path) -> str:
    with pytest.raises(ModelFileError) as caught:
        read_safetensors(folder)
    assert str(folder) in str(caught.value)
    return str(caught.value)


def test_reads_what_the_safetensors_package_writes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {"m": rng.standard_normal((3, 5)).astype(np.float32), "v": rng.standard_normal(7).astype(np.float16)}
    safetensors.numpy.save_file(arrays, tmp_path / "model.safetensors", metadata={"format": "pt"})
    tensors = read_safetensors(tmp_path).tensors
    assert {name: (t.format.name, t.shape) for name, t in tensors.items()} == {"m": ("F32", (3, 5)), "v": ("F16", (7,))}
    for name, array in arrays.items():
        assert np.array_equal(dequantize(tensors[name].weight("")), array.astype(np.float32))


def test_all_three_types(make_safetensors: Callable[..., Path]) -> None:
    folder = make_safetensors({"a": A, "b": B, "c": C, "mask": ("BOOL", (3,), bytes(3))}).parent
    model = read_safetensors(folder)
    assert [t.format.name for t in model.tensors.values()] == ["F32", "BF16", "F16"]
    assert all((dequantize(t.weight("")) == 1).all() for t in model.tensors.values())
    assert model.unsupported == {"mask": "BOOL"}


@pytest.fixture
def sharded(make_safetensors: Callable[..., Path]) -> Path:
    """A folder of two shards: a and b in the first, c in the second."""
    first = make_safetensors({"a": A, "b": B}, "model-00001-of-00002.safetensors")
    second = make_safetensors({"c": C}, "model-00002-of-00002.safetensors")
    weight_map = {"a": first.name, "b": first.name, "c": second.name}
    (first.parent / INDEX).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))
    return first.parent


def edit_index(folder: Path, **changes: str | None) -> None:
    index = json.loads((folder / INDEX).read_text())
    for tensor, shard in changes.items():
        index["weight_map"].pop(tensor, None)
        if shard is not None:
            index["weight_map"][tensor] = shard
    (folder / INDEX).write_text(json.dumps(index))


def test_shards_are_one_model(sharded: Path) -> None:
    model = read_safetensors(sharded)
    assert sorted(model.tensors) == ["a", "b", "c"]
    assert [path.name for path in model.paths] == ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]


def test_en_10_tensor_without_an_index_entry_is_listed(sharded: Path) -> None:
    edit_index(sharded, b=None)
    message = refused(sharded)
    assert "model-00001-of-00002.safetensors" in message
    assert "which holds them: b" in message


def test_en_10_shard_without_index_entries_is_listed(sharded: Path) -> None:
    edit_index(sharded, c=None)
    assert "does not name: model-00002-of-00002.safetensors" in refused(sharded)


def test_en_10_entry_without_its_tensor_is_listed(sharded: Path) -> None:
    edit_index(sharded, d="model-00002-of-00002.safetensors", e="model-00002-of-00002.safetensors")
    assert "which lacks them: d, e" in refused(sharded)


def test_en_10_entry_for_the_wrong_shard_is_listed(sharded: Path) -> None:
    edit_index(sharded, b="model-00002-of-00002.safetensors")
    assert "does not place these tensors in this shard, which holds them: b" in refused(sharded)


def test_en_10_missing_shard_is_named(sharded: Path) -> None:
    (sharded / "model-00002-of-00002.safetensors").unlink()
    assert "missing: model-00002-of-00002.safetensors" in refused(sharded)


@pytest.mark.parametrize("name", ["../other.safetensors", "/etc/passwd", "sub/model.safetensors", "model.bin", 7])
def test_index_must_stay_in_its_folder(sharded: Path, name: Any) -> None:
    edit_index(sharded, a=name)
    assert "tensor 'a'" in refused(sharded)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"weight_map": {}}', '{"weight_map": 3}', "[" * 100_000, '{"a": 1, "a": 2}'])
def test_malformed_index(sharded: Path, text: str) -> None:
    (sharded / INDEX).write_text(text)
    assert INDEX in refused(sharded)


def test_empty_folder(tmp_path: Path) -> None:
    assert "neither model.safetensors nor model.safetensors.index.json" in refused(tmp_path)


def whole(header: Any, data: bytes = ONES) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype: Any = "F32", shape: Any = (2, 4), offsets: Any = (0, 32)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


MALFORMED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "empty"),
    "short": (bytes(7), "7 bytes"),
    "header past the end": (whole({"a": entry()})[:20], "header of"),
    "huge header": ((1 << 63).to_bytes(8, "little") + bytes(100), "header of"),
    "garbage": (whole(b"\xff\xfegarbage"), "not valid JSON"),
    "no object": (whole([1]), "holds no JSON object"),
    "nested": (whole(b"[" * 200_000), "not valid JSON"),
    "twice": (whole(b'{"a": {}, "a": {}}'), "'a' occurs twice"),
    "entry": (whole({"a": 5}), "tensor 'a': its entry"),
    "dtype": (whole({"a": entry(dtype="F33")}), "tensor 'a': type 'F33'"),
    "dtype kind": (whole({"a": entry(dtype=[])}), "tensor 'a': type []"),
    "shape": (whole({"a": entry(shape=[-2, -4])}), "tensor 'a': shape"),
    "shape kind": (whole({"a": entry(shape=[True, 8])}), "tensor 'a': shape"),
    "shape too deep": (whole({"a": entry(shape=[1] * 10_000)}), "tensor 'a': shape"),
    "product wraps": (whole({"a": entry(shape=[1 << 32, 1 << 32])}), "tensor 'a': 32 bytes of data do not make"),
    "offsets fall": (whole({"a": entry(offsets=[32, 0])}), "tensor 'a': data_offsets"),
    "offsets three": (whole({"a": entry(offsets=[0, 32, 64])}), "tensor 'a': data_offsets"),
    "bytes and shape": (whole({"a": entry(shape=[2, 5])}), "tensor 'a': 32 bytes of data do not make shape [2, 5]"),
    "past the end": (whole({"a": entry(shape=[2, 8], offsets=[0, 64])}), "take 64 bytes"),
    "cut data": (whole({"a": entry()}, ONES[:-1]), "take 32 bytes of data, but the file has 31"),
    "left over": (whole({"a": entry()}, ONES + b"x"), "take 32 bytes of data, but the file has 33"),
    "hole": (whole({"a": entry(offsets=[8, 40])}, bytes(40)), "tensor 'a'"),
    "overlap": (whole({"a": entry(), "b": entry(offsets=[16, 48])}, bytes(48)), "tensor 'b': its data at bytes 16 … 48 overlaps"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_file_is_refused(tmp_path: Path, case: str) -> None:
    content, expected = MALFORMED[case]
    (tmp_path / "model.safetensors").write_bytes(content)
    message = refused(tmp_path)
    assert expected in message
    assert len(message) < 500


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_fuzz_mutated_bytes(tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(whole({"a": entry(), "b": entry("BF16", [4], [32, 40])}, bytes(40)))
    for position, value in data.draw(st.lists(st.tuples(st.integers(0, len(content) - 41), st.integers(0, 255)), max_size=4)):
        content[position] = value
    (tmp_path / "model.safetensors").write_bytes(content[: data.draw(st.integers(0, len(content)) | st.just(len(content)))])
    try:
        model = read_safetensors(tmp_path)
    except ModelFileError as error:
        assert "model.safetensors" in str(error)
        return
    for info in model.tensors.values():
        assert dequantize(info.weight("")).shape == info.shape
