"""Each format against a decoder written out number by number from the format's description."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest

from octavo.weights.dequantize import dequantize
from octavo.weights.formats import FORMATS, Weight

IQ4_NL_CODES = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]


def half(block: bytes, offset: int) -> float:
    return float(struct.unpack_from("<e", block, offset)[0])


def nibble(codes: bytes, index: int) -> int:
    """Of 32 codes in 16 bytes: the low halves come first."""
    return codes[index] & 15 if index < 16 else codes[index - 16] >> 4


def q4_0(b: bytes) -> list[float]:
    return [half(b, 0) * (nibble(b[2:], i) - 8) for i in range(32)]


def q4_1(b: bytes) -> list[float]:
    return [half(b, 0) * nibble(b[4:], i) + half(b, 2) for i in range(32)]


def q5_0(b: bytes) -> list[float]:
    high = int.from_bytes(b[2:6], "little")
    return [half(b, 0) * ((nibble(b[6:], i) | (high >> i & 1) << 4) - 16) for i in range(32)]


def q5_1(b: bytes) -> list[float]:
    high = int.from_bytes(b[4:8], "little")
    return [half(b, 0) * (nibble(b[8:], i) | (high >> i & 1) << 4) + half(b, 2) for i in range(32)]


def q8_0(b: bytes) -> list[float]:
    return [half(b, 0) * code for code in struct.unpack("<32b", b[2:])]


def iq4_nl(b: bytes) -> list[float]:
    return [half(b, 0) * IQ4_NL_CODES[nibble(b[2:], i)] for i in range(32)]


def q2_k(b: bytes) -> list[float]:
    scales, codes, d, dmin = b[:16], b[16:80], half(b, 80), half(b, 82)
    out = []
    for i in range(256):
        part, shift, column = i // 128, i % 128 // 32 * 2, i % 32
        scale = scales[i // 16]
        out.append(d * (scale & 15) * (codes[32 * part + column] >> shift & 3) - dmin * (scale >> 4))
    return out


def q3_k(b: bytes) -> list[float]:
    mask, codes, packed, d = b[:32], b[32:96], b[96:108], half(b, 108)
    scales = [(packed[i % 8] >> (4 * (i // 8)) & 15 | (packed[8 + i % 4] >> (2 * (i // 4)) & 3) << 4) - 32 for i in range(16)]
    out = []
    for i in range(256):
        part, step, column = i // 128, i % 128 // 32, i % 32
        code = codes[32 * part + column] >> (2 * step) & 3
        high = mask[column] >> (4 * part + step) & 1
        out.append(d * scales[i // 16] * (code - (0 if high else 4)))
    return out


def scale_and_min(packed: bytes, j: int) -> tuple[int, int]:
    """The j-th of eight pairs of 6 bits in the 12 bytes of Q4_K and Q5_K."""
    if j < 4:
        return packed[j] & 63, packed[j + 4] & 63
    return packed[j + 4] & 15 | packed[j - 4] >> 6 << 4, packed[j + 4] >> 4 | packed[j] >> 6 << 4


def q4_k(b: bytes) -> list[float]:
    d, dmin, packed, codes = half(b, 0), half(b, 2), b[4:16], b[16:]
    out = []
    for i in range(256):
        scale, low = scale_and_min(packed, i // 32)
        code = codes[i // 64 * 32 + i % 32] >> (4 * (i // 32 % 2)) & 15
        out.append(d * scale * code - dmin * low)
    return out


def q5_k(b: bytes) -> list[float]:
    d, dmin, packed, high, codes = half(b, 0), half(b, 2), b[4:16], b[16:48], b[48:]
    out = []
    for i in range(256):
        scale, low = scale_and_min(packed, i // 32)
        code = codes[i // 64 * 32 + i % 32] >> (4 * (i // 32 % 2)) & 15 | (high[i % 32] >> (i // 32) & 1) << 4
        out.append(d * scale * code - dmin * low)
    return out


def q6_k(b: bytes) -> list[float]:
    low, high, scales, d = b[:128], b[128:192], struct.unpack("<16b", b[192:208]), half(b, 208)
    out = []
    for i in range(256):
        part, quarter, column = i // 128, i % 128 // 32, i % 32
        four = low[64 * part + 32 * (quarter % 2) + column] >> (4 * (quarter // 2)) & 15
        two = high[32 * part + column] >> (2 * quarter) & 3
        out.append(d * scales[i // 16] * ((four | two << 4) - 32))
    return out


def iq4_xs(b: bytes) -> list[float]:
    d, high, low, codes = half(b, 0), int.from_bytes(b[2:4], "little"), b[4:8], b[8:]
    out = []
    for i in range(256):
        group = i // 32
        scale = (low[group // 2] >> (4 * (group % 2)) & 15 | (high >> (2 * group) & 3) << 4) - 32
        out.append(d * scale * IQ4_NL_CODES[nibble(codes[16 * group :], i % 32)])
    return out


DECODERS: dict[str, Callable[[bytes], list[float]]] = {
    "Q4_0": q4_0, "Q4_1": q4_1, "Q5_0": q5_0, "Q5_1": q5_1, "Q8_0": q8_0, "IQ4_NL": iq4_nl,
    "Q2_K": q2_k, "Q3_K": q3_k, "Q4_K": q4_k, "Q5_K": q5_k, "Q6_K": q6_k,
    "IQ4_XS": iq4_xs,
}  # fmt: skip
HALVES = {"Q2_K": (80, 82), "Q3_K": (108,), "Q6_K": (208,), "Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2)}
"""Where a block has its fp16 numbers; 0 for the others."""


def random_blocks(name: str, count: int) -> np.ndarray:
    """Blocks of random codes, with fp16 numbers of a weight's size."""
    rng = np.random.default_rng(1)
    blocks = rng.integers(0, 256, (count, FORMATS[name].block_bytes), dtype=np.uint8)
    for offset in HALVES.get(name, (0,)):
        blocks[:, offset : offset + 2] = rng.normal(0, 0.05, (count, 1)).astype(np.float16).view(np.uint8)
    return blocks


@pytest.mark.parametrize("name", DECODERS)
def test_block_formats(name: str) -> None:
    rows, per_row = 5, 3
    weight_format = FORMATS[name]
    blocks = random_blocks(name, rows * per_row)
    shape = (rows, per_row * weight_format.block)
    values = dequantize(Weight("w", weight_format, shape, blocks.reshape(rows, -1)))
    assert values.dtype == np.float32
    expected = np.array([DECODERS[name](block.tobytes()) for block in blocks]).reshape(shape)
    np.testing.assert_allclose(values, expected, rtol=1e-6, atol=1e-7)


def test_every_format_is_covered() -> None:
    assert DECODERS.keys() | {"F32", "F16", "BF16"} == FORMATS.keys()


def test_floats() -> None:
    bits = np.array([[0x3F80, 0xC000], [0x7F80, 0x0001]], np.uint16)
    bf16 = dequantize(Weight("w", FORMATS["BF16"], (2, 2), bits.view(np.uint8)))
    assert bf16.tolist() == [[1.0, -2.0], [float("inf"), struct.unpack("<f", b"\0\0\1\0")[0]]]
    f16 = dequantize(Weight("w", FORMATS["F16"], (2,), np.array([1.5, -65504], np.float16).view(np.uint8)))
    assert (f16.dtype, f16.tolist()) == (np.float32, [1.5, -65504.0])
    f32 = dequantize(Weight("w", FORMATS["F32"], (1, 1), np.array([[0.1]], np.float32).view(np.uint8)))
    assert f32 == np.float32(0.1)
