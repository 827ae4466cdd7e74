"""The reference ops against torch and against arithmetic by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from octavo.ops.reference import (
    ReferenceKV,
    ReferenceOps,
    activate,
    attend,
    dequantize_q8,
    quantize_q8,
    rope_tables,
    round_bf16,
    round_fp16,
)
from octavo.ops.spec import Activation, AttentionSpec, Parameter, Rope, RopeStyle
from support.steps import single_sequence_step


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def ops_with(**matrices: np.ndarray) -> ReferenceOps:
    ops = ReferenceOps(matrices, ReferenceKV([], []))
    ops.inputs = single_sequence_step([1, 5, 3], 7, [0, 1])
    return ops


def parameter(name: str, *shape: int) -> Parameter:
    return Parameter(name, shape, ("a", "b")[: len(shape)], name, name)


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=40))
def test_round_bf16_is_torchs(values: list[float]) -> None:
    x = np.asarray(values, np.float32)
    want = torch.from_numpy(x.copy()).bfloat16().float().numpy()
    np.testing.assert_array_equal(round_bf16(x), want)


def test_round_fp16_saturates_instead_of_overflowing() -> None:
    got = round_fp16(np.asarray([1.0009765625 + 2**-12, 70000.0, -1e9], np.float32))
    np.testing.assert_array_equal(got, np.asarray([1.0009765625, 65504, -65504], np.float32))


@given(st.integers(1, 4), st.integers(1, 3), st.integers(0, 1000), st.sampled_from([1, 5, 1e6]))
def test_q8_errs_by_at_most_half_a_step(rows: int, groups: int, seed: int, largest: float) -> None:
    x = random(rows, 32 * groups, seed=seed) * 10
    x[:, 7] *= largest
    codes, scales, outliers = quantize_q8(x)
    error = np.abs(dequantize_q8(codes, scales, outliers) - x).reshape(rows, groups, 32).max(-1)
    assert (error <= 0.5001 * scales + 1e-12).all()
    assert np.abs(codes.astype(int)).reshape(rows, groups, 32).max(-1).min() == 127


@pytest.mark.parametrize(("largest", "apart"), [(3.0, False), (3.001, True), (-3.001, True), (1e30, True)])
def test_q8_keeps_a_value_that_is_three_times_every_other(largest: float, apart: bool) -> None:
    x = np.linspace(-1, 1, 32, dtype=np.float32)[None]
    x[0, 11] = largest
    codes, scales, outliers = quantize_q8(x)
    assert np.flatnonzero(outliers).tolist() == ([11] if apart else [])
    assert scales[0, 0] == np.float32(1 if apart else abs(largest)) / np.float32(127)
    assert (codes[0, 11] == 0) == apart
    if apart:
        assert dequantize_q8(codes, scales, outliers)[0, 11] == np.float32(largest)


def test_q8_of_two_equal_outliers_keeps_neither() -> None:
    x = np.full((1, 32), 0.5, np.float32)
    x[0, [3, 30]] = 100, -100
    codes, _, outliers = quantize_q8(x)
    assert not outliers.any() and codes[0, 3] == 127 and codes[0, 30] == -127


def test_q8_of_one_value_alone_is_exact() -> None:
    x = np.zeros((1, 32), np.float32)
    x[0, 5] = 0.1
    np.testing.assert_array_equal(dequantize_q8(*quantize_q8(x)), x)


def test_q8_of_zeros_is_zero() -> None:
    codes, scales, outliers = quantize_q8(np.zeros((1, 32), np.float32))
    assert not codes.any() and not scales.any() and not outliers.any()


def test_rms_norm_of_rows_and_heads() -> None:
    x, w, v = random(3, 12), random(12, seed=1), random(4, seed=2)
    ops = ops_with(w=w, v=v)
    want = torch.nn.functional.rms_norm(torch.from_numpy(x), (12,), torch.from_numpy(w), 1e-5).numpy()
    np.testing.assert_allclose(ops.rms_norm(x, parameter("w", 12), 1e-5), want, rtol=1e-5, atol=1e-6)
    heads = torch.nn.functional.rms_norm(torch.from_numpy(x).view(3, 3, 4), (4,), torch.from_numpy(v), 1e-5)
    np.testing.assert_allclose(ops.rms_norm(x, parameter("v", 4), 1e-5, heads=3), heads.reshape(3, 12).numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("style", RopeStyle)
def test_rope_turns_pairs_as_complex_numbers(style: RopeStyle) -> None:
    x, rope = random(3, 2 * 10), Rope((1.0, 0.3, 0.01), style)
    got = ops_with().rope(x, 2, rope).reshape(3, 2, 10)
    heads = x.reshape(3, 2, 10)
    for t, position in enumerate((7, 8, 9)):
        for j, frequency in enumerate(rope.inv_freq):
            a, b = (j, j + 3) if style == RopeStyle.HALF else (2 * j, 2 * j + 1)
            turned = (heads[t, :, a] + 1j * heads[t, :, b]) * np.exp(1j * position * frequency)
            np.testing.assert_allclose(got[t, :, a], turned.real, atol=1e-5)
            np.testing.assert_allclose(got[t, :, b], turned.imag, atol=1e-5)
    np.testing.assert_array_equal(got[..., 6:], heads[..., 6:])


def test_rope_tables_stay_exact_at_far_positions() -> None:
    cos, sin = rope_tables(np.asarray([131071], np.int32), Rope((1.0,), RopeStyle.HALF, mscale=2.0))
    assert cos[0, 0] == np.float32(2 * np.cos(131071.0)) and sin[0, 0] == np.float32(2 * np.sin(131071.0))


@pytest.mark.parametrize("window", [0, 5])
def test_attention_is_torchs(window: int) -> None:
    q, k, v = random(6, 4, 8), random(20, 2, 8, seed=1), random(20, 2, 8, seed=2)
    positions = np.arange(14, 20, dtype=np.int32)
    got = attend(q, k, v, positions, AttentionSpec(4, 0.25, window))
    keys = torch.arange(20)
    mask = keys <= torch.from_numpy(positions)[:, None]
    if window:
        mask &= keys > torch.from_numpy(positions)[:, None] - window
    torch_q, torch_k, torch_v = (torch.from_numpy(x).transpose(0, 1) for x in (q, k, v))
    want = torch.nn.functional.scaled_dot_product_attention(torch_q, torch_k, torch_v, mask, scale=0.25, enable_gqa=True)
    np.testing.assert_allclose(got, want.transpose(0, 1).numpy(), atol=1e-5)


def test_attention_softcap_and_sinks_by_hand() -> None:
    q, k, v = np.ones((1, 1, 1), np.float32), np.asarray([[[1.0]], [[3.0]]], np.float32), np.asarray([[[10.0]], [[20.0]]], np.float32)
    spec = AttentionSpec(1, 1.0, softcap=2.0, sinks=parameter("s", 1))
    got = attend(q, k, v, np.asarray([1], np.int32), spec, np.asarray([0.5], np.float32))
    weights = np.exp([2 * np.tanh(0.5), 2 * np.tanh(1.5), 0.5])
    assert got[0, 0, 0] == pytest.approx((weights[0] * 10 + weights[1] * 20) / weights.sum(), rel=1e-6)


@pytest.mark.parametrize(
    ("activation", "oracle"),
    [(Activation.SILU, torch.nn.functional.silu), (Activation.GELU_TANH, lambda x: torch.nn.functional.gelu(x, approximate="tanh"))],
)
def test_activations_are_torchs(activation: Activation, oracle: object) -> None:
    x = random(4, 50) * 4
    np.testing.assert_allclose(activate(x, activation), oracle(torch.from_numpy(x)).numpy(), rtol=1e-5, atol=1e-6)  # type: ignore[operator]


def test_linear_rounds_its_input_as_the_format_says() -> None:
    x, w = random(2, 64), random(5, 64, seed=1)
    ops = ReferenceOps({"w": w}, ReferenceKV([], []), {"w": "bf16"})
    want = torch.from_numpy(x).bfloat16().float() @ torch.from_numpy(w).T
    np.testing.assert_allclose(ops.linear(x, parameter("w", 5, 64)), want.numpy(), rtol=1e-5, atol=1e-5)
    ops = ReferenceOps({"w": w}, ReferenceKV([], []), {"w": "q8"})
    np.testing.assert_allclose(ops.linear(x, parameter("w", 5, 64)), dequantize_q8(*quantize_q8(x)) @ w.T, rtol=1e-6)
