"""Passes over traced programs. Each takes and gives back a program in which every value is written once; none changes what is computed.

``lower_activations`` is always needed: it makes explicit what a matrix's format demands of its input. The others fuse.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from octavo.ops.program import OpRecord, Program, Value


def lower(program: Program, activations: Mapping[str, str]) -> Program:
    """The program as it runs unfused. ``activations`` says per matrix what its input becomes: "q8", "bf16" or "f32"."""
    return lower_activations(program, activations)


def fuse(program: Program, activations: Mapping[str, str]) -> Program:
    """The program as it runs by default: all passes in order."""
    program = gather_early(program)
    program = lower_activations(program, activations)
    program = fuse_gated_linear(program)
    program = merge_linears(program)
    program = fuse_residual(program)
    program = fuse_quantize(program)
    return fuse_rope_kv_write(program)


def lower_activations(program: Program, activations: Mapping[str, str]) -> Program:
    """Insert ``quantize`` where a linear's format wants int8 or bf16 inputs, once per value and kind."""
    next_id = 1 + max(value.id for op in program.ops for value in op.outputs)
    made: dict[tuple[int, str], Value] = {}
    ops: list[OpRecord] = []
    for op in program.ops:
        weight = op.weights[0] if op.kind == "linear" else None
        kind = activations[weight.name] if weight is not None else "f32"
        if kind != "f32":
            x = op.inputs[0]
            if (x.id, kind) not in made:
                made[x.id, kind] = Value(next_id, x.columns, x.rows, kind)
                next_id += 1
                ops.append(OpRecord("quantize", (x,), (made[x.id, kind],)))
            op = replace(op, inputs=(made[x.id, kind], *op.inputs[1:]))
        ops.append(op)
    return Program(tuple(ops))


ROW_BY_ROW = frozenset({"rms_norm", "linear", "gated_act", "add", "softcap"})
"""Ops each of whose output rows is made of the same rows of its inputs, wherever they are."""


def gather_early(program: Program) -> Program:
    """What only the logits need is computed for the rows that have logits: of the last layer, all that follows its attention.

    ``gather`` moves up past ops that go row by row, as far as nobody else reads what they write. Of a prompt's rows one has logits, so a
    prefill is shorter by most of a layer.
    """
    gathers = [index for index, op in enumerate(program.ops) if op.kind == "gather"]
    if len(gathers) != 1 or gathers[0] == len(program.ops) - 1:
        return program
    gather, users, producers = gathers[0], program.users(), program.producers()
    moved = {gather}
    for index in range(gather - 1, -1, -1):
        op = program.ops[index]
        readers = {reader for value in op.outputs for reader in users[value.id]}
        if op.kind in ROW_BY_ROW and readers and readers <= moved:
            moved.add(index)
    written = {value.id for index in moved for value in program.ops[index].outputs}
    needed = dict.fromkeys(value for index in sorted(moved) for value in program.ops[index].inputs if value.id not in written)
    next_id = 1 + max(value.id for op in program.ops for value in op.outputs)
    now = {value.id: replace(value, id=next_id + i, rows="logits") for i, value in enumerate(needed)}
    now |= {value.id: replace(value, rows="logits") for index in moved for value in program.ops[index].outputs}
    result, source = program.ops[gather].outputs[0], program.ops[gather].inputs[0]
    places: dict[int, list[OpRecord]] = {}
    for value in needed:  # before all that is moved, or as soon as it is there
        places.setdefault(max(min(moved), producers[value.id] + 1), []).append(OpRecord("gather", (value,), (now[value.id],)))
    ops: list[OpRecord] = []
    for index, op in enumerate(program.ops):
        ops += places.get(index, [])
        if index in moved - {gather}:
            ops.append(replace(op, inputs=tuple(now[v.id] for v in op.inputs), outputs=tuple(now[v.id] for v in op.outputs)))
        elif op.kind == "attention" and users[op.outputs[0].id] and moved.issuperset(users[op.outputs[0].id]):
            ops.append(replace(op, ints=(*op.ints[:-1], 1)))
        elif index != gather:
            ops.append(replace(op, inputs=tuple(now[source.id] if v == result else v for v in op.inputs)))
    return Program(tuple(ops))


def fuse_gated_linear(program: Program) -> Program:
    """act(gate(x)) * up(x), where nobody else reads gate(x) or up(x) and neither has a bias, becomes ``gated_linear``."""
    users, producers = program.users(), program.producers()
    replaced: dict[int, OpRecord | None] = {}
    for index, op in enumerate(program.ops):
        if op.kind != "gated_act" or any(users[value.id] != [index] for value in op.inputs):
            continue
        sources = [producers[value.id] for value in op.inputs]
        gate, up = (program.ops[source] for source in sources)
        plain = all(linear.kind == "linear" and linear.weights[1:] == (None,) for linear in (gate, up))
        if plain and gate.inputs == up.inputs:
            replaced[index] = OpRecord("gated_linear", gate.inputs, op.outputs, (gate.weights[0], up.weights[0]), op.ints)
            replaced |= dict.fromkeys(sources)
    return _replace(program, replaced)


def merge_linears(program: Program) -> Program:
    """Linears over the same input become one op with several matrices (q, k, v; gate, up), at the place of the first."""
    groups: dict[int, list[OpRecord]] = {}
    for op in program.ops:
        if op.kind == "linear":
            groups.setdefault(op.inputs[0].id, []).append(op)
    ops = []
    for op in program.ops:
        if op.kind != "linear":
            ops.append(op)
        elif (group := groups.pop(op.inputs[0].id, None)) is not None:
            ops.append(_merged(group))
    return Program(tuple(ops))


def _merged(group: list[OpRecord]) -> OpRecord:
    matrices = [op.weights[0] for op in group]
    biases = [op.weights[1] for op in group]
    outputs = tuple(op.outputs[0] for op in group)
    return OpRecord("linear", group[0].inputs, outputs, (*matrices, *biases), (len(group), 0))


def fuse_residual(program: Program) -> Program:
    """a + linear(x), where nobody else reads linear(x) and ``a`` is there by then, becomes a linear that adds ``a``."""
    users, producers = program.users(), program.producers()
    replaced: dict[int, OpRecord | None] = {}
    for index, op in enumerate(program.ops):
        if op.kind != "add":
            continue
        for product, residual in (op.inputs[::-1], op.inputs):
            source = producers[product.id]
            linear = program.ops[source]
            alone = linear.kind == "linear" and linear.ints == (1, 0) and users[product.id] == [index]
            if alone and producers[residual.id] < source:
                replaced[source] = replace(linear, inputs=(*linear.inputs, residual), outputs=op.outputs, ints=(1, 1))
                replaced[index] = None
                break
    return _replace(program, replaced)


def fuse_quantize(program: Program) -> Program:
    """An op that can write int8 or bf16 itself does so, where only ``quantize`` reads its output."""
    users, producers = program.users(), program.producers()
    replaced: dict[int, OpRecord | None] = {}
    for index, op in enumerate(program.ops):
        if op.kind != "quantize" or users[op.inputs[0].id] != [index]:
            continue
        source = producers[op.inputs[0].id]
        if program.ops[source].kind in ("rms_norm", "gated_act", "gated_linear", "attention"):
            replaced[source] = replace(replaced.get(source) or program.ops[source], outputs=op.outputs)
            replaced[index] = None
    return _replace(program, replaced)


def fuse_rope_kv_write(program: Program) -> Program:
    """Rope of q and of k, and the write of k and v, become one op, where only the write reads the rotated k."""
    users, producers = program.users(), program.producers()
    replaced: dict[int, OpRecord | None] = {}
    for index, write in enumerate(program.ops):
        if write.kind != "kv_write" or producers[write.inputs[0].id] >= index:
            continue
        k_index = producers[write.inputs[0].id]
        k_rope = program.ops[k_index]
        q_index = next((i for i in range(k_index - 1, -1, -1) if program.ops[i].kind == "rope" and i not in replaced), None)
        if k_rope.kind != "rope" or users[write.inputs[0].id] != [index] or q_index is None:
            continue
        q_rope = program.ops[q_index]
        alike = (q_rope.weights, q_rope.ints[1:], q_rope.floats) == (k_rope.weights, k_rope.ints[1:], k_rope.floats)
        early = min(users[q_rope.outputs[0].id]) < index
        if alike and not early:
            inputs = (q_rope.inputs[0], k_rope.inputs[0], write.inputs[1])
            ints = (q_rope.ints[0], k_rope.ints[0], *q_rope.ints[1:], *write.ints)
            replaced[index] = OpRecord("rope_kv_write", inputs, q_rope.outputs, q_rope.weights, ints, q_rope.floats)
            replaced[q_index] = replaced[k_index] = None
    return _replace(program, replaced)


def _replace(program: Program, replaced: Mapping[int, OpRecord | None]) -> Program:
    """The program with some ops exchanged, or left out where None."""
    ops = (replaced.get(index, op) for index, op in enumerate(program.ops))
    return Program(tuple(op for op in ops if op is not None))
