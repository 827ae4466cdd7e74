"""Each op in plain numpy: slow, short enough to trust, and the oracle that every kernel is tested against."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from octavo.ops.kv_format import KVFormat
from octavo.ops.spec import Activation, AttentionSpec, F32Array, Int32Array, KVLayer, Model, Ops, Parameter, Rope, RopeStyle, StepInputs

GROUP = 32
"""Inputs that share a scale when activations are quantized to int8."""
OUTLIER_RATIO = 3.0
"""One input this many times as large as every other of its group is kept as it is."""

T = TypeVar("T")


def round_bf16(x: F32Array) -> F32Array:
    """fp32 rounded to bfloat16 (nearest, ties to even) and back. NaN and infinities stay what they are."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return np.where(np.isfinite(x), rounded.view(np.float32), x)


def round_fp16(x: F32Array) -> F32Array:
    """fp32 rounded to IEEE half and back, saturating at ±65504."""
    return np.clip(x, -65504, 65504).astype(np.float16).astype(np.float32)


ROUNDINGS: dict[str, Callable[[F32Array], F32Array]] = {"bf16": round_bf16, "fp16": round_fp16, "fp32": lambda x: x}
"""How each wide KV dtype rounds."""
WIDEST = KVFormat("fp32")
SPLIT = 128
"""Positions that native attention attends to by themselves, before splits are combined."""


def round_minifloat(x: F32Array, fraction: int, bias: int) -> F32Array:
    """fp32 rounded to floats with ``fraction`` bits after the point and an exponent of that bias (nearest, ties to even)."""
    exponent = np.maximum(np.frexp(x)[1] - 1, 1 - bias)
    place = np.ldexp(1.0, exponent - fraction)
    rounded: F32Array = (np.rint(x / place) * place).astype(np.float32)
    return rounded


@dataclass(frozen=True)
class Codes:
    """An 8-bit KV dtype."""

    largest: float
    bound: float
    """By how much a vector may err under the guard: root of the mean square of the error over that of the vector."""
    tops: tuple[float, ...]
    """What a vector's largest number may become under a scale of its own."""
    fraction: int | None = None
    """Bits after the point, of a float; None: whole numbers."""
    bias: int = 0

    def round(self, x: F32Array) -> F32Array:
        """To the nearest number there is; nothing is beyond the largest."""
        rounded: F32Array = np.rint(x) if self.fraction is None else round_minifloat(x, self.fraction, self.bias)
        return rounded


CODES = {
    "fp8_e4m3": Codes(448.0, 1 / 32, (448, 416, 384, 352, 320, 288, 256, 240), 3, 7),
    "fp8_e5m2": Codes(57344.0, 1 / 16, (57344, 49152, 40960, 32768), 2, 15),
    "int8": Codes(127.0, 1 / 64, (127,)),
}


@dataclass(frozen=True)
class StoredVectors:
    """What became of vectors [..., head_dim]."""

    values: F32Array
    guarded: npt.NDArray[np.bool_]
    """[...] vectors that got a scale of their own under the guard."""
    clipped: int
    """Numbers beyond the largest, under static scales."""
    scales: F32Array
    """[..., 1] what the codes are multiplied with; 1 of wide types."""


def store_vectors(x: F32Array, format: KVFormat, layer_scale: float = 1.0) -> StoredVectors:
    """Vectors as KV storage holds them; each is a function of itself alone. NaN counts as 0, and nothing is beyond ±2^64."""
    if format.dtype in ROUNDINGS:
        return StoredVectors(ROUNDINGS[format.dtype](x), np.zeros(x.shape[:-1], bool), 0, np.ones_like(x[..., :1]))
    codes, layer = CODES[format.dtype], np.float32(layer_scale)
    x = np.clip(np.nan_to_num(x, nan=0.0, posinf=2.0**64, neginf=-(2.0**64)), -(2.0**64), 2.0**64).astype(np.float32)
    own = _fitted_scales(x, codes, layer)
    beyond = np.abs(x / layer) > codes.largest
    guarded = beyond.any(-1) | _errs(x / layer, codes)
    if format.scales != "guarded":
        guarded = np.zeros_like(guarded)
    alone = guarded | (format.scales == "dynamic")
    scale = layer * np.where(alone[..., None], own, np.float32(1))
    values = codes.round(np.clip(x / scale, -codes.largest, codes.largest)) * scale
    return StoredVectors(values, guarded, int(beyond.sum()) if format.scales == "static" else 0, scale)


def _fitted_scales(x: F32Array, codes: Codes, layer: np.float32) -> F32Array:
    """Scales [..., 1], over the layer's: of those that take a vector's largest number to one of the tops, the one that rounds it best."""
    largest = np.abs(x).max(-1, keepdims=True)
    scales = [round_bf16(np.maximum(largest / (np.float32(top) * layer), np.float32(2.0**-100))) for top in codes.tops]
    if codes.fraction is None:
        return scales[0]
    errors = []
    for top, scale in zip(codes.tops, scales, strict=True):
        y = x * (np.float32(1) / (scale * layer))
        off = (y - round_minifloat(y, codes.fraction, 1 << 20)).astype(np.float64)
        errors.append((off**2).sum(-1, keepdims=True) / top**2)
    best: F32Array = np.choose(np.argmin(errors, axis=0), scales)
    return best


def _errs(y: F32Array, codes: Codes) -> npt.NDArray[np.bool_]:
    """Whether vectors err by more than the bound when they are rounded as they are."""
    held = np.clip(y, -codes.largest, codes.largest).astype(np.float64)
    error = ((codes.round(held.astype(np.float32)) - held) ** 2).sum(-1)
    errs: npt.NDArray[np.bool_] = error > codes.bound**2 * (held**2).sum(-1)
    return errs


def quantize_q8(x: F32Array) -> tuple[npt.NDArray[np.int8], F32Array, F32Array]:
    """int8 codes [rows, columns], scales [rows, columns / 32] and outliers [rows, columns], which are 0 where there is none.

    Symmetric, per row and group of 32, ties to even. The one value of a group that is larger than OUTLIER_RATIO times every other is an
    outlier: it is kept as it is, and takes no part in the scale.
    """
    groups = np.ascontiguousarray(x, np.float32).reshape(x.shape[0], -1, GROUP)
    sizes = np.abs(groups)
    second, largest = np.moveaxis(np.partition(sizes, GROUP - 2, axis=-1)[..., -2:], -1, 0)
    apart = (largest > np.float32(OUTLIER_RATIO) * second)[..., None] & (sizes == largest[..., None])
    absmax = np.where(apart.any(-1), second, largest)
    inverse = np.divide(np.float32(127), absmax, out=np.zeros_like(absmax), where=absmax > 0)
    codes = np.rint(np.where(apart, np.float32(0), groups) * inverse[..., None]).astype(np.int8)
    outliers = np.where(apart, groups, np.float32(0))
    return codes.reshape(x.shape), absmax / np.float32(127), outliers.reshape(x.shape)


def dequantize_q8(codes: npt.NDArray[np.int8], scales: F32Array, outliers: F32Array) -> F32Array:
    """The values that ``quantize_q8``'s results stand for."""
    groups = codes.reshape(codes.shape[0], -1, GROUP).astype(np.float32)
    return (groups * scales[..., None]).reshape(codes.shape) + outliers


def rope_tables(positions: npt.NDArray[np.int32], rope: Rope) -> tuple[F32Array, F32Array]:
    """cos and sin [tokens, pairs], computed in float64, times ``mscale``."""
    angles = positions.astype(np.float64)[:, None] * np.asarray(rope.inv_freq, np.float64)
    return (np.cos(angles) * rope.mscale).astype(np.float32), (np.sin(angles) * rope.mscale).astype(np.float32)


def activate(x: F32Array, activation: Activation) -> F32Array:
    """SiLU, or GELU by its tanh form (Hendrycks & Gimpel 2016)."""
    if activation == Activation.SILU:
        y: F32Array = x / (1 + np.exp(-x))
    else:
        inner = np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x**3)
        y = np.float32(0.5) * x * (1 + np.tanh(inner))
    return y


class ReferenceKV:
    """K and V of each layer, [its group's slots, kv_heads, head_dim], rounded to the KV format when written."""

    def __init__(self, layers: Sequence[KVLayer], num_blocks: Sequence[int], format: KVFormat = WIDEST, block_size: int = 16) -> None:
        """``num_blocks`` per group."""
        self.format = format
        self._layers, self._num_blocks, self._block_size = layers, num_blocks, block_size
        shapes = {layer: (num_blocks[layer.group] * block_size, layer.num_kv_heads, layer.head_dim) for layer in layers}
        self.k = {layer: np.zeros(shape, np.float32) for layer, shape in shapes.items()}
        self.v = {layer: np.zeros(shape, np.float32) for layer, shape in shapes.items()}
        self.v_scale = {layer: np.ones((*shape[:2], 1), np.float32) for layer, shape in shapes.items()}
        self.counts = np.zeros((len(layers), 5), np.uint64)
        """As _native.KVStorage.counts, of each layer of the model."""

    def write(self, layer: KVLayer, slots: Int32Array, k: F32Array, v: F32Array) -> None:
        """Vectors [tokens, kv_heads, head_dim] into their slots."""
        place = self._layers.index(layer)
        scales = self.format.of_layer(place)
        stored_k, stored_v = (store_vectors(x, self.format, scale) for x, scale in zip((k, v), scales, strict=True))
        self.k[layer][slots], self.v[layer][slots], self.v_scale[layer][slots] = stored_k.values, stored_v.values, stored_v.scales
        guarded = [np.count_nonzero(stored.guarded) for stored in (stored_k, stored_v)]
        if self.format.scales != "none":
            self.counts[place] += np.array([stored_k.guarded.size, *guarded, stored_k.clipped, stored_v.clipped], np.uint64)

    def copy_blocks(self, group: int, src: Int32Array, dst: Int32Array) -> None:
        """See octavo.runner.transfers.BlockMover, here and below. Bytes are this storage's own: fp32, whatever the dtype."""
        self.import_blocks(group, dst, self.export_blocks(group, src))

    def export_blocks(self, group: int, blocks: Int32Array) -> npt.NDArray[np.uint8]:
        slots = self._slots(group, blocks)
        parts = [array[slots].reshape(len(blocks), -1) for array in self._arrays(group)]
        return np.concatenate(parts, axis=1).view(np.uint8)

    def import_blocks(self, group: int, blocks: Int32Array, data: npt.NDArray[np.uint8]) -> None:
        slots, arrays = self._slots(group, blocks), self._arrays(group)
        widths = [array[0].size * self._block_size for array in arrays]
        if data.shape != (len(blocks), 4 * sum(widths)) or len(np.unique(blocks)) != len(blocks):
            raise ValueError(f"data is {list(data.shape)} for {len(np.unique(blocks))} blocks of {4 * sum(widths)} bytes")
        parts = np.split(np.ascontiguousarray(data).view(np.float32), np.cumsum(widths[:-1]), axis=1)
        for array, part in zip(arrays, parts, strict=True):
            array[slots] = part.reshape(slots.shape + array.shape[1:])

    def _arrays(self, group: int) -> list[F32Array]:
        members = [layer for layer in self._layers if layer.group == group]
        kept = (self.k, self.v) if self.format.scales == "none" else (self.k, self.v, self.v_scale)
        return [array[layer] for layer in members for array in kept]

    def _slots(self, group: int, blocks: Int32Array) -> npt.NDArray[np.int64]:
        """[blocks, block_size]"""
        count = self._num_blocks[group]
        if len(blocks) and not 0 <= blocks.min() <= blocks.max() < count:
            raise IndexError(f"blocks {blocks.min()} to {blocks.max()}: the storage has {count}")
        slots: npt.NDArray[np.int64] = blocks[:, None].astype(np.int64) * self._block_size + np.arange(self._block_size)
        return slots


class ReferenceOps(Ops[F32Array]):
    """Computes each op at once. ``matrices`` maps a parameter's name to fp32 [N, K] (or [n]); ``modes`` to what its inputs become.

    Modes: "q8", "bf16" or "f32" (the default), as ``Ops.linear`` says for the weight's format.
    """

    def __init__(self, matrices: Mapping[str, F32Array], kv: ReferenceKV, modes: Mapping[str, str] | None = None) -> None:
        self._matrices, self._kv, self._modes = matrices, kv, modes or {}
        self.inputs: StepInputs

    def run(self, model: Model, inputs: StepInputs) -> F32Array:
        """One step of ``model``: logits [logits rows, vocab]."""
        self.inputs = inputs
        return model.forward(self)

    def embed(self, weight: Parameter, scale: float = 1.0) -> F32Array:
        rows: F32Array = self._matrices[weight.name][self.inputs.token_ids] * np.float32(scale)
        return rows

    def rms_norm(self, x: F32Array, weight: Parameter, eps: float, heads: int = 1) -> F32Array:
        parts = x.reshape(x.shape[0], heads, x.shape[1] // heads)
        mean_square = np.mean(parts * parts, axis=-1, keepdims=True)
        y: F32Array = (parts / np.sqrt(mean_square + np.float32(eps)) * self._matrices[weight.name]).reshape(x.shape)
        return y

    def linear(self, x: F32Array, weight: Parameter, bias: Parameter | None = None) -> F32Array:
        mode = self._modes.get(weight.name, "f32")
        if mode == "q8":
            x = dequantize_q8(*quantize_q8(x))
        elif mode == "bf16":
            x = round_bf16(x)
        y: F32Array = x @ self._matrices[weight.name].T
        return y if bias is None else y + self._matrices[bias.name]

    def rope(self, x: F32Array, heads: int, rope: Rope) -> F32Array:
        cos, sin = (table[:, None, :] for table in rope_tables(self.inputs.positions, rope))
        y = x.reshape(x.shape[0], heads, -1).copy()
        pairs = len(rope.inv_freq)
        halves = rope.style == RopeStyle.HALF
        first = np.s_[..., :pairs] if halves else np.s_[..., : 2 * pairs : 2]
        second = np.s_[..., pairs : 2 * pairs] if halves else np.s_[..., 1 : 2 * pairs : 2]
        a, b = y[first].copy(), y[second].copy()
        y[first], y[second] = a * cos - b * sin, b * cos + a * sin
        return y.reshape(x.shape)

    def kv_write(self, k: F32Array, v: F32Array, layer: KVLayer) -> None:
        slots = self.inputs.slot_mapping[layer.group]
        shape = (-1, layer.num_kv_heads, layer.head_dim)
        self._kv.write(layer, slots, k.reshape(shape), v.reshape(shape))

    def attention(self, q: F32Array, layer: KVLayer, spec: AttentionSpec) -> F32Array:
        inputs = self.inputs
        out = np.empty_like(q)
        sinks = None if spec.sinks is None else self._matrices[spec.sinks.name]
        for s, length in enumerate(inputs.seq_lens):
            rows = slice(inputs.query_start[s], inputs.query_start[s + 1])
            slots = self._slots(layer, s, int(length))
            k, v = self._kv.k[layer][slots], self._kv.v[layer][slots]
            heads = q[rows].reshape(-1, spec.num_heads, layer.head_dim)
            format = self._kv.format
            scales = None if format.scales == "none" else self._kv.v_scale[layer][slots]
            out[rows] = attend(heads, k, v, inputs.positions[rows], spec, sinks, format.bf16_products, scales).reshape(out[rows].shape)
        return out

    def _slots(self, layer: KVLayer, sequence: int, length: int) -> npt.NDArray[np.int64]:
        """Slots of positions 0 … length - 1; behind the window, where the table says nothing, any slot."""
        table = np.maximum(self.inputs.block_tables[layer.group][sequence], 0).astype(np.int64)
        size = self.inputs.block_size
        positions = np.arange(length)
        slots: npt.NDArray[np.int64] = table[positions // size] * size + positions % size
        return slots

    def gated_act(self, gate: F32Array, up: F32Array, activation: Activation) -> F32Array:
        return activate(gate, activation) * up

    def add(self, a: F32Array, b: F32Array) -> F32Array:
        return a + b

    def softcap(self, x: F32Array, cap: float) -> F32Array:
        y: F32Array = np.float32(cap) * np.tanh(x / np.float32(cap))
        return y

    def gather(self, x: F32Array) -> F32Array:
        return x[self.inputs.logits_rows]


def attend(
    q: F32Array,
    k: F32Array,
    v: F32Array,
    positions: npt.NDArray[np.int32],
    spec: AttentionSpec,
    sinks: F32Array | None = None,
    bf16_products: bool = False,
    v_scales: F32Array | None = None,
) -> F32Array:
    """Causal attention of one sequence: q [n, heads, d] at ``positions`` over k, v [length, kv_heads, d] → [n, heads, d].

    ``bf16_products``: see KVFormat. ``v_scales`` [length, kv_heads, 1]: what codes of V are multiplied with, where they are.
    """
    group = spec.num_heads // k.shape[1]
    keys = np.arange(k.shape[0])
    visible = keys <= positions[:, None]
    if spec.window:
        visible &= keys > positions[:, None] - spec.window
    out = np.empty_like(q)
    for h in range(spec.num_heads):
        scaled = q[:, h] * np.float32(spec.scale)
        scores = (round_bf16(scaled) if bf16_products else scaled) @ k[:, h // group].T
        if spec.softcap:
            scores = np.float32(spec.softcap) * np.tanh(scores / np.float32(spec.softcap))
        scores = np.where(visible, scores, -np.inf)
        top = scores.max(-1, keepdims=True)
        top = top if sinks is None else np.maximum(top, sinks[h])
        p = sums = np.exp(scores - top)
        if bf16_products:
            p = _weights_of_bf16(scores, top, None if v_scales is None else v_scales[:, h // group, 0])
            sums = p if v_scales is None else sums
        total = sums.sum(-1, keepdims=True)
        total = total if sinks is None else total + np.exp(sinks[h] - top)
        out[:, h] = (p / total) @ v[:, h // group]
    return out


def _weights_of_bf16(
    scores: npt.NDArray[np.floating], top: npt.NDArray[np.floating], v_scales: F32Array | None
) -> npt.NDArray[np.floating]:
    """exp(scores - top), [n, positions], rounded to bf16 within each split of positions, against the split's own largest score.

    What is rounded is the product with ``v_scales`` [positions], where there are.
    """
    p = np.zeros_like(scores)
    for start in range(0, scores.shape[1], SPLIT):
        part = scores[:, start : start + SPLIT]
        largest = part.max(-1, keepdims=True)
        seen = np.isfinite(largest)
        scale = np.float32(1) if v_scales is None else v_scales[start : start + SPLIT]
        exact = np.exp(np.where(seen, part - np.where(seen, largest, 0), -np.inf))
        weights = round_bf16((exact * scale).astype(np.float32)) / scale
        p[:, start : start + SPLIT] = weights * np.where(seen, np.exp(np.where(seen, largest, 0) - top), 0)
    return p
