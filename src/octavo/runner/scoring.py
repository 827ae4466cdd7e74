"""A model below the scheduler: logits after each token of a given sequence, for whoever measures what a setting of KV costs."""

from __future__ import annotations

import copy
from typing import Self

import numpy as np

from octavo.config import EngineArgs
from octavo.ops.spec import F32Array, Int32Array, StepInputs
from octavo.outputs import KVWrites
from octavo.runner.cpu_backend import CpuBackend, build_cpu
from octavo.runner.interface import RunnerInfo
from octavo.runner.loading import LoadedModel, kv_format
from octavo.runner.model_runner import ModelRunner
from octavo.runner.sampler import Sampler


class ScoringRunner(ModelRunner):
    """Holds one sequence, position p in block p // block_size of each layer group. Allocate KV before the first ``run``."""

    _executor: CpuBackend
    _loaded: LoadedModel

    def _build(self, loaded: LoadedModel) -> tuple[CpuBackend, Sampler]:
        return build_cpu(self._args, loaded)

    def _describe(self, loaded: LoadedModel) -> RunnerInfo:
        self._loaded = loaded
        return super()._describe(loaded)

    def sibling(self, args: EngineArgs) -> Self:
        """The same weights and program, with the KV settings of ``args`` and KV of its own to be allocated. Siblings run one at a time."""
        other = copy.copy(self)
        other._args, other._kv_format = args, kv_format(args, self._loaded.kv_scales)
        other._executor = self._executor.sharing()
        other._info = other._describe(self._loaded)
        return other

    def kv_writes(self) -> KVWrites:
        """What writing K and V met so far."""
        return KVWrites(*self._executor.kv_counts().T.tolist())

    def run(self, token_ids: Int32Array, start: int, num_logits: int) -> F32Array:
        """Compute tokens at positions ``start`` and on, over all before them.

        Returns the logits [num_logits, vocab] after the last ``num_logits`` of them: a view, valid until a sibling's next run.
        """
        size, end = self._args.block_size, start + len(token_ids)
        positions = np.arange(start, end, dtype=np.int32)
        blocks = np.arange(-(-end // size), dtype=np.int32)[None]
        groups = len(self._info.groups)
        inputs = StepInputs(
            token_ids=token_ids,
            positions=positions,
            query_start=np.array([0, len(token_ids)], np.int32),
            seq_lens=np.array([end], np.int32),
            block_tables=[blocks] * groups,
            slot_mapping=[positions] * groups,
            logits_rows=np.arange(len(token_ids) - num_logits, len(token_ids), dtype=np.int32),
            block_size=size,
        )
        return self._executor.run(inputs)
