"""Shared by the native tests: random stored weights of each format, and programs of one op."""

from __future__ import annotations

from collections.abc import Sequence

import gguf
import numpy as np

from octavo import _native
from octavo.weights.formats import FORMATS, WeightFormat

ISAS = _native.supported_isas()
POOL = _native.ThreadPool([-1])
POOL_2 = _native.ThreadPool([-1, -1])

F16_FIELDS = {
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q8_0": [0],
    "IQ4_NL": [0],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
    "IQ4_XS": [0],
}
"""Offsets of the half-precision numbers in a block; its other bytes may be anything."""


def random_stored(fmt: WeightFormat, rows: int, columns: int, seed: int) -> np.ndarray:
    """Stored bytes [rows, row_bytes] whose scales are of ordinary size."""
    rng = np.random.default_rng(seed)
    if not fmt.quantized:
        values = rng.standard_normal((rows, columns)).astype(np.float32)
        return encode_floats(fmt.name, values)
    blocks = rng.integers(0, 256, (rows, columns // fmt.block, fmt.block_bytes), np.uint8)
    for offset in F16_FIELDS[fmt.name]:
        scales = (rng.uniform(-1, 1, blocks.shape[:2]) * 2.0 ** (1 - fmt.bits)).astype(np.float16)
        blocks[..., offset : offset + 2] = scales[..., None].view(np.uint8)
    return blocks.reshape(rows, -1)


def encode_floats(name: str, values: np.ndarray) -> np.ndarray:
    if name == "F32":
        return values.view(np.uint8)
    if name == "F16":
        return values.astype(np.float16).view(np.uint8)
    return gguf.quants.quantize(values, gguf.GGMLQuantizationType.BF16).view(np.uint8)


def dequantized(fmt: WeightFormat, data: np.ndarray) -> np.ndarray:
    """[rows, columns] by the gguf package."""
    if fmt.name == "F32":
        return data.view(np.float32)
    if fmt.name == "F16":
        return data.view(np.float16).astype(np.float32)
    return gguf.quants.dequantize(data, gguf.GGMLQuantizationType[fmt.name]).astype(np.float32)


def packed(isa: str, fmt: WeightFormat, data: np.ndarray, pool: _native.ThreadPool = POOL) -> _native.PackedWeight:
    columns = data.shape[1] // fmt.block_bytes * fmt.block
    return _native.PackedWeight(isa, pool, fmt.name, data.shape[0], columns, np.ascontiguousarray(data).reshape(-1))


def run(program: _native.Program, tokens: int, token_ids: np.ndarray | None = None) -> np.ndarray:
    """A step of one sequence without KV, all of whose rows are logits rows."""
    rows = np.arange(tokens, dtype=np.int32)
    ids = np.zeros(tokens, np.int32) if token_ids is None else token_ids
    return program.run(None, ids, rows, np.array([0, tokens], np.int32), np.array([tokens], np.int32), [], [], rows)


def linear(
    isa: str,
    weights: Sequence[_native.PackedWeight],
    x: np.ndarray,
    biases: Sequence[np.ndarray | None] | None = None,
    residuals: Sequence[np.ndarray] | None = None,
    pool: _native.ThreadPool = POOL,
) -> list[np.ndarray]:
    """One ``linear`` op on fp32 rows ``x``, its input quantized or rounded as the weights ask."""
    program = _native.Program(isa, pool)
    source = program.add_buffer("f32", x.shape[1], "tokens")
    program.write(source, x)
    inputs = [as_activation(program, source, weights[0], x.shape[1])]
    for residual in residuals or []:
        inputs.append(program.add_buffer("f32", residual.shape[1], "tokens"))
        program.write(inputs[-1], residual)
    outputs = [program.add_buffer("f32", w.shape[0], "tokens") for w in weights]
    operands = [*weights, *(biases or [None] * len(weights))]
    program.add_op("linear", inputs, outputs, operands, [len(weights), int(residuals is not None)], [])
    run(program, x.shape[0])
    return [program.read(out) for out in outputs]


def as_activation(program: _native.Program, source: int, weight: _native.PackedWeight, columns: int) -> int:
    if weight.activation == "f32":
        return source
    number = program.add_buffer(weight.activation, columns, "tokens")
    program.add_op("quantize", [source], [number], [], [], [])
    return number


QUANTIZED = [f for f in FORMATS.values() if f.quantized]
