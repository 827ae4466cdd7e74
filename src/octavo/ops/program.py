"""Tracing: a model's forward pass, called once with a recorder, becomes a flat list of op records.

A program is symbolic in the number of rows: it says how many columns each value has and whether its rows are the step's
tokens or its logits rows. In a fresh trace each value is written once, by one op (SSA); ``octavo.ops.passes`` rewrites such lists, and
``plan_buffers`` at last maps values onto few buffers. The kinds of ops and their operands are listed in docs/native.md.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from octavo.ops.spec import Activation, AttentionSpec, KVLayer, Model, Ops, Parameter, Rope


@dataclass(frozen=True)
class Value:
    """A matrix of activations: ``rows`` is "tokens" or "logits", ``kind`` is "f32", "q8" or "bf16"."""

    id: int
    columns: int
    rows: str = "tokens"
    kind: str = "f32"

    def __str__(self) -> str:
        return f"%{self.id}:{self.kind}[{self.rows},{self.columns}]"


@dataclass(frozen=True)
class Constant:
    """A small vector that belongs to the op itself (rope frequencies)."""

    values: tuple[float, ...]

    @property
    def name(self) -> str:
        digest = hashlib.sha256(repr(self.values).encode()).hexdigest()[:8]
        return f"const[{len(self.values)}]:{digest}"


Operand = Parameter | Constant | None


@dataclass(frozen=True)
class OpRecord:
    """One op: what it reads, writes and is parameterized by (docs/native.md)."""

    kind: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    weights: tuple[Operand, ...] = ()
    ints: tuple[int, ...] = ()
    floats: tuple[float, ...] = ()

    def __str__(self) -> str:
        outputs = ", ".join(map(str, self.outputs))
        operands = [f"%{v.id}" for v in self.inputs] + [w.name for w in self.weights if w is not None]
        numbers = [*map(str, self.ints), *(f"{x:g}" for x in self.floats)]
        call = f"{self.kind}({', '.join(operands)}" + (f"; {' '.join(numbers)})" if numbers else ")")
        return f"{outputs} = {call}" if outputs else call


@dataclass(frozen=True)
class Program:
    """Op records in order; the last op's output is the logits."""

    ops: tuple[OpRecord, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.ops))

    def digest(self) -> str:
        """SHA-256 of everything in it, in hex; part of numerics_id."""
        return hashlib.sha256(repr(self.ops).encode()).hexdigest()

    @property
    def result(self) -> Value:
        return self.ops[-1].outputs[0]

    def users(self) -> dict[int, list[int]]:
        """Per value id: the indices of the ops that read it, the result's reader being one past the last."""
        users: dict[int, list[int]] = defaultdict(list)
        for index, op in enumerate(self.ops):
            for value in op.inputs:
                users[value.id].append(index)
        users[self.result.id].append(len(self.ops))
        return users

    def producers(self) -> dict[int, int]:
        """Per value id: the index of the op that writes it."""
        return {value.id: index for index, op in enumerate(self.ops) for value in op.outputs}

    def parameters(self) -> list[Parameter]:
        """The parameters it names, each once, in order of first use."""
        found = {w.name: w for op in self.ops for w in op.weights if isinstance(w, Parameter)}
        return list(found.values())


class Tracer(Ops[Value]):
    """Records ops."""

    def __init__(self) -> None:
        self.ops: list[OpRecord] = []
        self._ids = 0

    def _new(self, columns: int, rows: str = "tokens") -> Value:
        self._ids += 1
        return Value(self._ids - 1, columns, rows)

    def _emit(
        self,
        kind: str,
        inputs: Iterable[Value],
        output: Value | None,
        weights: Iterable[Operand] = (),
        ints: Iterable[int] = (),
        floats: Iterable[float] = (),
    ) -> None:
        outputs = () if output is None else (output,)
        self.ops.append(OpRecord(kind, tuple(inputs), outputs, tuple(weights), tuple(ints), tuple(floats)))

    def embed(self, weight: Parameter, scale: float = 1.0) -> Value:
        out = self._new(weight.shape[1])
        self._emit("embed", (), out, [weight], floats=[scale])
        return out

    def rms_norm(self, x: Value, weight: Parameter, eps: float, heads: int = 1) -> Value:
        _require(weight.shape == (x.columns // heads,), f"{weight.name}{list(weight.shape)} does not fit {x} in {heads} heads")
        out = self._new(x.columns, x.rows)
        self._emit("rms_norm", [x], out, [weight], [heads], [eps])
        return out

    def linear(self, x: Value, weight: Parameter, bias: Parameter | None = None) -> Value:
        _require(weight.shape[1] == x.columns, f"{weight.name}{list(weight.shape)} does not fit {x}")
        _require(bias is None or bias.shape == weight.shape[:1], f"bias of {weight.name} has another length")
        out = self._new(weight.shape[0], x.rows)
        self._emit("linear", [x], out, [weight, bias], [1, 0])
        return out

    def rope(self, x: Value, heads: int, rope: Rope) -> Value:
        out = self._new(x.columns, x.rows)
        self._emit("rope", [x], out, [Constant(rope.inv_freq)], [heads, x.columns // heads, int(rope.style)], [rope.mscale])
        return out

    def kv_write(self, k: Value, v: Value, layer: KVLayer) -> None:
        width = layer.num_kv_heads * layer.head_dim
        _require(k.columns == v.columns == width, f"K {k} and V {v} must have {width} columns")
        self._emit("kv_write", [k, v], None, ints=[layer.index, layer.group])

    def attention(self, q: Value, layer: KVLayer, spec: AttentionSpec) -> Value:
        _require(q.columns == spec.num_heads * layer.head_dim, f"Q {q} must have {spec.num_heads} heads of {layer.head_dim}")
        out = self._new(q.columns)
        ints = [layer.index, layer.group, spec.num_heads, spec.window, 0]
        self._emit("attention", [q], out, [spec.sinks], ints, [spec.scale, spec.softcap])
        return out

    def gated_act(self, gate: Value, up: Value, activation: Activation) -> Value:
        _require(gate.columns == up.columns, f"{gate} and {up} differ in columns")
        out = self._new(gate.columns, gate.rows)
        self._emit("gated_act", [gate, up], out, ints=[int(activation)])
        return out

    def add(self, a: Value, b: Value) -> Value:
        _require((a.columns, a.rows) == (b.columns, b.rows), f"{a} and {b} differ in shape")
        out = self._new(a.columns, a.rows)
        self._emit("add", [a, b], out)
        return out

    def softcap(self, x: Value, cap: float) -> Value:
        out = self._new(x.columns, x.rows)
        self._emit("softcap", [x], out, floats=[cap])
        return out

    def gather(self, x: Value) -> Value:
        out = self._new(x.columns, "logits")
        self._emit("gather", [x], out)
        return out


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def trace(model: Model) -> Program:
    """Call ``model.forward`` once with a recorder. Raises ValueError where shapes do not fit."""
    tracer = Tracer()
    model.forward(tracer)
    return Program(tuple(tracer.ops))


@dataclass
class BufferPlan:
    """Which buffer each value lives in. ``buffers`` are the (kind, columns, rows) of each."""

    buffers: list[tuple[str, int, str]] = field(default_factory=list)
    place: dict[int, int] = field(default_factory=dict)

    def row_bytes(self) -> int:
        """Bytes that one row takes in all buffers together."""
        size = {"f32": 4.0, "bf16": 2.0, "q8": 1.25}
        return int(sum(columns * size[kind] for kind, columns, _ in self.buffers))


IN_PLACE: dict[str, tuple[int, ...]] = {
    "rms_norm": (0,),
    "rope": (0,),
    "rope_kv_write": (0,),
    "add": (0, 1),
    "gated_act": (0, 1),
    "softcap": (0,),
}
"""Inputs whose buffer an op's (first) output may take over, when nobody reads them later."""


def _takeover(op: OpRecord, last_use: dict[int, int], index: int) -> Value | None:
    """The input whose buffer the first output may take over, if any; a linear may take its residual's."""
    candidates = op.inputs[1:2] if op.kind == "linear" and op.ints == (1, 1) else [op.inputs[i] for i in IN_PLACE.get(op.kind, ())]
    for value in candidates:
        out = op.outputs[0]
        if last_use[value.id] == index and (value.kind, value.columns, value.rows) == (out.kind, out.columns, out.rows):
            return value
    return None


def plan_buffers(program: Program) -> BufferPlan:
    """Linear scan over the ops: a value's buffer is free again after its last reader. Columns are never shared between sizes."""
    last_use = {value: max(readers) for value, readers in program.users().items()}
    plan = BufferPlan()
    free: dict[tuple[str, int, str], list[int]] = defaultdict(list)
    for index, op in enumerate(program.ops):
        taken = _takeover(op, last_use, index)
        for position, value in enumerate(op.outputs):
            shape = (value.kind, value.columns, value.rows)
            if position == 0 and taken is not None:
                plan.place[value.id] = plan.place[taken.id]
            elif free[shape]:
                plan.place[value.id] = free[shape].pop()
            else:
                plan.place[value.id] = len(plan.buffers)
                plan.buffers.append(shape)
        for value in dict.fromkeys((*op.inputs, *op.outputs)):
            if value != taken and last_use.get(value.id, index) == index:
                free[value.kind, value.columns, value.rows].append(plan.place[value.id])
    return plan
