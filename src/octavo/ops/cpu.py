"""A model on the CPU: its weights packed, its program built natively, its KV storage; a step is one native call."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from octavo import _native
from octavo.ops.kv_format import KVFormat
from octavo.ops.passes import fuse, lower
from octavo.ops.program import Constant, Operand, Program, plan_buffers, trace
from octavo.ops.spec import F32Array, Int32Array, KVLayer, Model, StepInputs


class CpuExecutor:
    """Runs a model's steps natively. Built once; used by one thread.

    ``matrices`` maps parameter names to packed weights, ``vectors`` to fp32 [n].
    """

    def __init__(
        self,
        model: Model,
        matrices: Mapping[str, _native.PackedWeight],
        vectors: Mapping[str, F32Array],
        *,
        isa: str,
        pool: _native.ThreadPool,
        eager: bool = False,
    ) -> None:
        self.isa = isa
        self._layers = model.kv_layers()
        self.groups = kv_groups(self._layers)
        self.program = (lower if eager else fuse)(trace(model), {name: weight.activation for name, weight in matrices.items()})
        self.native_seconds = 0.0
        self._native = build_native(self.program, matrices, vectors, isa, pool)
        self._kv: list[_native.KVStorage] = []

    def allocate_kv(self, num_blocks: Sequence[int], block_size: int, format: KVFormat) -> None:
        """Storage for each layer group."""
        self._kv = [
            _native.KVStorage(
                self.isa,
                len(layers),
                count,
                block_size,
                layers[0].num_kv_heads,
                layers[0].head_dim,
                format.dtype,
                format.scales,
                [x for place in self._places(group) for pair in format.layer_scales[place : place + 1] for x in pair],
                format.bf16_products,
            )
            for group, (layers, count) in enumerate(zip(self.groups, num_blocks, strict=True))
        ]

    def reserve(self, max_tokens: int, max_seqs: int, max_length: int) -> None:
        """Make room for the largest step over the KV allocated: any of its tokens may want logits (prompt logprobs)."""
        self._native.reserve(self._kv, max_tokens, max_tokens, max_seqs, max_length)

    @property
    def native_program(self) -> _native.Program:
        """What a step runs; its ``reserved_bytes`` may be touched before steps use them."""
        return self._native

    def kv_counts(self) -> npt.NDArray[np.uint64]:
        """As _native.KVStorage.counts, of each layer of the model."""
        counts = np.zeros((len(self._layers), 5), np.uint64)
        for group, storage in enumerate(self._kv):
            counts[self._places(group)] = storage.counts()
        return counts

    def _places(self, group: int) -> list[int]:
        """Which of the model's layers a group's are."""
        return [place for place, layer in enumerate(self._layers) if layer.group == group]

    def sharing(self) -> CpuExecutor:
        """Another with this one's weights, program and buffers, and KV of its own to be allocated; the two run one at a time."""
        other = copy.copy(self)
        other._kv = []
        return other

    def run(self, inputs: StepInputs) -> F32Array:
        """Logits [logits rows, vocab] of a step: a view, valid until the next one."""
        start = time.perf_counter()
        logits = self._native.run(
            self._kv,
            inputs.token_ids,
            inputs.positions,
            inputs.query_start,
            inputs.seq_lens,
            inputs.block_tables,
            inputs.slot_mapping,
            inputs.logits_rows,
        )
        self.native_seconds += time.perf_counter() - start
        return logits

    def kv_storages(self) -> list[_native.KVStorage]:
        """Of each layer group."""
        return self._kv

    def copy_blocks(self, group: int, src: Int32Array, dst: Int32Array) -> None:
        """See octavo.runner.transfers.BlockMover, here and below."""
        self._kv[group].copy_blocks(src, dst)

    def export_blocks(self, group: int, blocks: Int32Array, room: npt.NDArray[np.uint8] | None = None) -> npt.NDArray[np.uint8]:
        if room is None:
            return self._kv[group].export_blocks(blocks)
        self._kv[group].export_into(blocks, room)
        return room

    def import_blocks(self, group: int, blocks: Int32Array, data: npt.NDArray[np.uint8]) -> None:
        self._kv[group].import_blocks(blocks, data)


def kv_groups(layers: Sequence[KVLayer]) -> list[list[KVLayer]]:
    """Layers by group, in order. Raises ValueError when a group's layers differ in heads, size or window."""
    groups: list[list[KVLayer]] = [[] for _ in range(1 + max(layer.group for layer in layers))]
    for layer in layers:
        groups[layer.group].append(layer)
    for index, group in enumerate(groups):
        if len({(layer.num_kv_heads, layer.head_dim, layer.window) for layer in group}) != 1:
            raise ValueError(f"layer group {index}: its layers differ in KV heads, head size or window")
    return groups


def build_native(
    program: Program,
    matrices: Mapping[str, _native.PackedWeight],
    vectors: Mapping[str, F32Array],
    isa: str,
    pool: _native.ThreadPool,
) -> _native.Program:
    """The native twin of ``program``: buffers as planned, ops in order."""

    def operand(weight: Operand) -> _native.PackedWeight | F32Array | npt.NDArray[np.float64] | None:
        if weight is None:
            return None
        if isinstance(weight, Constant):
            return np.asarray(weight.values, np.float64)
        return matrices[weight.name] if weight.is_matrix else vectors[weight.name]

    native = _native.Program(isa, pool)
    plan = plan_buffers(program)
    numbers = [native.add_buffer(*buffer) for buffer in plan.buffers]
    for op in program.ops:
        inputs = [numbers[plan.place[value.id]] for value in op.inputs]
        outputs = [numbers[plan.place[value.id]] for value in op.outputs]
        native.add_op(op.kind, inputs, outputs, [operand(w) for w in op.weights], op.ints, op.floats)
    return native
