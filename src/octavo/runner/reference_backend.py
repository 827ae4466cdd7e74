"""A model over the reference ops: what the native back end must agree with."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.ops.kv_format import KVFormat
from octavo.ops.reference import ReferenceKV, ReferenceOps
from octavo.ops.spec import F32Array, Int32Array, StepInputs
from octavo.outputs import ResourceCounts
from octavo.runner.loading import LoadedModel
from octavo.weights.dequantize import dequantize
from octavo.weights.formats import WeightFormat


def activation_of(format: WeightFormat) -> str:
    """What a matrix's inputs become (octavo.ops.spec.Ops.linear)."""
    if format.quantized:
        return "q8"
    return "bf16" if format.name == "BF16" else "f32"


class ReferenceExecutor:
    """octavo.runner.model_runner.Executor in plain numpy; all weights are dequantized."""

    native_seconds = 0.0

    def __init__(self, loaded: LoadedModel) -> None:
        self._model = loaded.model
        self._matrices = {name: dequantize(weight).astype("float32") for name, weight in loaded.weights.items()}
        self._modes = {name: activation_of(weight.format) for name, weight in loaded.weights.items() if len(weight.shape) == 2}
        self._kv: ReferenceKV
        self._ops: ReferenceOps

    def allocate_kv(self, num_blocks: list[int], block_size: int, format: KVFormat) -> None:
        self._kv = ReferenceKV(self._model.kv_layers(), num_blocks, format, block_size)
        self._ops = ReferenceOps(self._matrices, self._kv, self._modes)

    def reserve(self, max_tokens: int, max_seqs: int, max_length: int) -> None:
        """Nothing: numpy takes memory as it goes."""

    def prefault(self, num_blocks: list[int]) -> None:
        """Nothing: numpy has the memory of KV by then."""

    def resources(self) -> ResourceCounts:
        return ResourceCounts()

    def kv_counts(self) -> npt.NDArray[np.uint64]:
        return self._kv.counts

    def run(self, inputs: StepInputs) -> F32Array:
        return self._ops.run(self._model, inputs)

    def copy_blocks(self, group: int, src: Int32Array, dst: Int32Array) -> None:
        self._kv.copy_blocks(group, src, dst)

    def export_blocks(self, group: int, blocks: Int32Array, room: npt.NDArray[np.uint8] | None = None) -> npt.NDArray[np.uint8]:
        return self._kv.export_blocks(group, blocks)

    def import_blocks(self, group: int, blocks: Int32Array, data: npt.NDArray[np.uint8]) -> None:
        self._kv.import_blocks(group, blocks, data)

    def numerics(self) -> dict[str, Any]:
        return {"backend": "reference"}

    def details(self) -> dict[str, Any]:
        return {"isa": "reference"}

    def close(self) -> None:
        self._matrices.clear()
