"""fp32 matrices to the formats that weights are converted to at load. All take [rows, columns] and give [rows, row_bytes].

Codes are computed against the scale as stored (rounded to fp16), not the exact one, so that rounding the scale adds no error
of its own beyond clipping. Layouts: the GGUF specification.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from octavo.weights.formats import BytesArray, F32Array

F16Array = npt.NDArray[np.float16]

_BLOCK = 32


def to_f32(x: F32Array) -> BytesArray:
    return np.ascontiguousarray(x).view(np.uint8)


def to_bf16(x: F32Array) -> BytesArray:
    """Round to the nearest bf16, ties to even; NaN stays NaN."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    high = np.where(np.isnan(x), (bits >> 16) | 0x40, rounded)
    return high.astype(np.uint16).view(np.uint8)


def to_q8_0(x: F32Array) -> BytesArray:
    """Symmetric 8 bits: per 32 columns an fp16 scale = absmax / 127, then 32 int8 codes; x ≈ scale * code.

    Raises:
        ValueError: a value is not finite, or too large for an fp16 scale.
    """
    blocks = x.reshape(-1, _BLOCK)
    scale = _fp16(np.abs(blocks).max(axis=1) / 127)
    codes = np.clip(np.rint(blocks * _inverse(scale)), -127, 127).astype(np.int8)
    packed = np.concatenate([_bytes(scale), codes.view(np.uint8)], axis=1)
    return packed.reshape(x.shape[0], -1)


def to_q4_1(x: F32Array) -> BytesArray:
    """Affine 4 bits: per 32 columns fp16 scale = (max - min) / 15 and min, then 16 bytes of codes; x ≈ scale * code + min.

    Byte j holds the code of column j in its low half and that of column j + 16 in its high half.

    Raises:
        ValueError: a value is not finite, or too large for fp16.
    """
    blocks = x.reshape(-1, _BLOCK)
    low = _fp16(blocks.min(axis=1))
    scale = _fp16((blocks.max(axis=1) - low.astype(np.float32)) / 15)
    offsets = blocks - low.astype(np.float32)[:, None]
    codes = np.clip(np.rint(offsets * _inverse(scale)), 0, 15).astype(np.uint8)
    nibbles = codes[:, : _BLOCK // 2] | (codes[:, _BLOCK // 2 :] << 4)
    packed = np.concatenate([_bytes(scale), _bytes(low), nibbles], axis=1)
    return packed.reshape(x.shape[0], -1)


ENCODERS: dict[str, Callable[[F32Array], BytesArray]] = {"F32": to_f32, "BF16": to_bf16, "Q8_0": to_q8_0, "Q4_1": to_q4_1}
"""By format name."""


def _fp16(values: F32Array) -> F16Array:
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = values.astype(np.float16)
    if not np.isfinite(rounded).all():
        raise ValueError("it holds values that are not finite or too large to quantize")
    return rounded


def _inverse(scale: F16Array) -> F32Array:
    """1 / scale as a column; 0 where the scale is 0."""
    wide = scale.astype(np.float32)[:, None]
    return np.divide(np.float32(1), wide, out=np.zeros_like(wide), where=wide != 0)


def _bytes(values: F16Array) -> BytesArray:
    return values.view(np.uint8).reshape(-1, 2)
