"""The GGUF reader on valid files, and on every way a file can be wrong."""

from __future__ import annotations

import os
import struct
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octavo.errors import ModelFileError
from octavo.weights.dequantize import dequantize
from octavo.weights.formats import FORMATS
from octavo.weights.gguf import read_gguf

U32, F32_TYPE, STRING, ARRAY = 4, 6, 8, 9


def string(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def key(name: str, value_type: int, value: bytes) -> bytes:
    return string(name) + struct.pack("<I", value_type) + value


def tensor(name: str, dims: tuple[int, ...] = (32,), ggml_type: int = 0, offset: int = 0) -> bytes:
    return string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, ggml_type, offset)


def image(
    keys: list[bytes], tensors: list[bytes], data: bytes = bytes(256), *, version: int = 3, counts: tuple[int, int] | None = None
) -> bytes:
    """A file, byte by byte as the specification says; ``counts`` (tensors, keys) may lie."""
    header = b"GGUF" + struct.pack("<IQQ", version, *(counts or (len(tensors), len(keys))))
    header += b"".join(keys) + b"".join(tensors)
    return header + bytes(-len(header) % 32) + data


@pytest.fixture
def bad_file(tmp_path: Path) -> Callable[[bytes], str]:
    """Reads an image that must be refused, in little time and memory; returns the message."""

    def read(content: bytes) -> str:
        path = tmp_path / "bad.gguf"
        path.write_bytes(content)
        tracemalloc.start()
        started = time.perf_counter()
        with pytest.raises(ModelFileError) as caught:
            read_gguf(path)
        assert time.perf_counter() - started < 2
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
        tracemalloc.stop()
        assert str(path) in str(caught.value)
        assert len(str(caught.value)) < 500
        return str(caught.value)

    return read


@pytest.mark.parametrize("version", [2, 3])
def test_reads_what_the_specification_lays_out(tmp_path: Path, version: int) -> None:
    keys = [
        key("general.architecture", STRING, string("llama")),
        key("u8", 0, b"\xff"),
        key("i8", 1, b"\xff"),
        key("i64", 11, struct.pack("<q", -5)),
        key("f64", 12, struct.pack("<d", 0.1)),
        key("yes", 7, b"\x01"),
        key("tokens", ARRAY, struct.pack("<IQ", STRING, 3) + string("") + string("é") + string("日本")),
        key("scores", ARRAY, struct.pack("<IQ2f", F32_TYPE, 2, 1.5, -2.0)),
        key("flags", ARRAY, struct.pack("<IQ3B", 7, 3, 1, 0, 1)),
        key("none", ARRAY, struct.pack("<IQ", STRING, 0)),
    ]
    values = np.arange(24, dtype=np.float32)
    path = tmp_path / "model.gguf"
    path.write_bytes(image(keys, [tensor("a", (6, 4)), tensor("b", (4,), offset=96)], values.tobytes() + bytes(16), version=version))
    model = read_gguf(path)
    assert model.metadata == {
        "general.architecture": "llama", "u8": 255, "i8": -1, "i64": -5, "f64": 0.1, "yes": True,
        "tokens": ["", "é", "日本"], "scores": [1.5, -2.0], "flags": [True, False, True], "none": [],
    }  # fmt: skip
    assert isinstance(model.metadata["yes"], bool)
    weight = model.tensors["a"].weight("x")
    assert (weight.name, weight.format.name, weight.shape) == ("x", "F32", (4, 6))
    assert np.array_equal(weight.data.view(np.float32), values.reshape(4, 6))
    assert model.tensors["b"].weight("y").data.shape == (16,)
    assert not weight.data.flags.writeable


def test_agrees_with_the_gguf_package_on_a_real_file(smollm2_path: Path) -> None:
    ours, theirs = read_gguf(smollm2_path), gguf.GGUFReader(smollm2_path)
    assert {name: value.contents() for name, value in theirs.fields.items() if not name.startswith("GGUF.")} == ours.metadata
    assert [t.name for t in theirs.tensors] == list(ours.tensors)
    for expected in theirs.tensors:
        found = ours.tensors[expected.name]
        assert (found.format.name, found.offset, found.nbytes) == (expected.tensor_type.name, expected.data_offset, expected.n_bytes)
        assert found.shape == tuple(reversed(expected.shape.tolist()))


def test_gg_05_unquantized_tensors_inside_a_gguf(make_gguf: Callable[..., Path], rng: np.random.Generator) -> None:
    values = rng.standard_normal((3, 64)).astype(np.float32)
    path = make_gguf({kind: (kind, values) for kind in ("F32", "F16", "BF16", "Q8_0")})
    tensors = read_gguf(path).tensors
    assert [t.format.name for t in tensors.values()] == ["F32", "F16", "BF16", "Q8_0"]
    assert np.array_equal(dequantize(tensors["F32"].weight("")), values)
    assert np.array_equal(dequantize(tensors["F16"].weight("")), values.astype(np.float16).astype(np.float32))
    np.testing.assert_allclose(dequantize(tensors["BF16"].weight("")), values, rtol=2**-8)


REFUSED = [(t.value, f"{t.name} ({t.value})") for t in gguf.GGMLQuantizationType if t.name not in FORMATS]


@pytest.mark.parametrize(("ggml_type", "name"), [(999, "999 (unknown)"), (4, "4 (unknown)"), (31, "31 (unknown)"), *REFUSED])
def test_gg_06_unsupported_type_names_tensor_and_type(bad_file: Callable[[bytes], str], ggml_type: int, name: str) -> None:
    message = bad_file(image([], [tensor("ok"), tensor("blk.0.odd", (1 << 40, 1 << 20), ggml_type, 128)]))
    assert f"tensor 'blk.0.odd': its type {name} is not supported" in message
    assert "\n" not in message


ALIGNMENT = "general.alignment"
MALFORMED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "empty"),
    "magic": (b"GGML" + bytes(60), "not a GGUF file"),
    "version 1": (image([], [], version=1), "version 1 is not supported"),
    "version 4": (image([], [], version=4), "version 4 is not supported"),
    "big endian": (image([], [], version=3 << 24), "big-endian"),
    "tensor count": (image([], [], counts=(1 << 62, 0)), "tensor count"),
    "tensor count wraps": (image([], [], counts=((1 << 64) - 1, 0)), "tensor count"),
    "key count": (image([], [], counts=(0, 1 << 40)), "metadata count"),
    "key length": (image([struct.pack("<Q", 1 << 63) + b"key"], []), "metadata key 0"),
    "key of 64 KiB": (image([key("k" * 65536, U32, bytes(4))], []), "65535 are possible"),
    "long name": (image([key("k" * 65535, 99, bytes(4))], []), "…: value type 99"),
    "string length": (image([key("name", STRING, struct.pack("<Q", (1 << 64) - 1))], []), "key 'name'"),
    "string not UTF-8": (image([key("name", STRING, string(b"\xff\xfe"))], []), "key 'name': is not UTF-8"),
    "value type": (image([key("odd", 13, bytes(8))], []), "key 'odd': value type 13"),
    "boolean": (image([key("odd", 7, b"\x02")], []), "key 'odd': a boolean is 2"),
    "key twice": (image([key("k", U32, bytes(4))] * 2, []), "key 'k': occurs twice"),
    "array length": (image([key("a", ARRAY, struct.pack("<IQ", F32_TYPE, 1 << 61))], []), "key 'a'"),
    "array length wraps": (image([key("a", ARRAY, struct.pack("<IQ", F32_TYPE, (1 << 62) + 1))], []), "key 'a'"),
    "string array length": (image([key("a", ARRAY, struct.pack("<IQ", STRING, 1 << 60))], []), "key 'a'"),
    "string in an array": (
        image([key("a", ARRAY, struct.pack("<IQ", STRING, 2) + string("x") + struct.pack("<Q", 1 << 63))], []),
        "string 1 of 2",
    ),
    "text in an array": (image([key("a", ARRAY, struct.pack("<IQ", STRING, 1) + string(b"\xc3"))], []), "string 0 of 1"),
    "nested array": (image([key("a", ARRAY, struct.pack("<IQ", ARRAY, 1) + bytes(16))], []), "arrays of arrays"),
    "array of unknown": (image([key("a", ARRAY, struct.pack("<IQ", 77, 1) + bytes(16))], []), "value type 77"),
    "alignment 0": (image([key(ALIGNMENT, U32, struct.pack("<I", 0))], [tensor("t")]), ALIGNMENT),
    "alignment 24": (image([key(ALIGNMENT, U32, struct.pack("<I", 24))], [tensor("t")]), ALIGNMENT),
    "alignment of 8 bits": (image([key(ALIGNMENT, 0, b"\x20")], [tensor("t")]), ALIGNMENT),
    "alignment of text": (image([key(ALIGNMENT, STRING, string("32"))], [tensor("t")]), ALIGNMENT),
    "n_dims 0": (image([], [tensor("t", ())]), "'t': has 0 dimensions"),
    "n_dims 5": (image([], [tensor("t", (1,) * 5)]), "'t': has 5 dimensions"),
    "n_dims 1e6": (image([], [string("t") + struct.pack("<I", 1_000_000) + bytes(64)]), "'t': has 1000000 dimensions"),
    "dimension 0": (image([], [tensor("t", (32, 0))]), "'t': dimensions [32, 0]"),
    "product wraps 2^64": (image([], [tensor("t", (1 << 32, 1 << 32))]), "'t': data ends past the file"),
    "product wraps to 32": (image([], [tensor("t", ((1 << 62) + 8, 4))]), "'t': data ends past the file"),
    "row no multiple": (image([], [tensor("t", (33,), 8)]), "'t': dimensions [33] do not suit Q8_0"),
    "offset past the end": (image([], [tensor("t", offset=1 << 20)]), "'t': data ends past the file"),
    "offset wraps": (image([], [tensor("t", offset=(1 << 64) - 32)]), "'t': data ends past the file"),
    "offset misaligned": (image([], [tensor("t", offset=4)]), "'t': data offset 4 is not a multiple of the alignment 32"),
    "overlap": (image([], [tensor("t", (32,)), tensor("u", (8,), offset=96)]), "'u': its data"),
    "tensor twice": (image([], [tensor("t", (8,)), tensor("t", (8,), offset=32)]), "'t': occurs twice"),
    "data cut": (image([], [tensor("t", (64,))], bytes(255)), "'t': data ends past the file"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_gg_08_malformed_file_is_refused(bad_file: Callable[[bytes], str], case: str) -> None:
    content, expected = MALFORMED[case]
    assert expected in bad_file(content)


def test_gg_08_cut_anywhere_is_refused(bad_file: Callable[[bytes], str]) -> None:
    keys = [key("s", STRING, string("text")), key("a", ARRAY, struct.pack("<IQ", STRING, 2) + string("x") + string("yz"))]
    whole = image([*keys, key("n", U32, bytes(4))], [tensor("t", (8,)), tensor("u", (8, 2), 0, 32)], bytes(96))
    for length in range(len(whole)):
        bad_file(whole[:length])


def test_gg_08_array_narrower_than_its_reader_expects(tmp_path: Path) -> None:
    """Values come as the file types them, never as wider numbers read past the array's end."""
    path = tmp_path / "model.gguf"
    path.write_bytes(image([key("tokenizer.ggml.scores", ARRAY, struct.pack("<IQ3B", 0, 3, 1, 2, 3))], []))
    assert read_gguf(path).metadata["tokenizer.ggml.scores"] == [1, 2, 3]


def test_gg_08_header_is_bounded(bad_file: Callable[[bytes], str], tmp_path: Path) -> None:
    """A file may be huge and its counts may fit it: the header still may not."""
    path = tmp_path / "bad.gguf"
    content = image([key("a", ARRAY, struct.pack("<IQ", 0, 1 << 33))], [])
    path.write_bytes(content)
    os.truncate(path, 1 << 34)  # Sparse: takes no room on the disk.
    with pytest.raises(ModelFileError, match="a header may take"):
        read_gguf(path)


@pytest.mark.parametrize("error_path", ["missing.gguf", "."])
def test_unreadable_path(tmp_path: Path, error_path: str) -> None:
    with pytest.raises(ModelFileError, match="cannot be read"):
        read_gguf(tmp_path / error_path)


@pytest.fixture(scope="module")
def valid_image(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("fuzz") / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_array("tokenizer.ggml.tokens", ["<s>", "a", "bc"])
    writer.add_array("tokenizer.ggml.scores", [0.5, 1.0, 2.0])
    writer.add_bool("tokenizer.ggml.add_bos_token", True)
    writer.add_tensor("token_embd.weight", np.ones((3, 32), np.float32))
    writer.add_tensor("output_norm.weight", np.ones(32, np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


@settings(max_examples=400, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_gg_08_fuzz_mutated_bytes(valid_image: bytes, tmp_path: Path, data: st.DataObject) -> None:
    """Whatever is in the file: it is refused, or every tensor lies inside it."""
    content = bytearray(valid_image)
    extreme = st.sampled_from([0, 1, 2, 7, 8, 9, 0x7F, 0x80, 0xFE, 0xFF])
    for position, value in data.draw(st.lists(st.tuples(st.integers(0, len(content) - 1), extreme | st.integers(0, 255)), max_size=8)):
        content[position] = value
    content = content[: data.draw(st.integers(0, len(content)) | st.just(len(content)))]
    path = tmp_path / "fuzz.gguf"
    path.write_bytes(content)
    try:
        model = read_gguf(path)
    except ModelFileError as error:
        assert str(path) in str(error)
        return
    for info in model.tensors.values():
        assert info.weight("").data.nbytes == info.nbytes
        assert dequantize(info.weight("")).shape == info.shape


def split_model(make_gguf: Callable[..., Path]) -> tuple[list[Path], dict[str, np.ndarray]]:
    values = {f"t{index}": np.full((2, 32), index, np.float32) for index in range(5)}
    path = make_gguf({name: ("F32", value) for name, value in values.items()}, metadata={"llama.block_count": 7}, per_part=2)
    return sorted(path.parent.glob("model-*-of-00003.gguf")), values


def test_split_files_are_one_model(make_gguf: Callable[..., Path]) -> None:
    parts, values = split_model(make_gguf)
    assert len(parts) == 3
    for given_part in parts:
        model = read_gguf(given_part)
        assert model.paths == parts
        assert model.metadata["llama.block_count"] == 7
        assert list(model.tensors) == list(values)
        for name, value in values.items():
            assert np.array_equal(dequantize(model.tensors[name].weight("")), value)


def rewrite(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


def test_split_files_that_do_not_belong_together(make_gguf: Callable[..., Path]) -> None:
    parts, _ = split_model(make_gguf)
    originals = [part.read_bytes() for part in parts]

    def message(part: int = 0) -> str:
        with pytest.raises(ModelFileError) as caught:
            read_gguf(parts[part])
        for path, content in zip(parts, originals, strict=True):
            path.write_bytes(content)
        return str(caught.value)

    parts[1].write_bytes(originals[2])
    assert "split.no, split.count are 2, 3; its name says 1, 3" in message()
    rewrite(parts[1], lambda b: b.replace(b"t2", b"t0"))
    assert "tensors that an earlier part has too: t0" in message()
    number = originals[0].index(b"split.tensors.count") + len(b"split.tensors.count") + 4
    rewrite(parts[0], lambda b: b[:number] + struct.pack("<i", 6) + b[number + 4 :])
    assert "split.tensors.count = 6, but the 3 parts hold 5 tensors" in message()
    parts[2].unlink()
    assert "missing: model-00003-of-00003.gguf" in message()
    renamed = parts[1].rename(parts[1].with_name("renamed.gguf"))
    with pytest.raises(ModelFileError, match="part of a model in 3 files"):
        read_gguf(renamed)


def test_misaligned_data_is_copied(tmp_path: Path) -> None:
    """With an alignment of 1 a tensor may lie anywhere; its numbers are aligned once read."""
    header = b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + key("general.alignment", U32, struct.pack("<I", 1)) + tensor("ta", (4,))
    for pad in range(4):
        content = header.replace(string("ta"), string("t" + "a" * pad))
        path = tmp_path / "model.gguf"
        path.write_bytes(content + np.arange(4, dtype=np.float32).tobytes())
        info: Any = next(iter(read_gguf(path).tensors.values()))
        assert info.offset == len(content)
        data = info.weight("").data
        assert data.ctypes.data % 4 == 0
        assert data.view(np.float32).tolist() == [0, 1, 2, 3]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
