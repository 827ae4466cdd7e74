"""An architecture that the package does not have, written here from ops alone: it traces, fuses and runs as the reference says."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import pytest

from octavo import _native
from octavo.ops.cpu import CpuExecutor
from octavo.ops.kv_format import KVFormat
from octavo.ops.passes import fuse
from octavo.ops.program import trace
from octavo.ops.reference import ReferenceKV, ReferenceOps
from octavo.ops.spec import Activation, AttentionSpec, KVLayer, Ops, Parameter, Rope, RopeStyle
from octavo.runner.cpu_backend import pack
from octavo.runner.reference_backend import activation_of
from octavo.weights import quantize
from octavo.weights.dequantize import dequantize
from octavo.weights.formats import FORMATS, Weight
from support.interpreter import random_matrices
from support.steps import mixed_step

T = TypeVar("T")

EMBED, MLP, VOCAB, HEADS, HEAD_DIM = 64, 160, 80, 6, 32


def parameter(name: str, *shape: int) -> Parameter:
    return Parameter(name, shape, ("out", "in")[: len(shape)], name, name)


class Parallel:
    """One norm feeds attention and feed-forward side by side; one KV head, sinks, partial interleaved rope, biases everywhere."""

    num_layers = 2

    def __init__(self) -> None:
        self.kv = [KVLayer(i, 0, 1, HEAD_DIM) for i in range(self.num_layers)]
        self.rope = Rope(tuple(100.0 ** (-j / 8) for j in range(8)), RopeStyle.INTERLEAVED, mscale=1.1)

    def shapes(self, i: int) -> dict[str, tuple[int, ...]]:
        return {
            f"{i}.norm": (EMBED,),
            f"{i}.q": (HEADS * HEAD_DIM, EMBED),
            f"{i}.q_bias": (HEADS * HEAD_DIM,),
            f"{i}.k": (HEAD_DIM, EMBED),
            f"{i}.v": (HEAD_DIM, EMBED),
            f"{i}.v_bias": (HEAD_DIM,),
            f"{i}.sinks": (HEADS,),
            f"{i}.o": (EMBED, HEADS * HEAD_DIM),
            f"{i}.o_bias": (EMBED,),
            f"{i}.gate": (MLP, EMBED),
            f"{i}.up": (MLP, EMBED),
            f"{i}.down": (EMBED, MLP),
            f"{i}.down_bias": (EMBED,),
        }

    def parameters(self) -> list[Parameter]:
        found = [parameter("embedding", VOCAB, EMBED), parameter("head", VOCAB, EMBED)]
        return found + [parameter(name, *shape) for i in range(self.num_layers) for name, shape in self.shapes(i).items()]

    def kv_layers(self) -> list[KVLayer]:
        return self.kv

    def forward(self, ops: Ops[T]) -> T:
        p = {found.name: found for found in self.parameters()}
        x = ops.embed(p["embedding"], 3.0)
        for i in range(self.num_layers):
            h = ops.rms_norm(x, p[f"{i}.norm"], 1e-5)
            q = ops.rope(ops.linear(h, p[f"{i}.q"], p[f"{i}.q_bias"]), HEADS, self.rope)
            k = ops.rope(ops.linear(h, p[f"{i}.k"]), 1, self.rope)
            ops.kv_write(k, ops.linear(h, p[f"{i}.v"], p[f"{i}.v_bias"]), self.kv[i])
            spec = AttentionSpec(HEADS, 0.2, window=9 if i else 0, softcap=5.0, sinks=p[f"{i}.sinks"])
            attended = ops.linear(ops.attention(q, self.kv[i], spec), p[f"{i}.o"], p[f"{i}.o_bias"])
            gated = ops.gated_act(ops.linear(h, p[f"{i}.gate"]), ops.linear(h, p[f"{i}.up"]), Activation.GELU_TANH)
            x = ops.add(ops.add(x, attended), ops.linear(gated, p[f"{i}.down"], p[f"{i}.down_bias"]))
        return ops.softcap(ops.linear(ops.gather(x), p["head"]), 12.0)


ENCODERS = {"F32": quantize.to_f32, "BF16": quantize.to_bf16, "Q8_0": quantize.to_q8_0, "Q4_1": quantize.to_q4_1}


def stored(model: Parallel, matrix_format: str) -> dict[str, Weight]:
    """Random weights: matrices in the given format ("mixed": each in another), vectors in fp32."""
    found = {}
    for index, (name, values) in enumerate(random_matrices(model.parameters(), seed=2).items()):
        kind = list(ENCODERS)[index % len(ENCODERS)] if matrix_format == "mixed" else matrix_format
        kind = kind if values.ndim == 2 else "F32"
        data = ENCODERS[kind](values).reshape(-1)
        found[name] = Weight(name, FORMATS[kind], values.shape, data)
    return found


@pytest.mark.parametrize("isa", _native.supported_isas())
@pytest.mark.parametrize("matrix_format", [*ENCODERS, "mixed"])
@pytest.mark.parametrize("eager", [False, True])
def test_an_unknown_architecture_runs_as_the_reference_says(isa: str, matrix_format: str, eager: bool) -> None:
    model, pool = Parallel(), _native.ThreadPool([-1, -1])
    weights = stored(model, matrix_format)
    packed = {name: pack(w, isa, pool) for name, w in weights.items() if len(w.shape) == 2}
    vectors = {name: dequantize(w) for name, w in weights.items() if len(w.shape) == 1}
    native = CpuExecutor(model, packed, vectors, isa=isa, pool=pool, eager=eager)
    native.allocate_kv([8], 8, KVFormat("fp32"))
    modes = {name: activation_of(w.format) for name, w in weights.items() if len(w.shape) == 2}
    reference = ReferenceOps({name: dequantize(w) for name, w in weights.items()}, ReferenceKV(model.kv_layers(), [4]), modes)
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, VOCAB, 24).tolist(), rng.integers(0, VOCAB, 24).tolist()
    tables = [[3, 1, 6], [0, 5, 2]]
    for first_a, count_a, first_b, count_b in ((0, 13, 0, 1), (13, 1, 1, 17), (14, 7, 18, 1)):
        step = mixed_step([(a, first_a, count_a), (b, first_b, count_b)], tables, block_size=8)
        want, got = reference.run(model, step), native.run(step)
        # An int8 code may fall on the other side of a tie, where sums differ in the last bit.
        assert np.abs(got - want).max() < (0.05 if "q8" in modes.values() else 0.02 if "bf16" in modes.values() else 1e-4)
    pool.close()


def test_every_fusion_finds_its_place_in_it() -> None:
    model = Parallel()
    program = fuse(trace(model), {p.name: "q8" for p in model.parameters() if p.is_matrix})
    kinds = [op.kind for op in program.ops]
    layer = ["rms_norm", "linear", "rope_kv_write", "attention", "linear", "gated_linear", "linear"]
    last = ["rms_norm", "quantize", *layer[1:4], "gather", "gather", "gather", "quantize", "linear", "quantize", "gated_linear", "linear"]
    assert kinds == ["embed", *layer, *last, "quantize", "linear", "softcap"]
