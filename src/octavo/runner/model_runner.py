"""Runs scheduled steps of a real model: lays the step out, runs the program once, samples."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from octavo.config import EngineArgs
from octavo.errors import InvalidRequestError
from octavo.ops.kv_format import KVFormat
from octavo.ops.spec import F32Array, StepInputs
from octavo.outputs import KVWrites, ResourceCounts, TokenLogprobs
from octavo.runner.input_batch import InputBatch, StepBatch
from octavo.runner.interface import RunnerInfo
from octavo.runner.kv_advice import KVAdvice, say_what_is_missing
from octavo.runner.kv_storage import available_memory, layer_groups
from octavo.runner.loading import LoadedModel, context_length, kv_format, load_model
from octavo.runner.sampler import Sampler
from octavo.runner.transfers import BlockMover, carry_out
from octavo.scheduler.output import RunnerOutput, SchedulerOutput


class Executor(BlockMover, Protocol):
    """Computes a step's logits, and moves blocks between steps."""

    @property
    def native_seconds(self) -> float:
        """Total time in native code."""

    def allocate_kv(self, num_blocks: list[int], block_size: int, format: KVFormat) -> None:
        """Storage for each layer group."""

    def reserve(self, max_tokens: int, max_seqs: int, max_length: int) -> None:
        """Make room for the largest step: so many tokens and sequences, which have at most ``max_length`` tokens each."""

    def prefault(self, num_blocks: list[int]) -> None:
        """Take the memory of that room and that storage from the system, in the background."""

    def resources(self) -> ResourceCounts:
        """See octavo.runner.interface.Runner."""

    def kv_counts(self) -> npt.NDArray[np.uint64]:
        """What writing 8-bit K and V met, by layer: as _native.KVStorage.counts."""

    def run(self, inputs: StepInputs) -> F32Array:
        """Logits [logits rows, vocab], valid until the next call."""

    def numerics(self) -> dict[str, Any]:
        """What of this executor shapes the output's bits."""

    def details(self) -> dict[str, Any]:
        """Facts for RunnerInfo.details."""

    def close(self) -> None:
        """Free threads and memory."""


class ModelRunner:
    """octavo.runner.interface.Runner over a model on this machine's CPU."""

    def __init__(self, args: EngineArgs) -> None:
        loaded = load_model(args)
        self._args = args
        self._kv_format = kv_format(args, loaded.kv_scales)
        self._kv_advice = KVAdvice(self._kv_format.scales)
        say_what_is_missing(self._kv_format, loaded.kv_scales)
        self._executor, self._sampler = self._build(loaded)
        self._info = self._describe(loaded)
        loaded.close()
        num_groups, length = len(self._info.groups), self._info.max_model_len
        self._batch = InputBatch(args.max_num_seqs, length, args.block_size, num_groups, args.max_num_batched_tokens)

    def _build(self, loaded: LoadedModel) -> tuple[Executor, Sampler]:
        from octavo.runner.cpu_backend import build_cpu

        return build_cpu(self._args, loaded)

    @property
    def _stored_format(self) -> KVFormat:
        """What a block's bytes are reckoned by."""
        return self._kv_format

    def _describe(self, loaded: LoadedModel) -> RunnerInfo:
        config, details = loaded.config, self._executor.details()
        return RunnerInfo(
            max_model_len=context_length(self._args, config),
            vocab_size=config.vocab_size,
            eos_token_ids=tuple(token for token in config.eos_token_ids if 0 <= token < config.vocab_size),
            numerics_id=self._numerics_id(loaded),
            groups=layer_groups(loaded.model.kv_layers(), self._args.block_size, self._stored_format),
            available_kv_bytes=int(available_memory() * self._args.gpu_memory_utilization),
            isa=details.get("isa", ""),
            num_threads=details.get("num_threads", 1),
            arithmetic=_arithmetic(details),
            kv_cache_dtype=self._kv_format.dtype,
            kv_scales=self._kv_format.scales,
            load_phases=dict(loaded.phases.seconds),
            details=details,
        )

    def _numerics_id(self, loaded: LoadedModel) -> str:
        """Digest of all that shapes the output's bits: settings, weights, program, kernels, KV dtype."""
        kv = {"kv_cache_dtype": self._kv_format.dtype, "kv_scales": self._kv_format.scales}
        facts = self._args.numerics() | {"model": loaded.weights_digest} | kv | self._executor.numerics()
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def info(self) -> RunnerInfo:
        return self._info

    def allocate_kv(self, num_blocks: list[int]) -> None:
        self._executor.allocate_kv(num_blocks, self._args.block_size, self._kv_format)
        try:
            self._reserve(num_blocks)
        except MemoryError:
            asked = f"max_num_batched_tokens = {self._args.max_num_batched_tokens}"
            missing = f"beside weights and KV this machine has no memory for so large a step (max_num_seqs = {self._args.max_num_seqs})"
            raise InvalidRequestError(f"{asked}: {missing}", field="max_num_batched_tokens") from None
        if self._args.kv_prefault:
            self._executor.prefault(num_blocks)

    def _reserve(self, num_blocks: list[int]) -> None:
        """Make room for the largest step, each of whose tokens has a slot of its own in every group."""
        tokens = min(self._args.max_num_batched_tokens, min(num_blocks) * self._args.block_size)
        seqs = min(self._args.max_num_seqs, tokens)
        self._executor.reserve(tokens, seqs, self._info.max_model_len)
        self._sampler.reserve(seqs)

    def resources(self) -> ResourceCounts:
        return self._executor.resources()

    def execute(self, scheduled: SchedulerOutput) -> RunnerOutput:
        output = RunnerOutput(scheduled.step_id)
        if scheduled.transfers:
            start = time.perf_counter()
            output.errors = carry_out(scheduled.transfers, self._executor)
            output.transfer_seconds = time.perf_counter() - start
        self._batch.apply(scheduled)
        if output.errors:
            counts = {name: count for name, count in scheduled.num_scheduled_tokens.items() if name not in output.errors}
            scheduled = dataclasses.replace(scheduled, num_scheduled_tokens=counts)
        if not scheduled.num_scheduled_tokens:
            return output
        before = self._executor.native_seconds
        batch = self._batch.lay_out(scheduled)
        logits = self._executor.run(batch.inputs)
        self._score_prompts(batch, logits, output)
        self._sample(batch, logits, output)
        output.native_seconds += self._executor.native_seconds - before
        if self._kv_format.scales != "none":
            output.kv_writes = KVWrites(*self._executor.kv_counts().T.tolist())
            self._kv_advice.look(output.kv_writes)
        return output

    def _sample(self, batch: StepBatch, logits: F32Array, output: RunnerOutput) -> None:
        if not batch.sampling:
            return
        chosen = logits if len(batch.sample_rows) == len(logits) else logits[batch.sample_rows]
        sampled = self._sampler.sample(chosen, [row.state for row in batch.sampling])
        for i, row in enumerate(batch.sampling):
            if i in sampled.errors:
                output.errors[row.request_id] = sampled.errors[i]
                continue
            token = sampled.token_ids[i]
            self._batch.append_token(row, token)
            output.sampled[row.request_id] = [token]
            if (logprobs := sampled.logprobs[i]) is not None:
                output.logprobs[row.request_id] = [logprobs]
        output.native_seconds += sampled.native_seconds

    def _score_prompts(self, batch: StepBatch, logits: F32Array, output: RunnerOutput) -> None:
        for row, place, tokens in batch.prompts:
            num = row.state.params.prompt_logprobs or 0
            scores: list[TokenLogprobs] = self._sampler.prompt_logprobs(logits[place], tokens.tolist(), num)
            output.prompt_logprobs[row.request_id] = scores

    def close(self) -> None:
        self._executor.close()


def _arithmetic(details: dict[str, Any]) -> tuple[str, ...]:
    """The kinds of product that a step is made of, by the activations' type; fp32 where the executor does not say."""
    names = {"q8": "int8", "bf16": "bf16", "f32": "fp32"}
    used = {*details.get("matmul_params", {"f32": 0}), *details.get("head_params", ())}
    return tuple(name for kind, name in names.items() if kind in used)


def inspect(args: EngineArgs) -> dict[str, Any]:
    """RunnerInfo of a model as this machine would run it, as a dict; nothing is allocated for KV."""
    runner = ModelRunner(args)
    try:
        return dataclasses.asdict(runner.info())
    finally:
        runner.close()


class ReferenceModelRunner(ModelRunner):
    """The same over the reference ops: slow, for tests and as an oracle."""

    def _build(self, loaded: LoadedModel) -> tuple[Executor, Sampler]:
        from octavo.runner.reference_backend import ReferenceExecutor

        return ReferenceExecutor(loaded), Sampler()

    @property
    def _stored_format(self) -> KVFormat:
        """Numbers are rounded to the format asked for, and held in fp32; V's scale too, in the room of two scales of bf16."""
        return KVFormat("fp32", "none" if self._kv_format.scales == "none" else "dynamic")
