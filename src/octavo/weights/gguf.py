"""GGUF v2 and v3: header, metadata and tensor index (source: the GGUF specification, ggml/docs/gguf.md).

The file is not trusted. Every count, length, offset and product of dimensions is checked against what the file can hold
before anything is allocated for it, and the header as a whole is bounded, so that no file can cost more than a fixed time and
memory. The `gguf` package's reader does neither, and makes a numpy array of each value: on the two embedded models it
takes 1.7 s and 8.0 s, this one 0.03 s and 0.08 s (one core of a Xeon, `timeit.timeit` of `GGUFReader(path)` and `read_gguf(path)`).
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from octavo.errors import ModelFileError
from octavo.weights.formats import FORMATS, WeightFormat
from octavo.weights.tensor import MappedFile, TensorInfo, listed, shown

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_DEFAULT_ALIGNMENT = 32
_MAX_DIMS = 4
_MAX_HEADER = 128 << 20
"""Bytes of metadata and tensor index; a vocabulary of 262k with its merges takes 14 MB."""
_MAX_NAME = 65535
_MIN_KEY_BYTES = 8 + 4 + 1
_MIN_TENSOR_BYTES = 8 + 4 + 8 + 4 + 8

_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALARS: dict[int, np.dtype[Any]] = {
    code: np.dtype(name)
    for code, name in {
        0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", _BOOL: "u1", 10: "<u8", 11: "<i8", 12: "<f8",
    }.items()
}  # fmt: skip
_UINT32 = 4

_TYPES: dict[int, WeightFormat] = {
    code: FORMATS[name]
    for code, name in {
        0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K",
        13: "Q5_K", 14: "Q6_K", 20: "IQ4_NL", 23: "IQ4_XS", 30: "BF16",
    }.items()
}  # fmt: skip
"""ggml's numbers of the tensor types that Octavo runs."""

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


@dataclass
class GGUFModel:
    """A model's metadata and tensors, from one file or all parts of a split one."""

    paths: list[Path]
    metadata: dict[str, Any]
    """Keys to numbers, booleans, strings, or lists of one of these."""
    tensors: dict[str, TensorInfo]
    files: list[MappedFile] = field(default_factory=list)


def read_gguf(path: Path) -> GGUFModel:
    """Read a ``.gguf`` file; of a split model (``…-00001-of-00003.gguf``) any part names them all.

    Raises:
        ModelFileError: the file is malformed, truncated, of an unknown version, or holds a tensor type Octavo does not run.
    """
    paths = _part_paths(path)
    parts = [_read_file(part) for part in paths]
    if len(parts) == 1:
        count = parts[0].metadata.get("split.count", 1)
        if count not in (0, 1):
            raise ModelFileError(f"{path}: part of a model in {count} files; its name must end in -00001-of-{count:05}.gguf to find them")
        return parts[0]
    return _join(parts)


def _part_paths(path: Path) -> list[Path]:
    match = _PART.fullmatch(path.name)
    if match is None:
        return [path]
    count = int(match["count"])
    paths = [path.with_name(f"{match['stem']}-{number:05}-of-{count:05}.gguf") for number in range(1, count + 1)]
    if missing := [part.name for part in paths if not part.exists()]:
        raise ModelFileError(f"{path}: parts of the split model are missing: {listed(missing)}")
    return paths or [path]


def _join(parts: list[GGUFModel]) -> GGUFModel:
    first = parts[0]
    tensors: dict[str, TensorInfo] = {}
    for number, part in enumerate(parts):
        path = part.paths[0]
        found = (part.metadata.get("split.no"), part.metadata.get("split.count"))
        if found != (number, len(parts)):
            raise ModelFileError(f"{path}: split.no, split.count are {found[0]}, {found[1]}; its name says {number}, {len(parts)}")
        if twice := sorted(tensors.keys() & part.tensors.keys()):
            raise ModelFileError(f"{path}: tensors that an earlier part has too: {listed(twice)}")
        tensors |= part.tensors
    declared = first.metadata.get("split.tensors.count", len(tensors))
    if declared != len(tensors):
        raise ModelFileError(f"{first.paths[0]}: split.tensors.count = {declared}, but the {len(parts)} parts hold {len(tensors)} tensors")
    return GGUFModel([p.paths[0] for p in parts], first.metadata, tensors, [p.files[0] for p in parts])


def _read_file(path: Path) -> GGUFModel:
    file = MappedFile(path)
    cursor = _Cursor(file)
    tensor_count, key_count = _header(cursor)
    metadata = _metadata(cursor, key_count)
    entries = _tensor_entries(cursor, tensor_count)
    alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    start = -(-cursor.offset // alignment) * alignment
    tensors = {}
    for entry in entries:
        cursor.at(f"tensor {shown(entry.name)}", entry.position)
        if entry.name in tensors:
            raise cursor.error("occurs twice")
        tensors[entry.name] = _locate(cursor, entry, start, alignment)
    _check_overlap(path, tensors)
    return GGUFModel([path], metadata, tensors, [file])


def _header(cursor: _Cursor) -> tuple[int, int]:
    """Magic, version and the counts of tensors and of metadata keys."""
    cursor.at("magic")
    magic = cursor.take(4)
    if magic != _MAGIC:
        raise cursor.error(f"not a GGUF file: it begins with {magic!r}")
    cursor.at("version")
    version = cursor.u32()
    if version not in _VERSIONS:
        kind = "a big-endian file" if version and version & 0xFFFF == 0 else f"version {version}"
        raise cursor.error(f"{kind} is not supported (little-endian versions 2 and 3 are)")
    cursor.at("tensor count")
    tensor_count = cursor.count(_MIN_TENSOR_BYTES)
    cursor.at("metadata count")
    return tensor_count, cursor.count(_MIN_KEY_BYTES)


def _metadata(cursor: _Cursor, count: int) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for index in range(count):
        cursor.at(f"metadata key {index}")
        key = cursor.string(_MAX_NAME)
        cursor.at(f"key {shown(key)}")
        if key in metadata:
            raise cursor.error("occurs twice")
        value_type = cursor.u32()
        if value_type == _ARRAY:
            metadata[key] = cursor.array()
        elif value_type == _STRING:
            metadata[key] = cursor.string()
        else:
            metadata[key] = cursor.scalars(value_type, 1)[0]
        if key == "general.alignment":
            _check_alignment(cursor, value_type, metadata[key])
    return metadata


def _check_alignment(cursor: _Cursor, value_type: int, value: Any) -> None:
    if value_type != _UINT32 or value <= 0 or value & (value - 1):
        raise cursor.error(f"is {shown(value)}; it must be a 32-bit power of two")


@dataclass(frozen=True, slots=True)
class _Entry:
    """A tensor as its index entry describes it."""

    name: str
    dims: tuple[int, ...]
    type: int
    offset: int
    """From the start of the data section."""
    position: int
    """Of the entry in the file."""


def _tensor_entries(cursor: _Cursor, count: int) -> list[_Entry]:
    entries = []
    for index in range(count):
        cursor.at(f"tensor {index}")
        position = cursor.offset
        name = cursor.string(_MAX_NAME)
        cursor.at(f"tensor {shown(name)}")
        n_dims = cursor.u32()
        if not 1 <= n_dims <= _MAX_DIMS:
            raise cursor.error(f"has {n_dims} dimensions; 1 to {_MAX_DIMS} are possible")
        dims = tuple(cursor.u64() for _ in range(n_dims))
        entries.append(_Entry(name, dims, cursor.u32(), cursor.u64(), position))
    return entries


def _locate(cursor: _Cursor, entry: _Entry, start: int, alignment: int) -> TensorInfo:
    """Check a tensor's type, dimensions and place, before anything touches its data."""
    weight_format = _TYPES.get(entry.type)
    if weight_format is None:
        raise cursor.error(f"its type {_type_name(entry.type)} is not supported (these are: {', '.join(FORMATS)})")
    if 0 in entry.dims or entry.dims[0] % weight_format.block:
        unit = f"{weight_format.name}, whose rows are multiples of {weight_format.block}"
        raise cursor.error(f"dimensions {list(entry.dims)} do not suit {unit}")
    nbytes = weight_format.row_bytes(entry.dims[0])
    for dim in entry.dims[1:]:
        nbytes *= dim  # Python's integers do not wrap.
    if entry.offset % alignment:
        raise cursor.error(f"data offset {entry.offset} is not a multiple of the alignment {alignment}")
    offset = start + entry.offset
    if offset + nbytes > cursor.file.size:
        raise cursor.error(f"data ends past the file: bytes {offset} … {offset + nbytes} of {cursor.file.size}")
    return TensorInfo(entry.name, weight_format, entry.dims[::-1], offset, nbytes, cursor.file)


def _type_name(code: int) -> str:
    from gguf.constants import GGMLQuantizationType  # Slow to import, and needed for this message only.

    try:
        return f"{GGMLQuantizationType(code).name} ({code})"
    except ValueError:
        return f"{code} (unknown)"


def _check_overlap(path: Path, tensors: dict[str, TensorInfo]) -> None:
    for before, after in pairwise(sorted(tensors.values(), key=lambda t: t.offset)):
        if before.offset + before.nbytes > after.offset:
            raise ModelFileError(
                f"{path}: tensor {shown(after.name)}: its data at byte {after.offset} overlaps that of tensor {shown(before.name)}"
            )


class _Cursor:
    """Reads little-endian values from a file's start on; knows what it is reading, for the error."""

    def __init__(self, file: MappedFile) -> None:
        self.file = file
        self.offset = 0
        self._end = min(file.size, _MAX_HEADER)
        self._what = ""
        self._start = 0

    def at(self, what: str, position: int | None = None) -> None:
        """Name what is read next (from ``position``, by default from here)."""
        self._what = what
        self._start = self.offset if position is None else position

    def error(self, problem: str) -> ModelFileError:
        return ModelFileError(f"{self.file.path}: {self._what}: {problem} (at byte {self._start})")

    def _need(self, nbytes: int) -> int:
        """Advance by ``nbytes``; returns where they start."""
        start = self.offset
        if nbytes > self._end - start:
            held = f"the file ends at byte {self._end}" if self._end == self.file.size else f"a header may take {_MAX_HEADER} bytes"
            raise self.error(f"{nbytes} bytes are needed at byte {start}, but {held}")
        self.offset = start + nbytes
        return start

    def take(self, nbytes: int) -> bytes:
        start = self._need(nbytes)
        return self.file.buffer[start : start + nbytes]

    def u32(self) -> int:
        return int(_U32.unpack_from(self.file.buffer, self._need(4))[0])

    def u64(self) -> int:
        return int(_U64.unpack_from(self.file.buffer, self._need(8))[0])

    def count(self, item_bytes: int) -> int:
        """A count of items that take at least ``item_bytes`` each."""
        count = self.u64()
        if count * item_bytes > self._end - self.offset:
            raise self.error(f"{count} items of at least {item_bytes} bytes cannot fit into the {self._end - self.offset} that are left")
        return count

    def string(self, limit: int = _MAX_HEADER) -> str:
        length = self.u64()
        if length > limit:
            raise self.error(f"a string of {length} bytes; {limit} are possible")
        data = self.take(length)
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise self.error(f"is not UTF-8: {error.reason}") from error

    def scalars(self, value_type: int, count: int) -> list[Any]:
        dtype = _SCALARS.get(value_type)
        if dtype is None:
            raise self.error(f"value type {value_type} is unknown")
        start = self._need(count * dtype.itemsize)
        values = np.frombuffer(self.file.buffer, dtype, count, start)
        if value_type == _BOOL:
            if count and values.max() > 1:
                raise self.error(f"a boolean is {values.max()}; it must be 0 or 1")
            values = values.astype(np.bool_)
        return list(values.tolist())

    def array(self) -> list[Any]:
        value_type = self.u32()
        if value_type == _ARRAY:
            raise self.error("arrays of arrays are not supported")
        if value_type == _STRING:
            return self._strings(self.count(8))
        return self.scalars(value_type, self.u64())

    def _strings(self, count: int) -> list[str]:
        """``count`` strings in one pass; a vocabulary has hundreds of thousands, so the loop is flat."""
        buffer, unpack, end, offset = self.file.buffer, _U64.unpack_from, self._end, self.offset
        strings: list[str] = []
        try:
            for _ in range(count):
                (length,) = unpack(buffer, offset)
                start, offset = offset + 8, offset + 8 + length
                if offset > end:
                    break
                strings.append(buffer[start:offset].decode())
        except (struct.error, UnicodeDecodeError) as error:
            raise self.error(f"string {len(strings)} of {count}: {getattr(error, 'reason', 'the file ends')}") from error
        if len(strings) < count:
            raise self.error(f"string {len(strings)} of {count}: it ends at byte {offset}, the header at {end} at most")
        self.offset = offset
        return strings
