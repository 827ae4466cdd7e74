"""A model on the native CPU back end: packs its weights, builds its executor and sampler, and says what it built."""

from __future__ import annotations

import copy
import dataclasses
from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo import _native, envs
from octavo.config import EngineArgs
from octavo.errors import InvalidRequestError
from octavo.models.config import ModelConfig
from octavo.ops.cpu import CpuExecutor
from octavo.ops.kv_format import KVFormat
from octavo.ops.spec import F32Array, Int32Array, Parameter, StepInputs
from octavo.ops.threads import cgroup_cpus, choose_cpus
from octavo.outputs import ResourceCounts
from octavo.runner.loading import LoadedModel
from octavo.runner.prefault import Prefault, Region
from octavo.runner.sampler import Sampler
from octavo.weights.formats import Weight


def build_cpu(args: EngineArgs, loaded: LoadedModel) -> tuple[CpuBackend, Sampler]:
    """Pack ``loaded``'s weights and build its program for this machine."""
    isa = choose_isa(args)
    with loaded.phases("threads"):
        cpus = choose_cpus(args.num_threads or envs.num_threads())
        pool = _native.ThreadPool(cpus)
    with loaded.phases("pack weights"):
        matrices = {name: pack(weight, isa, pool) for name, weight in loaded.weights.items() if len(weight.shape) == 2}
        vectors = {name: vector(weight) for name, weight in loaded.weights.items() if len(weight.shape) == 1}
    with loaded.phases("build program"):
        executor = CpuExecutor(loaded.model, matrices, vectors, isa=isa, pool=pool, eager=args.enforce_eager)
    return CpuBackend(executor, matrices, pool, loaded), Sampler(pool, isa, loaded.config.vocab_size)


def choose_isa(args: EngineArgs) -> str:
    """The instruction set asked for, or the best there is. Raises InvalidRequestError when this CPU lacks it."""
    supported = _native.supported_isas()
    isa = args.isa or envs.isa() or supported[0]
    if isa not in supported:
        raise InvalidRequestError(f"isa = {isa}: this CPU has {', '.join(supported)}", field="isa")
    return isa


def pack(weight: Weight, isa: str, pool: _native.ThreadPool) -> _native.PackedWeight:
    rows, columns = weight.shape
    data = np.ascontiguousarray(weight.data).reshape(-1)
    return _native.PackedWeight(isa, pool, weight.format.name, rows, columns, data)


def _plain(config: ModelConfig) -> dict[str, Any]:
    """The config with enums by name, fit for JSON."""
    fields = dataclasses.asdict(config)
    return fields | {"activation": config.activation.name.lower(), "rope_style": config.rope_style.name.lower()}


def vector(weight: Weight) -> F32Array:
    return np.array(weight.data.view(np.float32).reshape(weight.shape))


class CpuBackend:
    """octavo.runner.model_runner.Executor over CpuExecutor, with the facts that inspect and bench want."""

    def __init__(
        self, executor: CpuExecutor, matrices: dict[str, _native.PackedWeight], pool: _native.ThreadPool, loaded: LoadedModel
    ) -> None:
        self._executor, self._matrices, self._pool = executor, matrices, pool
        self._stored = {name: (weight.format.name, weight.nbytes) for name, weight in loaded.weights.items()}
        self._model = loaded.model

        self._prefault: Prefault | None = None

    def allocate_kv(self, num_blocks: list[int], block_size: int, format: KVFormat) -> None:
        self._executor.allocate_kv(num_blocks, block_size, format)

    def reserve(self, max_tokens: int, max_seqs: int, max_length: int) -> None:
        self._executor.reserve(max_tokens, max_seqs, max_length)

    def prefault(self, num_blocks: list[int]) -> None:
        """What steps work in first, then the KV pool."""
        program = self._executor.native_program
        pools = [Region(s.touch_blocks, n, s.block_bytes) for s, n in zip(self._executor.kv_storages(), num_blocks, strict=True)]
        self._prefault = Prefault([Region(program.touch, program.reserved_bytes, 1), *pools], cgroup_cpus())

    def resources(self) -> ResourceCounts:
        return ResourceCounts(*_native.counters())

    def kv_counts(self) -> npt.NDArray[np.uint64]:
        return self._executor.kv_counts()

    def sharing(self) -> CpuBackend:
        """See CpuExecutor.sharing."""
        other = copy.copy(self)
        other._executor = self._executor.sharing()
        other._prefault = None
        return other

    def run(self, inputs: StepInputs) -> F32Array:
        return self._executor.run(inputs)

    def copy_blocks(self, group: int, src: Int32Array, dst: Int32Array) -> None:
        self._executor.copy_blocks(group, src, dst)

    def export_blocks(self, group: int, blocks: Int32Array, room: npt.NDArray[np.uint8] | None = None) -> npt.NDArray[np.uint8]:
        return self._executor.export_blocks(group, blocks, room)

    def import_blocks(self, group: int, blocks: Int32Array, data: npt.NDArray[np.uint8]) -> None:
        self._executor.import_blocks(group, blocks, data)

    @property
    def native_seconds(self) -> float:
        return self._executor.native_seconds

    def numerics(self) -> dict[str, Any]:
        return {
            "kernels": _native.KERNEL_VERSION,
            "isa": self._executor.isa,
            "program": self._executor.program.digest(),
            "formats": {name: weight.run_format for name, weight in self._matrices.items()},
        }

    def details(self) -> dict[str, Any]:
        model, config = self._model, self._model.config
        tied = model.head is model.embedding
        body = [p for p in model.parameters() if p.is_matrix and p is not model.embedding and p is not model.head]
        step_bytes = sum(self._matrices[p.name].nbytes for p in [*body, model.head])
        step_bytes += 0 if tied else self._matrices[model.embedding.name].nbytes // config.vocab_size
        return {
            "isa": self._executor.isa,
            "config": _plain(config),
            "num_threads": self._pool.num_threads,
            "weight_bytes_per_step": step_bytes,
            "matmul_params": self._params("tokens"),
            "head_params": self._params("logits"),
            "attention": self._attention(),
            "tensors": [self._tensor(name) for name in self._stored],
            "program": str(self._executor.program).splitlines(),
        }

    def _attention(self) -> list[dict[str, int]]:
        """Costs of attention by window, over all its layers; see octavo.runner.interface."""
        costs: dict[int, dict[str, int]] = {}
        for op in self._executor.program.ops:
            if op.kind == "attention":
                place, group, num_heads, window, _ = op.ints
                layer = self._executor.groups[group][place]
                cost = costs.setdefault(window, {"window": window, "flops_per_pair": 0, "kv_elements_per_token": 0})
                cost["flops_per_pair"] += 4 * num_heads * layer.head_dim
                cost["kv_elements_per_token"] += 2 * layer.num_kv_heads * layer.head_dim
        return list(costs.values())

    def _params(self, rows: str) -> dict[str, int]:
        """Weights in the matrices that each of the step's tokens is multiplied with, or each row of logits, by arithmetic."""
        counts: Counter[str] = Counter()
        for op in self._executor.program.ops:
            if op.kind in ("linear", "gated_linear") and op.outputs[0].rows == rows:
                for p in op.weights:
                    if isinstance(p, Parameter) and p.is_matrix:
                        counts[self._matrices[p.name].activation] += p.shape[0] * p.shape[1]
        return dict(counts)

    def _tensor(self, name: str) -> dict[str, Any]:
        stored, nbytes = self._stored[name]
        packed = self._matrices.get(name)
        run = ("F32", nbytes) if packed is None else (packed.run_format, packed.nbytes)
        return {"name": name, "stored": stored, "stored_bytes": nbytes, "run": run[0], "run_bytes": run[1]}

    def close(self) -> None:
        if self._prefault is not None:
            self._prefault.stop()
        self._pool.close()
