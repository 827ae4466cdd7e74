"""Tracing, passes and the buffer plan: what runs must equal what the model says."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.models.config import ModelConfig
from octavo.models.registry import ARCHITECTURES, build
from octavo.ops.passes import fuse, gather_early, lower
from octavo.ops.program import OpRecord, Program, Value, plan_buffers, trace
from octavo.ops.reference import ReferenceKV, ReferenceOps
from octavo.ops.spec import Model
from support.interpreter import Interpreter, random_matrices
from support.steps import single_sequence_step


def config(architecture: str) -> ModelConfig:
    return ModelConfig(
        architecture=architecture,
        vocab_size=96,
        hidden_size=64,
        intermediate_size=96,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=16,
        rms_norm_eps=1e-5,
        max_position_embeddings=128,
        attention_bias=architecture == "qwen2",
        qk_norm=architecture in ("qwen3", "gemma3"),
        tie_word_embeddings=architecture == "gemma3",
        sliding_window=8 if architecture == "gemma3" else 0,
        sliding_layers=(True, False) if architecture == "gemma3" else (),
        logits_softcap=9.0 if architecture == "gemma3" else 0.0,
        local_rope_theta=100.0 if architecture == "gemma3" else None,
    )


@dataclass
class Setup:
    model: Model
    matrices: dict[str, np.ndarray]
    modes: dict[str, str]

    def eager(self) -> list[np.ndarray]:
        ops = ReferenceOps(self.matrices, ReferenceKV(self.model.kv_layers(), [4, 4]), self.modes)
        return [ops.run(self.model, step) for step in self.steps()]

    def interpreted(self, program: Program) -> list[np.ndarray]:
        ops = ReferenceOps(self.matrices, ReferenceKV(self.model.kv_layers(), [4, 4]))
        interpreter = Interpreter(ops, self.matrices, self.model.kv_layers())
        return [interpreter.run(program, step) for step in self.steps()]

    def steps(self) -> list:
        ids = np.random.default_rng(5).integers(0, 96, 25)
        return [single_sequence_step(ids[:20], 0, [2, 0]), single_sequence_step(ids[20:21], 20, [2, 0])]


def setup(architecture: str, mode: str = "q8") -> Setup:
    model = build(config(architecture))
    matrices = random_matrices(model.parameters())
    return Setup(model, matrices, {p.name: mode for p in model.parameters() if p.is_matrix})


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("mode", ["q8", "bf16", "f32"])
@pytest.mark.parametrize("rewrite", [lower, fuse])
def test_passes_do_not_change_the_result(architecture: str, mode: str, rewrite: object) -> None:
    case = setup(architecture, mode)
    program = rewrite(trace(case.model), case.modes)  # type: ignore[operator]
    for want, got in zip(case.eager(), case.interpreted(program), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("architecture", ["llama", "mistral", "qwen2"])
def test_a_fused_llama_layer_is_eight_ops(architecture: str) -> None:
    case = setup(architecture)
    kinds = [op.kind for op in fuse(trace(case.model), case.modes).ops]
    layer = ["rms_norm", "linear", "rope_kv_write", "attention", "linear", "rms_norm", "gated_linear", "linear"]
    assert kinds == ["embed", *layer, *layer[:4], "gather", "gather", "quantize", *layer[4:], "rms_norm", "linear"]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_what_follows_the_last_attention_is_of_the_rows_with_logits(architecture: str) -> None:
    case = setup(architecture)
    ops = gather_early(trace(case.model)).ops
    last = max(index for index, op in enumerate(ops) if op.kind == "attention")
    assert all(value.rows == "tokens" for op in ops[: last + 1] for value in (*op.inputs, *op.outputs))
    after = [op for op in ops[last + 1 :] if op.kind != "gather"]
    assert all(value.rows == "logits" for op in after for value in (*op.inputs, *op.outputs))
    assert [op.kind for op in after if op.kind == "linear"] == ["linear"] * 5  # o, gate, up, down, head


def test_a_value_that_all_rows_need_is_gathered_where_only_the_logits_need_it() -> None:
    """x feeds the next layer's norm and is its residual too: as a residual it is gathered, for the norm it is not."""
    x, normed, kept, out = (Value(i, 8) for i in range(4))
    read, logits = Value(4, 8, "logits"), Value(5, 8, "logits")
    ops = [OpRecord("embed", (), (x,)), OpRecord("rms_norm", (x,), (normed,)), OpRecord("kv_write", (normed, normed), ())]
    ops += [
        OpRecord("attention", (normed,), (kept,), ints=(0, 0, 1, 0, 0)),
        OpRecord("add", (x, kept), (out,)),
        OpRecord("gather", (out,), (read,)),
    ]
    program = gather_early(Program((*ops, OpRecord("softcap", (read,), (logits,)))))
    assert str(program).splitlines()[-4:] == [
        "%6:f32[logits,8] = gather(%0)",
        "%7:f32[logits,8] = gather(%2)",
        "%3:f32[logits,8] = add(%6, %7)",
        "%5:f32[logits,8] = softcap(%3)",
    ]
    assert program.ops[:3] == tuple(ops[:3])
    assert program.ops[3] == OpRecord("attention", (normed,), (kept,), ints=(0, 0, 1, 0, 1))


@st.composite
def programs_with_a_gather(draw: st.DrawFn) -> Program:
    """Layers that may be wired in any way: values read early and late, by several, by the KV cache, or by nobody."""
    values, ops = [Value(0, 8)], [OpRecord("embed", (), (Value(0, 8),))]
    for index in range(1, draw(st.integers(2, 20))):
        kind = draw(st.sampled_from(["add", "add", "rms_norm", "attention", "rope", "kv_write"]))
        inputs = tuple(draw(st.sampled_from(values[-5:])) for _ in range(2 if kind in ("add", "kv_write") else 1))
        if kind == "kv_write":
            ops.append(OpRecord(kind, inputs, ()))
        else:
            values.append(Value(index, 8))
            ops.append(OpRecord(kind, inputs, (values[-1],), ints=(0, 0, 1, 0, 0) if kind == "attention" else ()))
    read, result = Value(100, 8, "logits"), Value(101, 8, "logits")
    ops += [OpRecord("gather", (draw(st.sampled_from(values[-3:])),), (read,)), OpRecord("softcap", (read,), (result,))]
    return Program(tuple(ops[: -draw(st.integers(0, 1)) or None]))


def outcome(program: Program, logits_rows: list[int]) -> np.ndarray:
    """The result on five tokens, in ops that tell rows apart; rows that an attention may leave are NaN."""
    found: dict[Value, np.ndarray] = {}
    for op in program.ops:
        x = [found[value] for value in op.inputs]
        if op.kind == "embed":
            out = np.arange(5.0)[:, None] + np.arange(8)
        elif op.kind == "add":
            out = x[0] + 0.5 * x[1]
        elif op.kind in ("rms_norm", "softcap"):
            out = np.sin(x[0]) + len(op.kind)
        elif op.kind == "rope":
            out = x[0] * np.arange(1.0, 6.0)[:, None]
        elif op.kind == "attention":
            out = np.cumsum(x[0], axis=0)
            out[: min(logits_rows, default=5) if op.ints[-1] else 0] = np.nan
        elif op.kind == "gather":
            out = x[0][logits_rows]
        if op.kind != "kv_write":
            found[op.outputs[0]] = out
    return found[program.result]


@given(programs_with_a_gather(), st.sets(st.integers(0, 4)).map(sorted))
@settings(max_examples=500)
def test_however_layers_are_wired_gathering_early_changes_nothing(program: Program, logits_rows: list[int]) -> None:
    early = gather_early(program)
    plan_buffers(early)
    np.testing.assert_array_equal(outcome(early, logits_rows), outcome(program, logits_rows))


def test_quantization_is_shared_by_the_linears_that_read_it() -> None:
    case = setup("llama")
    program = lower(trace(case.model), case.modes)
    quantized = [op.inputs[0].id for op in program.ops if op.kind == "quantize"]
    assert len(quantized) == len(set(quantized)) == 4 * 2 + 1


def test_a_mixed_model_quantizes_only_where_formats_ask() -> None:
    case = setup("llama")
    case.modes["layers.0.attn.k"] = "f32"
    for rewrite in (lower, fuse):
        for want, got in zip(case.eager(), case.interpreted(rewrite(trace(case.model), case.modes)), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_digest_and_plan_do_not_depend_on_the_process() -> None:
    one, two = (fuse(trace(setup("gemma3").model), setup("gemma3").modes) for _ in range(2))
    assert one.digest() == two.digest() and str(one) == str(two)
    assert plan_buffers(one).place == plan_buffers(two).place
    assert one.digest() != fuse(trace(setup("qwen3").model), setup("qwen3").modes).digest()


def test_digest_sees_every_number() -> None:
    case = setup("llama")
    program = trace(case.model)
    for index, op in enumerate(program.ops):
        if op.floats:
            changed = OpRecord(op.kind, op.inputs, op.outputs, op.weights, op.ints, (*op.floats[:-1], op.floats[-1] + 1e-7))
            other = Program((*program.ops[:index], changed, *program.ops[index + 1 :]))
            assert other.digest() != program.digest()


def test_shape_mistakes_are_named_when_traced() -> None:
    class Wrong:
        def parameters(self) -> list:
            return []

        def kv_layers(self) -> list:
            return []

        def forward(self, ops: object) -> object:
            x = ops.embed(setup("llama").model.embedding)  # type: ignore[attr-defined]
            return ops.linear(x, setup("llama").model.layers[0].down)  # type: ignore[attr-defined]

    with pytest.raises(ValueError, match=r"layers\.0\.mlp\.down"):
        trace(Wrong())  # type: ignore[arg-type]


@st.composite
def random_programs(draw: st.DrawFn) -> Program:
    """Chains of adds over live values of two widths: enough to break a wrong buffer plan."""
    values = [Value(0, 8), Value(1, 8), Value(2, 16), Value(3, 16)]
    ops = [OpRecord("source", (), (value,), ints=(value.id,)) for value in values]
    for index in range(4, draw(st.integers(5, 30))):
        columns = draw(st.sampled_from([8, 16]))
        same = [v for v in values if v.columns == columns]
        a, b = draw(st.sampled_from(same)), draw(st.sampled_from(same))
        values.append(Value(index, columns))
        ops.append(OpRecord("add", (a, b), (values[-1],)))
    return Program(tuple(ops))


@given(random_programs())
@settings(max_examples=200)
def test_no_two_live_values_share_a_buffer(program: Program) -> None:
    plan, buffers, values = plan_buffers(program), {}, {}
    for op in program.ops:
        if op.kind == "source":
            result = float(op.ints[0] + 1)
            values[op.outputs[0].id] = result
        else:
            read = [buffers[plan.place[v.id]] for v in op.inputs]
            assert read == [values[v.id] for v in op.inputs], f"{op} read a value that was overwritten"
            result = read[0] * 1.5 + read[1]
            values[op.outputs[0].id] = result
        buffers[plan.place[op.outputs[0].id]] = result
    assert buffers[plan.place[program.result.id]] == values[program.result.id]


def test_the_plan_needs_few_buffers() -> None:
    case = setup("llama")
    deep = build(ModelConfig(**{**vars(config("llama")), "num_layers": 40}))
    shallow_plan = plan_buffers(fuse(trace(case.model), case.modes))
    deep_modes = {p.name: "q8" for p in deep.parameters() if p.is_matrix}
    assert len(plan_buffers(fuse(trace(deep), deep_modes)).buffers) == len(shallow_plan.buffers)
