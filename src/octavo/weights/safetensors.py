"""Folders of safetensors: one ``model.safetensors``, or shards with an index (source: the safetensors format page).

The `safetensors` package copies each tensor into an array of its own and has no numpy type for bf16; here the bytes stay in
the mapped file. The header is checked as strictly as the package does: no overlap, no hole, no byte left over.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

from octavo.errors import ModelFileError
from octavo.weights.formats import FORMATS, WeightFormat
from octavo.weights.tensor import MappedFile, TensorInfo, listed, shown

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"

_MAX_HEADER = 100_000_000
"""The format's own limit, in bytes."""
_DTYPES: dict[str, WeightFormat] = {name: FORMATS[name] for name in ("F32", "F16", "BF16")}
_ITEM_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "C64": 64,
}  # fmt: skip
_SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")


@dataclass
class SafetensorsModel:
    """The tensors of a folder."""

    paths: list[Path]
    tensors: dict[str, TensorInfo]
    unsupported: dict[str, str] = field(default_factory=dict)
    """Tensors of a type Octavo does not run, and that type. Old files keep masks and position ids so."""
    files: list[MappedFile] = field(default_factory=list)


def has_safetensors(folder: Path) -> bool:
    return (folder / SINGLE).exists() or (folder / INDEX).exists()


def read_safetensors(folder: Path) -> SafetensorsModel:
    """Read the headers of all of a folder's safetensors.

    Raises:
        ModelFileError: there are none, a header is malformed, data is missing, or index and shards disagree.
    """
    if (folder / SINGLE).exists():
        return _read_file(folder / SINGLE)
    if not (folder / INDEX).exists():
        raise ModelFileError(f"{folder}: neither {SINGLE} nor {INDEX} is in the folder")
    index = _read_index(folder / INDEX)
    names = sorted(set(index.values()))
    if missing := [name for name in names if not (folder / name).exists()]:
        raise ModelFileError(f"{folder}: shards that {INDEX} names are missing: {listed(missing)}")
    if extra := sorted(p.name for p in folder.iterdir() if _SHARD.fullmatch(p.name) and p.name not in names):
        raise ModelFileError(f"{folder}: shards that {INDEX} does not name: {listed(extra)}")
    model = SafetensorsModel([], {})
    for name in names:
        shard = _read_file(folder / name)
        _check_shard(folder / name, index, shard)
        model.paths += shard.paths
        model.files += shard.files
        model.tensors |= shard.tensors
        model.unsupported |= shard.unsupported
    return model


def read_json(path: Path, limit: int = 1 << 24) -> dict[str, Any]:
    """A JSON object from a file of at most ``limit`` bytes.

    Raises:
        ModelFileError: the file cannot be read, is too large, or holds no JSON object.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(data) > limit:
        raise ModelFileError(f"{path}: larger than {limit} bytes")
    return _parse_object(path, data)


def _parse_object(where: Path, data: bytes) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for name, value in pairs:
            if name in result:
                raise ValueError(f"{shown(name)} occurs twice")
            result[name] = value
        return result

    try:
        value = json.loads(data, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{where}: not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelFileError(f"{where}: holds no JSON object")
    return value


def _read_index(path: Path) -> dict[str, str]:
    """Tensor name → shard's file name."""
    weight_map = read_json(path, _MAX_HEADER).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelFileError(f"{path}: weight_map is missing or empty")
    for tensor, name in weight_map.items():
        if not isinstance(name, str) or not name.endswith(".safetensors") or Path(name).name != name:
            raise ModelFileError(f"{path}: tensor {shown(tensor)}: {shown(name)} is not the name of a shard in this folder")
    return weight_map


def _check_shard(path: Path, index: dict[str, str], shard: SafetensorsModel) -> None:
    stored = shard.tensors.keys() | shard.unsupported.keys()
    expected = {tensor for tensor, name in index.items() if name == path.name}
    if unlisted := sorted(stored - expected):
        raise ModelFileError(f"{path}: {INDEX} does not place these tensors in this shard, which holds them: {listed(unlisted)}")
    if absent := sorted(expected - stored):
        raise ModelFileError(f"{path}: {INDEX} places these tensors in this shard, which lacks them: {listed(absent)}")


def _read_file(path: Path) -> SafetensorsModel:
    file = MappedFile(path)
    if file.size < 8:
        raise ModelFileError(f"{path}: {file.size} bytes; a safetensors file begins with 8 bytes of header length")
    length = int.from_bytes(file.buffer[:8], "little")
    if length > min(_MAX_HEADER, file.size - 8):
        held = f"the file has {file.size - 8} more and the format allows {_MAX_HEADER}"
        raise ModelFileError(f"{path}: header of {length} bytes at byte 8, but {held}")
    header = _parse_object(path, file.buffer[8 : 8 + length])
    header.pop("__metadata__", None)
    model = SafetensorsModel([path], {}, files=[file])
    _check_cover(path, header, file.size - 8 - length)
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        weight_format = _DTYPES.get(entry["dtype"])
        if weight_format is None:
            model.unsupported[name] = entry["dtype"]
        else:
            model.tensors[name] = TensorInfo(name, weight_format, tuple(entry["shape"]), 8 + length + begin, end - begin, file)
    return model


def _check_cover(path: Path, header: dict[str, Any], data_bytes: int) -> None:
    """The tensors' ranges must follow each other and fill the data section."""
    reached = 0
    for begin, end, name in sorted(_ranges(path, header)):
        if begin != reached:
            kind = "overlaps the tensor before" if begin < reached else "leaves a hole before it"
            raise ModelFileError(f"{path}: tensor {shown(name)}: its data at bytes {begin} … {end} {kind} (which ends at {reached})")
        reached = end
    if reached != data_bytes:
        raise ModelFileError(f"{path}: tensors take {reached} bytes of data, but the file has {data_bytes}; is it cut or damaged?")


def _ranges(path: Path, header: dict[str, Any]) -> Iterator[tuple[int, int, str]]:
    """(begin, end, name) of each tensor, its entry checked by itself."""
    for name, entry in header.items():
        where = f"{path}: tensor {shown(name)}"
        if not isinstance(entry, dict):
            raise ModelFileError(f"{where}: its entry is not an object")
        dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
        if not isinstance(dtype, str) or dtype not in _ITEM_BITS:
            raise ModelFileError(f"{where}: type {shown(dtype)} is unknown")
        if not _is_sizes(shape):
            raise ModelFileError(f"{where}: shape {shown(shape)} is not a list of sizes")
        if not _is_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
            raise ModelFileError(f"{where}: data_offsets {shown(offsets)} are not a rising pair")
        if (offsets[1] - offsets[0]) * 8 != math.prod(shape) * _ITEM_BITS[dtype]:
            raise ModelFileError(f"{where}: {offsets[1] - offsets[0]} bytes of data do not make shape {shape} of {dtype}")
        yield offsets[0], offsets[1], name


def _is_sizes(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and len(value) <= 8 and all(type(v) is int and 0 <= v < 2**63 for v in value)
