"""Runs a Program record by record on the reference ops, in the buffers that ``plan_buffers`` chose.

So a pass that changes the result, or a plan that lets two live values share a buffer, shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from octavo.ops.program import Constant, OpRecord, Program, plan_buffers
from octavo.ops.reference import ReferenceOps, dequantize_q8, quantize_q8, round_bf16
from octavo.ops.spec import Activation, AttentionSpec, F32Array, KVLayer, Parameter, Rope, RopeStyle, StepInputs


class Interpreter:
    """``layers`` are the model's KV layers; matrices and modes as for ReferenceOps, which does the arithmetic."""

    def __init__(self, ops: ReferenceOps, matrices: Mapping[str, F32Array], layers: list[KVLayer]) -> None:
        self.ops, self.matrices, self.layers = ops, matrices, layers

    def run(self, program: Program, inputs: StepInputs) -> F32Array:
        self.ops.inputs = inputs
        plan = plan_buffers(program)
        buffers: dict[int, Any] = {}
        for op in program.ops:
            values = [buffers[plan.place[v.id]] for v in op.inputs]
            results = getattr(self, f"_{op.kind}")(op, *values)
            for value, result in zip(op.outputs, results, strict=True):
                assert result.shape[1] == value.columns, f"{op}: wrote {result.shape}"
                buffers[plan.place[value.id]] = self._as(result, value.kind)
        return buffers[plan.place[program.result.id]]

    def _as(self, x: F32Array, kind: str) -> F32Array:
        """What a buffer of this kind holds, dequantized."""
        convert: dict[str, Callable[[F32Array], F32Array]] = {
            "f32": lambda x: x,
            "q8": lambda x: dequantize_q8(*quantize_q8(x)),
            "bf16": round_bf16,
        }
        return convert[kind](x)

    def _matrix(self, parameter: Any) -> F32Array:
        assert isinstance(parameter, Parameter)
        return self.matrices[parameter.name]

    def _layer(self, place: int, group: int) -> KVLayer:
        return next(layer for layer in self.layers if (layer.index, layer.group) == (place, group))

    def _embed(self, op: OpRecord) -> list[F32Array]:
        return [self.ops.embed(op.weights[0], op.floats[0])]  # type: ignore[arg-type]

    def _rms_norm(self, op: OpRecord, x: F32Array) -> list[F32Array]:
        return [self.ops.rms_norm(x, op.weights[0], op.floats[0], op.ints[0])]  # type: ignore[arg-type]

    def _quantize(self, op: OpRecord, x: F32Array) -> list[F32Array]:
        return [x]

    def _linear(self, op: OpRecord, x: F32Array, *residuals: F32Array) -> list[F32Array]:
        count, has_residual = op.ints
        assert len(residuals) == (count if has_residual else 0)
        results = []
        for i in range(count):
            y = x @ self._matrix(op.weights[i]).T
            if (bias := op.weights[count + i]) is not None:
                y = y + self._matrix(bias)
            results.append(residuals[i] + y if has_residual else y)
        return results

    def _gated_linear(self, op: OpRecord, x: F32Array) -> list[F32Array]:
        gate, up = (x @ self._matrix(w).T for w in op.weights)
        return [self.ops.gated_act(gate, up, Activation(op.ints[0]))]

    def _rope(self, op: OpRecord, x: F32Array) -> list[F32Array]:
        heads, head_dim, style = op.ints
        assert x.shape[1] == heads * head_dim
        return [self.ops.rope(x, heads, _rope(op, style))]

    def _kv_write(self, op: OpRecord, k: F32Array, v: F32Array) -> list[F32Array]:
        self.ops.kv_write(k, v, self._layer(*op.ints))
        return []

    def _rope_kv_write(self, op: OpRecord, q: F32Array, k: F32Array, v: F32Array) -> list[F32Array]:
        q_heads, kv_heads, _, style, place, group = op.ints
        self.ops.kv_write(self.ops.rope(k, kv_heads, _rope(op, style)), v, self._layer(place, group))
        return [self.ops.rope(q, q_heads, _rope(op, style))]

    def _attention(self, op: OpRecord, q: F32Array) -> list[F32Array]:
        place, group, heads, window, _ = op.ints
        scale, softcap = op.floats
        spec = AttentionSpec(heads, scale, window, softcap, op.weights[0])  # type: ignore[arg-type]
        return [self.ops.attention(q, self._layer(place, group), spec)]

    def _gated_act(self, op: OpRecord, gate: F32Array, up: F32Array) -> list[F32Array]:
        return [self.ops.gated_act(gate, up, Activation(op.ints[0]))]

    def _add(self, op: OpRecord, a: F32Array, b: F32Array) -> list[F32Array]:
        return [a + b]

    def _softcap(self, op: OpRecord, x: F32Array) -> list[F32Array]:
        return [self.ops.softcap(x, op.floats[0])]

    def _gather(self, op: OpRecord, x: F32Array) -> list[F32Array]:
        return [self.ops.gather(x)]


def _rope(op: OpRecord, style: int) -> Rope:
    constant = op.weights[0]
    assert isinstance(constant, Constant)
    return Rope(constant.values, RopeStyle(style), op.floats[0])


def random_matrices(parameters: list[Parameter], seed: int = 0) -> dict[str, F32Array]:
    """Random weights for a model: matrices of about unit gain, vectors around 1."""
    rng = np.random.default_rng(seed)
    found = {}
    for p in parameters:
        noise = rng.standard_normal(p.shape).astype(np.float32)
        found[p.name] = noise / np.float32(np.sqrt(p.shape[-1])) if p.is_matrix else 1 + 0.1 * noise
    return found
