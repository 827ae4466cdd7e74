"""Small model files, written by code that is not Octavo's (the gguf package) or byte by byte."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType
from gguf.quants import quantize


def write_gguf(
    path: Path, tensors: Mapping[str, tuple[str, np.ndarray]], metadata: Mapping[str, Any] | None = None, per_part: int = 0
) -> Path:
    """A GGUF file of float matrices, each stored as the type named; ``per_part`` > 0 splits it into parts of so many tensors."""
    writer = gguf.GGUFWriter(path, "llama", split_max_tensors=per_part)
    for key, value in (metadata or {}).items():
        add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string, list: writer.add_array}
        add[type(value)](key, value)
    for name, (kind, values) in tensors.items():
        ggml_type = GGMLQuantizationType[kind]
        writer.add_tensor(name, quantize(values, ggml_type), raw_dtype=ggml_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_safetensors(path: Path, tensors: Mapping[str, tuple[str, tuple[int, ...], bytes]]) -> Path:
    """A safetensors file: name → (dtype, shape, bytes)."""
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


@pytest.fixture
def make_gguf(tmp_path: Path) -> Callable[..., Path]:
    return lambda tensors, name="model.gguf", **options: write_gguf(tmp_path / name, tensors, **options)


@pytest.fixture
def make_safetensors(tmp_path: Path) -> Callable[..., Path]:
    """Writes one file into the test's folder, which gets a config.json; returns the file's path."""
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    return lambda tensors, name="model.safetensors": write_safetensors(tmp_path / name, tensors)


@pytest.fixture(autouse=True)
def octavo_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An OCTAVO_HOME of the test's own."""
    home = tmp_path / "octavo_home"
    monkeypatch.setenv("OCTAVO_HOME", str(home))
    return home
