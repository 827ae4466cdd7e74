"""Packed weights and matrix kernels against gguf's dequantization and float64 products."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo import _native
from octavo.ops.reference import dequantize_q8, quantize_q8, round_bf16
from octavo.weights.formats import FORMATS, WeightFormat
from support.native_cases import ISAS, POOL, POOL_2, as_activation, dequantized, linear, packed, random_stored, run

ALL = pytest.mark.parametrize("name", list(FORMATS))
ON_ALL_ISAS = pytest.mark.parametrize("isa", ISAS)


def rows(tokens: int, columns: int, seed: int = 1) -> np.ndarray:
    """Normal values, of which one in fifty is a hundred times as large: groups with one outlier, with several, and with none. Three columns
    are that large in most rows, as trained models have them; two of these may be of one group."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((tokens, columns)) * np.where(rng.random((tokens, columns)) < 0.02, 100, 1)
    x[:, [0, columns // 2, min(columns // 2 + 1, columns - 1)]] *= np.where(rng.random((tokens, 3)) < 0.7, 100, 1)
    return x.astype(np.float32)


def columns_for(fmt: WeightFormat, blocks: int) -> int:
    return blocks * fmt.block if fmt.quantized else 37 * blocks


def products(fmt: WeightFormat, w: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """x · wᵀ in float64 as ``Ops.linear`` defines it, and how far fp32 sums in any order may be from it.

    A sum of n terms errs by at most n · 2^-24 times the sum of its terms' sizes (Higham, Accuracy and Stability, 4.2). Affine formats add
    scale · code and an offset, each at most twice the group's largest weight; so do a group's outliers.
    """
    if fmt.quantized:
        x = dequantize_q8(*quantize_q8(x))
    elif fmt.name == "BF16":
        x = round_bf16(x)
    group = 32 if fmt.quantized else 1
    largest = np.repeat(np.abs(w).reshape(w.shape[0], -1, group).max(-1), group, axis=1)
    terms = 6 * (w.shape[1] // group) + 8
    bound = terms * 2.0**-24 * (np.abs(x).astype(np.float64) @ largest.T.astype(np.float64))
    return x.astype(np.float64) @ w.T.astype(np.float64), bound + 1e-30


@ALL
@ON_ALL_ISAS
def test_unpacked_weights_are_what_gguf_dequantizes_bit_for_bit(isa: str, name: str) -> None:
    fmt = FORMATS[name]
    for out in (1, 16, 35):
        data = random_stored(fmt, out, columns_for(fmt, 3), seed=out)
        weight = packed(isa, fmt, data)
        assert weight.shape == (out, columns_for(fmt, 3))
        np.testing.assert_array_equal(weight.unpack(), dequantized(fmt, data))


@ALL
@ON_ALL_ISAS
def test_linear_is_the_product_at_any_number_of_rows(isa: str, name: str) -> None:
    fmt = FORMATS[name]
    data = random_stored(fmt, 53, columns_for(fmt, 3), seed=7)
    weight = packed(isa, fmt, data)
    x = rows(70, weight.shape[1])
    want, bound = products(fmt, dequantized(fmt, data), x)
    whole = linear(isa, [weight], x)[0]
    assert (np.abs(whole - want) <= bound).all()
    for count in [*range(1, 27), 63, 70]:
        np.testing.assert_array_equal(linear(isa, [weight], x[:count])[0], whole[:count])


@ON_ALL_ISAS
@pytest.mark.parametrize("name", ["Q4_1", "Q6_K", "BF16", "F32"])
def test_bits_depend_on_neither_threads_nor_chunks(isa: str, name: str) -> None:
    fmt = FORMATS[name]
    weight = packed(isa, fmt, random_stored(fmt, 200, columns_for(fmt, 2), seed=3))
    x = rows(130, weight.shape[1])
    whole = linear(isa, [weight], x, pool=POOL_2)[0]
    np.testing.assert_array_equal(linear(isa, [weight], x, pool=POOL)[0], whole)
    for chunk in (1, 7, 16, 64):
        parts = [linear(isa, [weight], x[i : i + chunk], pool=POOL_2)[0] for i in range(0, len(x), chunk)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_linear_at_odd_sizes(data: st.DataObject) -> None:
    fmt = FORMATS[data.draw(st.sampled_from(list(FORMATS)))]
    isa = data.draw(st.sampled_from(ISAS))
    columns = fmt.block * data.draw(st.integers(1, 4 if fmt.super_block else 40))
    out, tokens = data.draw(st.integers(1, 100)), data.draw(st.integers(1, 30))
    stored = random_stored(fmt, out, columns, seed=data.draw(st.integers(0, 99)))
    x = rows(tokens, columns, seed=out)
    want, bound = products(fmt, dequantized(fmt, stored), x)
    pool = data.draw(st.sampled_from([POOL, POOL_2]))
    assert (np.abs(linear(isa, [packed(isa, fmt, stored)], x, pool=pool)[0] - want) <= bound).all()


@ON_ALL_ISAS
def test_several_weights_of_unlike_formats_share_an_input(isa: str) -> None:
    formats = [FORMATS[name] for name in ("Q5_0", "Q5_0", "Q8_0", "Q6_K")]
    stored = [random_stored(f, n, 256, seed=n) for f, n in zip(formats, (64, 24, 24, 40), strict=True)]
    weights = [packed(isa, f, s) for f, s in zip(formats, stored, strict=True)]
    x = rows(5, 256)
    together = linear(isa, weights, x, pool=POOL_2)
    for weight, y in zip(weights, together, strict=True):
        np.testing.assert_array_equal(y, linear(isa, [weight], x)[0])


@ON_ALL_ISAS
def test_bias_and_residual_are_added_in_this_order(isa: str) -> None:
    fmt = FORMATS["Q4_0"]
    weight = packed(isa, fmt, random_stored(fmt, 40, 64, seed=5))
    x, residual, bias = rows(13, 64), rows(13, 40, seed=2), rows(1, 40, seed=3)[0]
    plain = linear(isa, [weight], x)[0]
    np.testing.assert_array_equal(linear(isa, [weight], x, biases=[bias])[0], plain + bias)
    np.testing.assert_array_equal(linear(isa, [weight], x, biases=[bias], residuals=[residual])[0], (plain + bias) + residual)


@ON_ALL_ISAS
def test_a_residual_may_be_its_own_output(isa: str) -> None:
    fmt = FORMATS["Q4_1"]
    weight = packed(isa, fmt, random_stored(fmt, 40, 64, seed=5))
    x, residual = rows(30, 64), rows(30, 40, seed=2)
    program = _native.Program(isa, POOL_2)
    source, out = program.add_buffer("f32", 64, "tokens"), program.add_buffer("f32", 40, "tokens")
    program.write(source, x)
    program.write(out, residual)
    quantized = as_activation(program, source, weight, 64)
    program.add_op("linear", [quantized, out], [out], [weight, None], [1, 1], [])
    np.testing.assert_array_equal(run(program, 30), linear(isa, [weight], x)[0] + residual)


@ON_ALL_ISAS
@pytest.mark.parametrize("kind", ["f32", "q8", "bf16"])
@pytest.mark.parametrize("activation", [0, 1])
@pytest.mark.parametrize("out", [8, 72, 96])
def test_gated_linear_is_its_three_ops(isa: str, kind: str, activation: int, out: int) -> None:
    gate_format, up_format = FORMATS["Q4_1"], FORMATS["Q8_0"]
    gate = packed(isa, gate_format, random_stored(gate_format, out, 96, seed=11))
    up = packed(isa, up_format, random_stored(up_format, out, 96, seed=12))
    x = rows(17, 96)
    fused, unfused = _native.Program(isa, POOL_2), _native.Program(isa, POOL)
    for program in (fused, unfused):
        source = program.add_buffer("f32", 96, "tokens")
        program.write(source, x)
        quantized = as_activation(program, source, gate, 96)
        result = program.add_buffer(kind, out, "tokens")
        if program is fused:
            program.add_op("gated_linear", [quantized], [result], [gate, up], [activation], [])
        else:
            parts = [program.add_buffer("f32", out, "tokens") for _ in range(2)]
            program.add_op("linear", [quantized], parts, [gate, up, None, None], [2, 0], [])
            program.add_op("gated_act", parts, [result], [], [activation], [])
        last = program.add_buffer("f32", 96, "tokens")
        program.add_op("add", [source, source], [last], [], [], [])
        run(program, 17)
    np.testing.assert_array_equal(fused.read(result), unfused.read(result))


@ON_ALL_ISAS
def test_a_row_that_is_not_finite_is_the_same_in_any_company(isa: str) -> None:
    fmt = FORMATS["Q4_1"]
    gate, up = (packed(isa, fmt, random_stored(fmt, 96, 96, seed=seed)) for seed in (11, 12))

    def gated(x: np.ndarray) -> np.ndarray:
        program = _native.Program(isa, POOL)
        source = program.add_buffer("f32", 96, "tokens")
        program.write(source, x)
        quantized, result = as_activation(program, source, gate, 96), program.add_buffer("q8", 96, "tokens")
        program.add_op("gated_linear", [quantized], [result], [gate, up], [0], [])
        last = program.add_buffer("f32", 96, "tokens")
        program.add_op("add", [source, source], [last], [], [], [])
        run(program, len(x))
        return program.read(result)

    x = rows(13, 96)
    x[3, 40], x[3, 70] = np.inf, np.nan
    alone = gated(x[3:4])
    for first in range(4):
        for end in range(4, 14):
            np.testing.assert_array_equal(gated(x[first:end])[3 - first], alone[0])


@ALL
@ON_ALL_ISAS
def test_embed_reads_rows_and_scales_them(isa: str, name: str) -> None:
    fmt = FORMATS[name]
    data = random_stored(fmt, 50, columns_for(fmt, 1), seed=9)
    program = _native.Program(isa, POOL_2)
    out = program.add_buffer("f32", columns_for(fmt, 1), "tokens")
    program.add_op("embed", [], [out], [packed(isa, fmt, data)], [], [1.75])
    ids = np.array([49, 0, 16, 15, 49, 31], np.int32)
    np.testing.assert_array_equal(run(program, 6, ids), dequantized(fmt, data)[ids] * np.float32(1.75))


def test_packed_size_is_the_formats_own_width() -> None:
    want = {"Q4_0": 4.5, "Q4_1": 5, "Q5_0": 5.5, "Q5_1": 6, "Q8_0": 8.5, "Q4_K": 4.625, "Q5_K": 5.625, "Q6_K": 6.5625, "IQ4_NL": 4.5}
    want |= {"Q2_K": 2.625, "Q3_K": 3.5625, "IQ4_XS": 4.3125, "F16": 16, "BF16": 16, "F32": 32}
    assert set(want) == set(FORMATS)
    for name, bits in want.items():
        weight = packed(ISAS[0], FORMATS[name], random_stored(FORMATS[name], 32, 512, seed=0))
        assert weight.nbytes * 8 == bits * 32 * 512, name
        assert weight.run_format == name


def test_small_matrices_share_memory_and_are_their_own() -> None:
    fmt = FORMATS["Q4_1"]
    data = [random_stored(fmt, 48, 64, seed=i) for i in range(40)]
    before = _native.counters()[0]
    weights = [packed(ISAS[0], fmt, each) for each in data]
    assert _native.counters()[0] - before <= 1  # not one allocation each
    del weights[::2]  # a part that goes takes no other with it
    again = packed(ISAS[0], fmt, data[0])
    for weight, each in zip([*weights, again], [*data[1::2], data[0]], strict=True):
        np.testing.assert_array_equal(weight.unpack(), dequantized(fmt, each))


def test_weights_are_refused_with_the_reason() -> None:
    data = np.zeros(18, np.uint8)
    with pytest.raises(ValueError, match="format: 'Q9' is not a weight format"):
        _native.PackedWeight(ISAS[0], POOL, "Q9", 1, 32, data)
    with pytest.raises(ValueError, match="columns: 33 is not a positive multiple of 32"):
        _native.PackedWeight(ISAS[0], POOL, "Q4_0", 1, 33, data)
    with pytest.raises(ValueError, match=r"data: 18 bytes, where \[2, 32\] Q4_0 takes 36"):
        _native.PackedWeight(ISAS[0], POOL, "Q4_0", 2, 32, data)
    with pytest.raises(ValueError, match="rows: 0"):
        _native.PackedWeight(ISAS[0], POOL, "Q4_0", 0, 32, data)


def test_cpu_05_en_09_an_isa_that_is_lacking_is_refused() -> None:
    for isa in ("amx", "avx512" if "avx512" not in ISAS else "avx1024"):
        with pytest.raises(ValueError, match=f"this CPU cannot run '{isa}'; it can run"):
            _native.PackedWeight(isa, POOL, "Q4_0", 1, 32, np.zeros(18, np.uint8))
        with pytest.raises(ValueError, match="cannot run"):
            _native.Program(isa, POOL)


@pytest.mark.skipif(len(ISAS) < 2, reason="one instruction set only")
def test_en_09_weights_of_another_isa_are_refused() -> None:
    weight = packed(ISAS[0], FORMATS["Q4_0"], random_stored(FORMATS["Q4_0"], 1, 32, seed=0))
    program = _native.Program(ISAS[1], POOL)
    x, y = program.add_buffer("q8", 32, "tokens"), program.add_buffer("f32", 1, "tokens")
    with pytest.raises(ValueError, match=f"op linear: weight 0 was packed for {ISAS[0]}"):
        program.add_op("linear", [x], [y], [weight, None], [1, 0], [])


def test_cpu_05_instruction_sets_agree() -> None:
    fmt = FORMATS["Q4_K"]
    data = random_stored(fmt, 64, 768, seed=1)
    x = rows(9, 768)
    results = [linear(isa, [packed(isa, fmt, data)], x)[0] for isa in ISAS]
    for other in results[1:]:
        np.testing.assert_allclose(other, results[0], rtol=1e-3, atol=1e-3 * np.abs(results[0]).max())
