"""Row-wise ops, rope and KV writes of the native module against octavo.ops.reference."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo import _native
from octavo.ops.reference import ROUNDINGS, activate, dequantize_q8, quantize_q8, rope_tables, round_bf16
from octavo.ops.spec import Activation, F32Array, Rope, RopeStyle
from support.native_cases import ISAS, POOL, POOL_2, run

ON_ALL_ISAS = pytest.mark.parametrize("isa", ISAS)
COLUMNS = (1, 16, 33, 80, 576)
"""Odd sizes, and a real one."""


def rows(count: int, columns: int, seed: int = 0, size: float = 3.0) -> F32Array:
    return (np.random.default_rng(seed).standard_normal((count, columns)) * size).astype(np.float32)


def apply(
    isa: str,
    kind: str,
    inputs: list[F32Array],
    out_kind: str = "f32",
    weights: list[F32Array] | None = None,
    ints: tuple[int, ...] = (),
    floats: tuple[float, ...] = (),
    pool: _native.ThreadPool = POOL,
    in_place: bool = False,
) -> F32Array:
    """One op over fp32 rows, its output dequantized."""
    program = _native.Program(isa, pool)
    buffers = [program.add_buffer("f32", x.shape[1], "tokens") for x in inputs]
    out = buffers[0] if in_place else program.add_buffer(out_kind, inputs[0].shape[1], "tokens")
    program.add_op(kind, buffers, [out], weights or [], ints, floats)
    result = program.add_buffer("f32", inputs[0].shape[1], "tokens")
    program.add_op("add", [buffers[0], buffers[0]], [result], [], [], [])  # a program's result is fp32
    for buffer, x in zip(buffers, inputs, strict=True):
        program.write(buffer, x)
    run(program, inputs[0].shape[0])
    return program.read(out)


def quantized(x: F32Array) -> F32Array:
    padded = np.pad(x, ((0, 0), (0, -x.shape[1] % 32)))
    return dequantize_q8(*quantize_q8(padded))[:, : x.shape[1]]


AS_STORED: dict[str, Callable[[F32Array], F32Array]] = {"f32": lambda x: x, "q8": quantized, "bf16": round_bf16}


@ON_ALL_ISAS
@pytest.mark.parametrize("columns", COLUMNS)
def test_rms_norm_is_the_reference_and_quantizes_its_own_output(isa: str, columns: int) -> None:
    x, weight = rows(5, columns), rows(1, columns, 1)[0]
    x[1] = 0.0
    expected = x / np.sqrt(np.mean(x.astype(np.float64) ** 2, axis=1, keepdims=True) + 1e-5) * weight
    normed = apply(isa, "rms_norm", [x], weights=[weight], ints=(1,), floats=(1e-5,))
    np.testing.assert_allclose(normed, expected, rtol=3e-6, atol=1e-6)
    assert np.array_equal(apply(isa, "rms_norm", [x], weights=[weight], ints=(1,), floats=(1e-5,), in_place=True), normed)
    for kind in ("q8", "bf16"):
        stored = apply(isa, "rms_norm", [x], kind, [weight], (1,), (1e-5,), POOL_2)
        np.testing.assert_allclose(stored, AS_STORED[kind](normed), rtol=1e-6)


@ON_ALL_ISAS
@pytest.mark.parametrize(("heads", "head_dim"), [(3, 64), (5, 80), (2, 17)])
def test_rms_norm_of_each_head(isa: str, heads: int, head_dim: int) -> None:
    x, weight = rows(4, heads * head_dim), rows(1, head_dim, 1)[0]
    parts = x.reshape(4, heads, head_dim).astype(np.float64)
    expected = parts / np.sqrt((parts**2).mean(-1, keepdims=True) + 1e-6) * weight
    got = apply(isa, "rms_norm", [x], weights=[weight], ints=(heads,), floats=(1e-6,))
    np.testing.assert_allclose(got, expected.reshape(x.shape), rtol=3e-6, atol=1e-6)
    if head_dim % 32:
        with pytest.raises(ValueError, match=f"heads of {head_dim} columns"):
            apply(isa, "rms_norm", [x], "q8", [weight], (heads,), (1e-6,))
    else:
        stored = apply(isa, "rms_norm", [x], "q8", [weight], (heads,), (1e-6,))
        np.testing.assert_allclose(stored, quantized(got), rtol=1e-6)


@ON_ALL_ISAS
@pytest.mark.parametrize("columns", COLUMNS)
def test_quantize_gives_the_reference_codes(isa: str, columns: int) -> None:
    """Ties to even too: with an absolute maximum of 127 the codes are the rounded numbers themselves."""
    x = rows(6, columns)
    x[0], x[1] = 0.0, np.arange(columns) % 255 - 127 + 0.5
    x[1, ::32] = 127.0
    np.testing.assert_allclose(apply(isa, "quantize", [x], "q8", pool=POOL_2), quantized(x), rtol=1e-6)
    assert np.array_equal(apply(isa, "quantize", [x], "bf16"), round_bf16(x))


@ON_ALL_ISAS
@pytest.mark.parametrize("activation", list(Activation))
def test_gated_act_and_its_output_kinds(isa: str, activation: Activation) -> None:
    gate, up = rows(4, 80, size=5.0), rows(4, 80, 1)
    gate[0, :6] = (0.0, -0.0, 60.0, -60.0, 120.0, -120.0)
    gate[1] *= 1e-4
    expected = activate(gate.astype(np.float64), activation) * up
    plain = apply(isa, "gated_act", [gate, up], ints=(int(activation),))
    np.testing.assert_allclose(plain, expected, rtol=2e-6, atol=1e-7)
    for kind in ("q8", "bf16"):
        stored = apply(isa, "gated_act", [gate, up], kind, ints=(int(activation),), pool=POOL_2)
        # What is rounded anyway is within 2^-18 before that: no further from the exact value than the rounded one, but for as much, and for
        # what an exponent of size s, known to s · 2^-24, leaves unknown.
        exponent = 1.6 * np.abs(gate + 0.045 * gate**3) if activation == Activation.GELU_TANH else np.abs(gate)
        slack = (2.0**-16 + 3e-7 * np.minimum(exponent, 90)) * np.abs(plain) + 1e-35
        assert (np.abs(stored - plain) <= np.abs(AS_STORED[kind](plain) - plain) + slack).all()


@ON_ALL_ISAS
@pytest.mark.parametrize("columns", COLUMNS)
def test_add_and_softcap(isa: str, columns: int) -> None:
    a, b = rows(7, columns), rows(7, columns, 1)
    assert np.array_equal(apply(isa, "add", [a, b], in_place=True), a + b)
    for size in (1e-3, 1.0, 30.0):
        x = rows(7, columns, size=size)
        got = apply(isa, "softcap", [x], floats=(30.0,))
        np.testing.assert_allclose(got, 30 * np.tanh(x.astype(np.float64) / 30), rtol=1e-6)


@ON_ALL_ISAS
def test_gather_picks_the_rows_whose_logits_are_wanted(isa: str) -> None:
    program = _native.Program(isa, POOL_2)
    x, out = program.add_buffer("f32", 33, "tokens"), program.add_buffer("f32", 33, "logits")
    program.add_op("gather", [x], [out], [], [], [])
    values, wanted = rows(50, 33), np.array([0, 7, 31, 49], np.int32)
    program.write(x, values)
    tokens = np.arange(50, dtype=np.int32)
    ends = np.array([0, 50], np.int32)
    assert np.array_equal(program.run(None, tokens * 0, tokens, ends, ends[1:], [], [], wanted), values[wanted])


@given(seed=st.integers(0, 99), count=st.integers(1, 70), isa=st.sampled_from(ISAS), kind=st.sampled_from(["f32", "q8", "bf16"]))
@settings(max_examples=25, deadline=None)
def test_a_row_has_the_same_bits_alone_and_among_others(seed: int, count: int, isa: str, kind: str) -> None:
    x, weight = rows(count, 96, seed), rows(1, 96, 1)[0]
    together = apply(isa, "rms_norm", [x], kind, [weight], (1,), (1e-5,), POOL_2)
    r = seed % count
    assert np.array_equal(apply(isa, "rms_norm", [x[r : r + 1]], kind, [weight], (1,), (1e-5,)), together[r : r + 1])
    act = apply(isa, "gated_act", [x, x[::-1].copy()], kind, ints=(0,), pool=POOL_2)
    assert np.array_equal(apply(isa, "gated_act", [x[r : r + 1], x[::-1][r : r + 1].copy()], kind, ints=(0,)), act[r : r + 1])


def rope_reference(x: F32Array, heads: int, rope: Rope, positions: np.ndarray) -> np.ndarray:
    cos, sin = (table[:, None].astype(np.float64) for table in rope_tables(positions, rope))
    y = x.reshape(len(x), heads, -1).astype(np.float64)
    n, half = len(rope.inv_freq), rope.style == RopeStyle.HALF
    first, second = (slice(0, n), slice(n, 2 * n)) if half else (slice(0, 2 * n, 2), slice(1, 2 * n, 2))
    a, b = y[..., first].copy(), y[..., second].copy()
    y[..., first], y[..., second] = a * cos - b * sin, b * cos + a * sin
    return y.reshape(x.shape)


ROPES = [
    Rope(tuple(10000.0 ** -(np.arange(32) / 32)), RopeStyle.HALF),
    Rope(tuple(10000.0 ** -(np.arange(32) / 32)), RopeStyle.INTERLEAVED),
    Rope(tuple(500.0 ** -(np.arange(13) / 13)), RopeStyle.HALF, 1.25),
    Rope(tuple(500.0 ** -(np.arange(13) / 13)), RopeStyle.INTERLEAVED, 1.25),
]


class RopeAndWrite:
    """Rotates q and k and stores k and v, in one op or two."""

    def __init__(self, isa: str, rope: Rope, dtype: str, block_size: int, fused: bool) -> None:
        self.kv = _native.KVStorage(isa, 1, 12, block_size, 2, 64, dtype)
        self.program = program = _native.Program(isa, POOL_2)
        self.q, self.k, self.v = (program.add_buffer("f32", 64 * heads, "tokens") for heads in (3, 2, 2))
        inv_freq = np.asarray(rope.inv_freq, np.float64)
        style, scale = int(rope.style), rope.mscale
        if fused:
            program.add_op("rope_kv_write", [self.q, self.k, self.v], [self.q], [inv_freq], [3, 2, 64, style, 0, 0], [scale])
        else:
            program.add_op("rope", [self.k], [self.k], [inv_freq], [2, 64, style], [scale])
            program.add_op("kv_write", [self.k, self.v], [], [], [0, 0], [])
            program.add_op("rope", [self.q], [self.q], [inv_freq], [3, 64, style], [scale])
        self.out = program.add_buffer("f32", 64 * 3, "tokens")
        program.add_op("add", [self.q, self.q], [self.out], [], [], [])

    def run(self, q: F32Array, k: F32Array, v: F32Array, positions: np.ndarray, slots: np.ndarray) -> F32Array:
        for buffer, values in ((self.q, q), (self.k, k), (self.v, v)):
            self.program.write(buffer, values)
        ends, tables = np.array([0, len(q)], np.int32), [np.zeros((1, 1), np.int32)]
        length = np.array([positions[-1] + 1], np.int32)
        self.program.run(self.kv, positions * 0, positions, ends, length, tables, [slots], positions[:0])
        return self.program.read(self.q)


@ON_ALL_ISAS
@pytest.mark.parametrize("rope", ROPES, ids=["half", "interleaved", "partial half", "partial interleaved"])
@pytest.mark.parametrize(("dtype", "block_size"), [("bf16", 16), ("fp16", 8), ("fp32", 32)])
def test_rope_and_kv_write_fused_or_not(isa: str, rope: Rope, dtype: str, block_size: int) -> None:
    q, k, v = rows(41, 192), rows(41, 128, 1), rows(41, 128, 2)
    v[3, 5], v[4, 6] = 7e4, -1e6
    positions = np.arange(3000, 3041, dtype=np.int32)
    slots = np.random.default_rng(3).permutation(12 * block_size)[:41].astype(np.int32)
    fused, apart = (RopeAndWrite(isa, rope, dtype, block_size, fused) for fused in (True, False))
    rotated = fused.run(q, k, v, positions, slots)
    np.testing.assert_allclose(rotated, rope_reference(q, 3, rope, positions), rtol=1e-6, atol=2e-6)
    assert np.array_equal(apart.run(q, k, v, positions, slots), rotated)
    k_rotated = apart.program.read(apart.k)
    for storage in (fused.kv, apart.kv):
        blocks = [storage.read(0, block) for block in range(12)]
        stored_k, stored_v = (np.concatenate(part)[slots].reshape(41, -1) for part in zip(*blocks, strict=True))
        assert np.array_equal(stored_k, ROUNDINGS[dtype](k_rotated))
        assert np.array_equal(stored_v, ROUNDINGS[dtype](v))
        unused = np.setdiff1d(np.arange(12 * block_size), slots)
        assert not np.concatenate([k_block for k_block, _ in blocks])[unused].any()


@ON_ALL_ISAS
def test_storage_is_as_large_as_its_numbers_and_read_checks_bounds(isa: str) -> None:
    for dtype, size in (("bf16", 2), ("fp16", 2), ("fp32", 4)):
        storage = _native.KVStorage(isa, 3, 5, 8, 2, 48, dtype)
        assert storage.nbytes == 2 * 3 * 5 * 8 * 2 * 48 * size
    for layer, block in ((3, 0), (0, 5)):
        with pytest.raises((ValueError, IndexError)):
            storage.read(layer, block)
