"""Every architecture against transformers in fp32, on small random models read from Hugging Face folders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from octavo.config import EngineArgs
from octavo.ops.kv_format import KVFormat
from octavo.ops.spec import StepInputs
from octavo.runner.loading import LoadedModel, load_model
from octavo.runner.model_runner import Executor
from octavo.runner.reference_backend import ReferenceExecutor
from support.steps import num_groups, single_sequence_step
from support.tiny_models import VARIANTS, VOCAB, make

Build = Callable[[EngineArgs, LoadedModel], Executor]
TABLE = [5, 1, 7, 3, 0, 6]
CHUNKS = (37, 1, 1, 51)


def reference(args: EngineArgs, loaded: LoadedModel) -> Executor:
    return ReferenceExecutor(loaded)


def native(args: EngineArgs, loaded: LoadedModel) -> Executor:
    from octavo.runner.cpu_backend import build_cpu

    return build_cpu(args, loaded)[0]


def logits_in_chunks(build: Build, args: EngineArgs, ids: np.ndarray) -> np.ndarray:
    """Logits of every position, computed in chunks over a scattered block table."""
    loaded = load_model(args)
    executor = build(args, loaded)
    executor.allocate_kv([8] * num_groups(loaded.model), 16, KVFormat("fp32"))
    found, start = [], 0
    for count in CHUNKS:
        step: StepInputs = single_sequence_step(ids[start : start + count], start, TABLE)
        found.append(np.array(executor.run(step)))
        start += count
    return np.concatenate(found)


@pytest.mark.parametrize("backend", [reference, native])
@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_are_transformers(variant: str, backend: Build, tmp_path: Path) -> None:
    oracle = make(variant, tmp_path)
    args = EngineArgs(model=str(tmp_path), dtype="float32")
    ids = np.random.default_rng(3).integers(3, VOCAB, sum(CHUNKS)).astype(np.int32)
    with torch.no_grad():
        want = oracle(torch.from_numpy(ids[None].astype(np.int64))).logits[0].numpy()
    got = logits_in_chunks(backend, args, ids)
    assert np.abs(want).max() > 1, "the model is too flat to prove anything"
    assert np.abs(got - want).max() < 1e-3


@pytest.mark.parametrize("variant", ["llama", "gemma3", "qwen3"])
def test_bf16_checkpoints_follow_transformers_in_bf16_weights(variant: str, tmp_path: Path) -> None:
    """bf16 weights and inputs, fp32 sums: near transformers' fp32 run on the same weights."""
    oracle = make(variant, tmp_path, dtype="bfloat16")
    args = EngineArgs(model=str(tmp_path))
    ids = np.random.default_rng(4).integers(3, VOCAB, sum(CHUNKS)).astype(np.int32)
    with torch.no_grad():
        want = oracle(torch.from_numpy(ids[None].astype(np.int64))).logits[0].numpy()
    slow, fast = (logits_in_chunks(build, args, ids) for build in (reference, native))
    for got in (slow, fast):
        cosine = (got * want).sum(-1) / (np.linalg.norm(got, axis=-1) * np.linalg.norm(want, axis=-1))
        assert cosine.mean() > 0.999 and cosine.min() > 0.98
    assert np.abs(slow - fast).mean() < 0.02 * np.abs(want).mean()
