"""8-bit K and V: what is stored against torch and the reference, and attention over it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from octavo import _native
from octavo.ops.kv_format import KVFormat
from octavo.ops.reference import CODES, round_bf16, store_vectors
from support.attention_cases import PagedCase, Shape
from support.native_cases import ISAS, POOL, POOL_2

DTYPES = list(CODES)
MODES = ["static", "dynamic", "guarded"]
TORCH = {"fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2, "int8": torch.int8}
ON_ALL_ISAS = pytest.mark.parametrize("isa", ISAS)
ON_ALL_DTYPES = pytest.mark.parametrize("dtype", DTYPES)


def rounded(x: np.ndarray, dtype: str) -> np.ndarray:
    """Numbers within the type's range, by torch."""
    values = torch.from_numpy(x)
    found: np.ndarray = (values.round() if dtype == "int8" else values).to(TORCH[dtype]).float().numpy()
    return found


class Writer:
    """Storage of one layer with two heads of 64, all of whose slots are written at once."""

    def __init__(self, isa: str, dtype: str, scales: str, layer_scales: tuple[float, float] = (1.0, 1.0), block_size: int = 16) -> None:
        given = [] if scales == "dynamic" else list(layer_scales)
        self.kv = _native.KVStorage(isa, 1, 12, block_size, 2, 64, dtype, scales, given)
        self.program = program = _native.Program(isa, POOL_2)
        self.k, self.v, out = (program.add_buffer("f32", 128, "tokens") for _ in range(3))
        program.add_op("kv_write", [self.k, self.v], [], [], [0, 0], [])
        program.add_op("add", [self.k, self.v], [out], [], [], [])

    def write(self, k: np.ndarray, v: np.ndarray, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Stores k and v [tokens, 2, 64] from a slot on; what is read back, of the same shape."""
        n = len(k)
        self.program.write(self.k, k.reshape(n, -1))
        self.program.write(self.v, v.reshape(n, -1))
        slots, ends = np.arange(first, first + n, dtype=np.int32), np.array([0, n], np.int32)
        self.program.run(self.kv, slots * 0, slots - first, ends, ends[1:], [np.zeros((1, 1), np.int32)], [slots], slots[:0])
        blocks = [self.kv.read(0, block) for block in range(12)]
        stored_k, stored_v = (np.concatenate(part)[first : first + n] for part in zip(*blocks, strict=True))
        return stored_k, stored_v


def vectors(tokens: int, seed: int = 0, spread: float = 2.0) -> np.ndarray:
    """[tokens, 2, 64], of very different lengths."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((tokens, 2, 64)) * np.exp(spread * rng.standard_normal((tokens, 2, 1)))
    return values.astype(np.float32)


@ON_ALL_ISAS
@ON_ALL_DTYPES
def test_fp_02_conversion_saturates_and_never_makes_nan(isa: str, dtype: str) -> None:
    largest = CODES[dtype].largest
    ends = np.float32([0, 1e-9, 448, 449, 500, 1e4, np.inf, -np.inf, 57344, 57345, 1e30, -3.4e38, np.nan, 127, 127.5, -1000])
    x = np.zeros((2, 2, 64), np.float32)
    x[0, :, :16] = ends
    for mode in MODES:
        k, v = Writer(isa, dtype, mode).write(x, x)
        assert np.isfinite(k).all() and np.isfinite(v).all()
    k, _ = Writer(isa, dtype, "static").write(x, x)
    assert np.abs(k).max() == largest
    expected = rounded(np.clip(np.nan_to_num(ends, nan=0, posinf=1e38, neginf=-1e38), -largest, largest), dtype)
    assert np.array_equal(k[0, 0, :16], expected)


@ON_ALL_ISAS
@ON_ALL_DTYPES
def test_every_rounding_is_torch_s(isa: str, dtype: str) -> None:
    """All numbers of the type, the points halfway between them, and their neighbours on both sides."""
    codes = torch.arange(256, dtype=torch.uint8).view(TORCH[dtype]).float().numpy()
    finite = np.sort(codes[np.isfinite(codes) & (codes >= -CODES[dtype].largest)])
    halves = ((finite[1:].astype(np.float64) + finite[:-1]) / 2).astype(np.float32)
    points = np.concatenate([finite, halves, *(np.nextafter(x, np.float32(side)) for x in (finite, halves) for side in (-1e9, 1e9))])
    points = points[np.abs(points) <= CODES[dtype].largest]
    x = np.pad(points, (0, -len(points) % 128)).reshape(-1, 2, 64)
    k, v = Writer(isa, dtype, "static").write(x, -x)
    assert np.array_equal(k, rounded(x, dtype)) and np.array_equal(v, rounded(-x, dtype))


@ON_ALL_ISAS
@ON_ALL_DTYPES
@pytest.mark.parametrize("block_size", [8, 16, 32])
@pytest.mark.parametrize("mode", MODES)
def test_storage_holds_what_the_reference_holds(isa: str, dtype: str, mode: str, block_size: int) -> None:
    scales = (0.037, 4.1) if mode != "dynamic" else (1.0, 1.0)
    k, v = vectors(90, spread=6.0), vectors(90, 1, spread=6.0)
    k[7], v[11, 1] = 0, 0
    writer = Writer(isa, dtype, mode, scales, block_size)
    expected = [store_vectors(x, KVFormat(dtype, mode), scale) for x, scale in zip((k, v), scales, strict=True)]
    for stored, wanted in zip(writer.write(k, v), expected, strict=True):
        assert np.array_equal(stored, wanted.values)
    guarded = [int(wanted.guarded.sum()) for wanted in expected]
    assert writer.kv.counts().tolist() == [[180, *guarded, *(wanted.clipped for wanted in expected)]]
    assert mode != "guarded" or 0 < guarded[0] < 180


@ON_ALL_ISAS
@ON_ALL_DTYPES
def test_dynamic_scales_are_within_half_a_step_of_each_vector(isa: str, dtype: str) -> None:
    """Half a unit in the last place of the number, or of the least there is, beside a scale that bf16 rounds by at most 2^-9."""
    x = vectors(90, spread=6.0)
    stored, _ = Writer(isa, dtype, "dynamic").write(x, x)
    largest = np.abs(x).max(-1, keepdims=True)
    step = {"fp8_e4m3": 2.0**-10 / 448, "fp8_e5m2": 2.0**-17 / 57344, "int8": 0.5 / 127}[dtype] * largest
    share = {"fp8_e4m3": 2.0**-4, "fp8_e5m2": 2.0**-3, "int8": 0.0}[dtype] * np.abs(x)
    assert (np.abs(stored - x) <= np.maximum(step, share) * (1 + 2.0**-8) + 2.0**-8 * largest * (np.abs(x) > largest * 0.99)).all()


@ON_ALL_ISAS
@pytest.mark.parametrize("scale", [0.01, 1.0, 50.0])
def test_fp_05_scales_are_applied_both_ways(isa: str, scale: float) -> None:
    rng = np.random.default_rng(5)
    x = (scale * 2.0 ** rng.uniform(-6, np.log2(448), (90, 2, 64)) * rng.choice([-1, 1], (90, 2, 64))).astype(np.float32)
    for stored in Writer(isa, "fp8_e4m3", "static", (scale, scale)).write(x, x):
        assert (np.abs(stored - x) <= 2.0**-4 * np.abs(x)).all()


@ON_ALL_ISAS
def test_fp_01_clipped_numbers_are_counted(isa: str) -> None:
    x = np.random.default_rng(6).choice(np.float32([-3, -1, 0.5, 2]), (20, 2, 64))
    x[3, 1, 5], x[9, 0, 63], x[9, 0, 62] = 1000, -449, 448
    writer = Writer(isa, "fp8_e4m3", "static")
    stored, _ = writer.write(x, x / 1024)
    assert (stored[3, 1, 5], stored[9, 0, 63]) == (448, -448)
    assert writer.kv.counts().tolist() == [[40, 0, 0, 2, 0]]
    guard = Writer(isa, "fp8_e4m3", "guarded")
    stored, _ = guard.write(x, x)
    assert stored[3, 1, 5] == pytest.approx(1000, rel=2.0**-8)
    assert guard.kv.counts().tolist() == [[40, 2, 2, 0, 0]]


@ON_ALL_ISAS
@ON_ALL_DTYPES
@pytest.mark.parametrize("mode", ["dynamic", "guarded"])
def test_fp_04_a_vector_is_stored_by_its_own_numbers_alone(isa: str, dtype: str, mode: str) -> None:
    """The storage is full of 1e6 before, and other tokens of the same call are: neither scale nor codes change."""
    x = vectors(33)
    alone, _ = Writer(isa, dtype, mode).write(x, x)
    poisoned = Writer(isa, dtype, mode)
    poisoned.write(np.full((192, 2, 64), 1e6, np.float32), np.full((192, 2, 64), 1e6, np.float32))
    company = np.concatenate([np.full((5, 2, 64), 1e6, np.float32), x, np.full((9, 2, 64), -1e6, np.float32)])
    for stored in poisoned.write(company, company, first=3):
        assert np.array_equal(stored[5:38], alone)


SHAPE = Shape(9, 3, 64, spread=1.5)
SHAPES = {8: Shape(4, 2, 80, 0, 3.0, sinks=True), 16: SHAPE, 32: Shape(4, 1, 256, window=96, spread=1.5)}
"""By block size."""


@ON_ALL_ISAS
@ON_ALL_DTYPES
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("block_size", SHAPES)
def test_attention_is_over_what_is_stored(isa: str, dtype: str, mode: str, block_size: int) -> None:
    """A prefill, whose rows share widened numbers, and decodes on both sides of a split's edge, which read codes as they are."""
    scales = (0.07, 0.4) if mode != "dynamic" else (1.0, 1.0)
    shape = replace(SHAPES[block_size], dtype=dtype, scales=mode, layer_scales=scales)
    case = PagedCase(shape, [150], isa, block_size, pool=POOL_2)
    found = np.concatenate([case.step([(0, first, count)]) for first, count in ((0, 127), (127, 1), (128, 1), (129, 21))])
    expected = case.oracle(0)
    np.testing.assert_allclose(found, expected, atol=2e-6 * np.abs(expected).max(), rtol=2e-4)


@ON_ALL_ISAS
@ON_ALL_DTYPES
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("block_size", SHAPES)
def test_bf16_products_round_queries_and_scaled_weights_and_nothing_else(isa: str, dtype: str, mode: str, block_size: int) -> None:
    """A weight on the edge between two roundings may fall to either side: so single outputs may differ by a part of it, the many do not."""
    scales = (0.07, 0.4) if mode != "dynamic" else (1.0, 1.0)
    shape = replace(SHAPES[block_size], dtype=dtype, scales=mode, layer_scales=scales, bf16_products=True)
    case = PagedCase(shape, [150], isa, block_size, pool=POOL_2)
    found = np.concatenate([case.step([(0, first, count)]) for first, count in ((0, 127), (127, 1), (128, 1), (129, 21))])
    expected = case.oracle(0)
    unit = np.abs(expected).max()
    np.testing.assert_allclose(found, expected, atol=4e-3 * unit)
    assert np.abs(found - expected).mean() < 2e-5 * unit


@ON_ALL_ISAS
@ON_ALL_DTYPES
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("products", ["fp32", "bf16"])
def test_bits_are_the_same_in_any_chunks_blocks_threads_and_company(isa: str, dtype: str, mode: str, products: str) -> None:
    shape, n = replace(SHAPE, dtype=dtype, scales=mode, bf16_products=products == "bf16"), 200
    whole = PagedCase(shape, [n], isa).whole(0)
    for chunk in (1, 7, 64):
        assert np.array_equal(PagedCase(shape, [n], isa).whole(0, chunk), whole), f"chunks of {chunk}"
    for block_size in (8, 32, 64):
        case = PagedCase(shape, [n], isa, block_size, placement=block_size, pool=POOL_2)
        assert np.array_equal(case.whole(0, 150), whole), f"blocks of {block_size}, two threads"
    crowd = PagedCase(shape, [n, 300, 40], isa, placement=5, pool=POOL_2)
    crowd.step([(0, 0, 129), (2, 0, 3)])
    assert np.array_equal(crowd.step([(1, 0, 300), (0, 129, n - 129), (2, 3, 37)])[300 : 300 + n - 129], whole[129:])


@ON_ALL_ISAS
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("products", ["fp32", "bf16"])
def test_what_stands_in_unused_slots_never_shows(isa: str, dtype: str, products: str) -> None:
    """Codes and scales of NaN: later slots of a sequence's blocks keep them."""
    shape = replace(Shape(4, 2, 32, window=21), dtype=dtype, scales="guarded", bf16_products=products == "bf16")
    clean, poisoned = (PagedCase(shape, [53], isa, 8, pool=POOL) for _ in range(2))
    blocks = np.arange(poisoned.num_blocks, dtype=np.int32)
    poisoned.kv.import_blocks(blocks, np.full((len(blocks), poisoned.kv.block_bytes), 0xFF, np.uint8))
    assert np.isnan(poisoned.kv.read(1, 0)[0]).all()
    assert np.array_equal(poisoned.whole(0, 9), clean.whole(0, 9))


def test_capacity_is_1_9_times_that_of_bf16_with_scales_counted() -> None:
    for block_size in (8, 16, 32):
        wide = _native.KVStorage(ISAS[0], 3, 7, block_size, 3, 64, "bf16").nbytes
        for dtype in DTYPES:
            for mode in MODES:
                narrow = _native.KVStorage(ISAS[0], 3, 7, block_size, 3, 64, dtype, mode).nbytes
                assert narrow == 7 * block_size * 3 * 2 * 3 * KVFormat(dtype, mode).vector_bytes(64)
                assert wide / narrow == (2.0 if mode == "static" else 128 / 66) >= 1.9


def test_unsuitable_scales_are_refused() -> None:
    sizes = (ISAS[0], 1, 4, 16, 2, 64)
    for dtype, scales, layers, said in (
        ("bf16", "static", [], "scales = static"),
        ("int8", "none", [], "scales = none"),
        ("int8", "dynamic", [1.0, 1.0], "layer_scales"),
        ("fp8_e4m3", "static", [1.0], "layer_scales: 1 of 1"),
        ("fp8_e4m3", "static", [1.0, 0.0], "layer_scales: 0.0"),
        ("fp8_e4m3", "guarded", [float("nan"), 1.0], "layer_scales: nan"),
    ):
        with pytest.raises(ValueError, match=said):
            _native.KVStorage(*sizes, dtype, scales, layers)


@ON_ALL_ISAS
@pytest.mark.parametrize("dtype", ["fp8_e4m3", "fp8_e5m2"])
def test_a_fitted_scale_rounds_better_than_the_one_that_reaches_the_largest_number(isa: str, dtype: str) -> None:
    """On vectors with a few large numbers, as K has them: a good part of the error goes."""
    x = vectors(190, spread=2.0)
    x[:, :, :2] *= 15
    stored, _ = Writer(isa, dtype, "dynamic").write(x, x)
    scale = round_bf16(np.abs(x).max(-1, keepdims=True) / np.float32(CODES[dtype].largest))
    plain = rounded(np.clip(x / scale, -CODES[dtype].largest, CODES[dtype].largest), dtype) * scale
    found, usual = (((y - x) ** 2).sum(-1) / (x**2).sum(-1) for y in (stored, plain))
    assert (found <= usual * (1 + 2.0**-10)).all() and found.mean() < 0.75 * usual.mean()
