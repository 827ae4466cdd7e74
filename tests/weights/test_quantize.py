"""What the quantizers lose, against bounds by arithmetic, and their layout, against the gguf package's decoder."""

from __future__ import annotations

import gguf.quants
import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType
from hypothesis import given
from hypothesis import strategies as st

from octavo.weights.quantize import ENCODERS, to_bf16, to_f32, to_q4_1, to_q8_0

F16_ROUNDING = 2.0**-11
F16_TINY = 2.0**-25

matrices = hnp.arrays(np.float32, (2, 64), elements=st.floats(-1000, 1000, width=32) | st.floats(-(2**-10), 2**-10, width=32))


def decode(packed: np.ndarray, name: str) -> np.ndarray:
    return gguf.quants.dequantize(packed, GGMLQuantizationType[name]).reshape(2, 2, 32)


@given(matrices)
def test_q8_0_error_is_half_a_step(x: np.ndarray) -> None:
    blocks = x.reshape(2, 2, 32).astype(np.float64)
    packed = to_q8_0(x)
    assert packed.shape == (2, 2 * 34)
    error = np.abs(decode(packed, "Q8_0") - blocks)
    largest = np.abs(blocks).max(axis=-1, keepdims=True)
    step = largest / 127
    assert (error <= step / 2 * (1 + 4 * F16_ROUNDING) + largest * F16_ROUNDING + 127 * F16_TINY).all()


@given(matrices)
def test_q4_1_error_is_half_a_step(x: np.ndarray) -> None:
    blocks = x.reshape(2, 2, 32).astype(np.float64)
    packed = to_q4_1(x)
    assert packed.shape == (2, 2 * 20)
    error = np.abs(decode(packed, "Q4_1") - blocks)
    low, high = blocks.min(axis=-1, keepdims=True), blocks.max(axis=-1, keepdims=True)
    rounding = (np.abs(low) + (high - low)) * 2 * F16_ROUNDING + 16 * F16_TINY
    assert (error <= (high - low) / 15 / 2 + rounding).all()


def test_codes_that_are_exact() -> None:
    ramp = np.tile(np.arange(-127, 128, 8, dtype=np.float32), (2, 2))
    ramp[:, -1] = 127
    assert np.array_equal(decode(to_q8_0(ramp), "Q8_0").reshape(2, 64), ramp)
    nibbles = np.tile(np.arange(16, dtype=np.float32) - 3, (2, 4))
    assert np.array_equal(decode(to_q4_1(nibbles), "Q4_1").reshape(2, 64), nibbles)
    zeros = np.zeros((2, 64), np.float32)
    assert not decode(to_q8_0(zeros), "Q8_0").any()
    assert not decode(to_q4_1(zeros), "Q4_1").any()


def test_no_worse_than_the_gguf_package() -> None:
    x = np.random.default_rng(2).normal(0, 0.02, (2, 64)).astype(np.float32)
    for name in ("Q8_0", "Q4_1"):
        theirs = gguf.quants.quantize(x, GGMLQuantizationType[name])
        errors = [np.square(decode(packed, name).reshape(2, 64) - x).mean() for packed in (ENCODERS[name](x), theirs)]
        assert errors[0] <= errors[1] * 1.02


@given(hnp.arrays(np.uint32, (2, 64), elements=st.integers(0, 2**32 - 1)))
def test_bf16_is_the_nearest_ties_to_even(bits: np.ndarray) -> None:
    x = bits.view(np.float32)
    found = (to_bf16(x).view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    nan = np.isnan(x)
    assert np.isnan(found[nan]).all()
    low = (bits & 0xFFFF0000)[~nan]
    rest = (bits & 0xFFFF)[~nan]
    up = (rest > 0x8000) | ((rest == 0x8000) & (low >> 16 & 1 == 1))
    assert np.array_equal(found[~nan].view(np.uint32), low + up.astype(np.uint32) * 0x10000)


def test_f32_is_the_same_bytes() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert to_f32(x).tobytes() == x.tobytes()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("name", ["Q8_0", "Q4_1"])
def test_values_that_cannot_be_quantized(name: str, value: float) -> None:
    x = np.ones((1, 32), np.float32)
    x[0, 5] = value
    with pytest.raises(ValueError, match="not finite or too large"):
        ENCODERS[name](x)
