"""Weight formats: how a matrix's numbers are coded, as stored and as run.

Every format here is affine over unsigned codes u of ``bits`` bits: w = scale * (u - zero) or scale * u + offset,
with one scale (and offset) per ``group`` consecutive inputs of one output row. ``codes`` names a table when
the code is not the number itself (IQ4_NL, IQ4_XS). Floating formats have bits = 16 or 32 and no group.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

F32Array = npt.NDArray[np.float32]
BytesArray = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class WeightFormat:
    """One way of storing a matrix of shape [out, in], row by row.

    A row is ``in / block`` blocks of ``block_bytes`` bytes each, as the GGUF specification lays them out.
    """

    name: str
    """GGUF's name of the type, e.g. "Q4_1"; also "F32", "F16", "BF16"."""
    bits: int
    block: int
    """Elements in a block."""
    block_bytes: int
    group: int = 0
    """Inputs that share a scale; 0 for floating formats."""
    affine: bool = False
    """Whether a group has an offset (a minimum) of its own beside its scale."""
    super_block: bool = False
    """Whether a group's scale is itself coded, relative to the block's (the K-quants)."""
    codes: str = "linear"
    """"linear", "float" or the name of a code table."""

    @property
    def quantized(self) -> bool:
        return self.group > 0

    def row_bytes(self, columns: int) -> int:
        """Bytes of a row; ``columns`` must be a multiple of ``block``."""
        return columns // self.block * self.block_bytes


def _table(*formats: WeightFormat) -> dict[str, WeightFormat]:
    return {f.name: f for f in formats}


FORMATS: dict[str, WeightFormat] = _table(
    WeightFormat("F32", 32, 1, 4, codes="float"),
    WeightFormat("F16", 16, 1, 2, codes="float"),
    WeightFormat("BF16", 16, 1, 2, codes="float"),
    WeightFormat("Q4_0", 4, 32, 18, group=32),
    WeightFormat("Q4_1", 4, 32, 20, group=32, affine=True),
    WeightFormat("Q5_0", 5, 32, 22, group=32),
    WeightFormat("Q5_1", 5, 32, 24, group=32, affine=True),
    WeightFormat("Q8_0", 8, 32, 34, group=32),
    WeightFormat("Q2_K", 2, 256, 84, group=16, affine=True, super_block=True),
    WeightFormat("Q3_K", 3, 256, 110, group=16, super_block=True),
    WeightFormat("Q4_K", 4, 256, 144, group=32, affine=True, super_block=True),
    WeightFormat("Q5_K", 5, 256, 176, group=32, affine=True, super_block=True),
    WeightFormat("Q6_K", 6, 256, 210, group=16, super_block=True),
    WeightFormat("IQ4_NL", 4, 32, 18, group=32, codes="iq4_nl"),
    WeightFormat("IQ4_XS", 4, 256, 136, group=32, super_block=True, codes="iq4_nl"),
)
"""By name; the keys are the tensor types Octavo reads from GGUF files (block layouts: the GGUF specification)."""


@dataclass(frozen=True)
class Weight:
    """A parameter's numbers, as stored. Matrices are [out, in] (GGUF's ne reversed); vectors are F32."""

    name: str
    """Canonical name, e.g. "layers.0.attn.q"."""
    format: WeightFormat
    shape: tuple[int, ...]
    data: BytesArray
    """The stored bytes: [out, row_bytes] for matrices, [n * 4] for vectors; usually a view of a mapped file."""

    @property
    def nbytes(self) -> int:
        return int(self.data.nbytes)
