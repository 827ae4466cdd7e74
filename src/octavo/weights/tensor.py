"""Where a stored tensor's bytes lie: a memory-mapped file and a range in it."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from octavo.errors import ModelFileError
from octavo.weights.formats import BytesArray, Weight, WeightFormat

_ALIGNMENT = 4
"""Kernels may read a view of the mapping as 4-byte numbers."""


class MappedFile:
    """A file mapped read-only; pages are read when touched, and shared between processes.

    Truncating the file while it is mapped kills the process (SIGBUS), as with every mapping.

    Raises:
        ModelFileError: the file cannot be opened, or is empty.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with open(path, "rb") as file:
                self.size = os.fstat(file.fileno()).st_size
                if not self.size:
                    raise ModelFileError(f"{path}: the file is empty")
                self.buffer = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise ModelFileError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
        self._bytes = np.frombuffer(self.buffer, np.uint8)

    def view(self, offset: int, nbytes: int) -> BytesArray:
        """Bytes ``offset`` … ``offset + nbytes``: a read-only view, or a copy where the file has them misaligned."""
        view = self._bytes[offset : offset + nbytes]
        return view.copy() if offset % _ALIGNMENT else view


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor of a model file. ``shape`` is outputs first (GGUF's ne reversed)."""

    name: str
    """As the file has it."""
    format: WeightFormat
    shape: tuple[int, ...]
    offset: int
    """Bytes from the start of ``file``."""
    nbytes: int
    file: MappedFile

    def weight(self, canonical_name: str) -> Weight:
        """The tensor as stored; all but its last axis become rows."""
        data = self.file.view(self.offset, self.nbytes)
        if len(self.shape) > 1:
            data = data.reshape(-1, self.format.row_bytes(self.shape[-1]))
        return Weight(canonical_name, self.format, self.shape, data)


def listed(names: list[str], limit: int = 8) -> str:
    """Names for an error message: the first ``limit``, and how many more there are."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def shown(value: object) -> str:
    """A value from a file, for an error message: its repr, cut to a line's length."""
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:96]} …"
