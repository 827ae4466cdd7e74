"""The two real models in fp32 against transformers on the dequantized weights: every logit of a text, past Gemma's window."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from octavo.config import EngineArgs
from octavo.ops.kv_format import KVFormat
from octavo.runner.cpu_backend import build_cpu
from octavo.runner.loading import load_model
from octavo.tokenizer.load import load_tokenizer
from support.oracles import transformers_model
from support.steps import num_groups, single_sequence_step

CHUNK = 128
TEXT = (Path(__file__).parents[2] / "benchmarks" / "fidelity" / "text.txt").read_text()


def largest_difference(path: Path, num_tokens: int) -> float:
    """max |Δ logit| over all positions of the text's first tokens; chunk by chunk, for the vocabularies are large."""
    ids = np.asarray(load_tokenizer(path).encode(TEXT)[:num_tokens], np.int32)
    assert len(ids) == num_tokens, "the text is too short"
    args = EngineArgs(model=str(path), dtype="float32")
    loaded = load_model(args)
    executor, _ = build_cpu(args, loaded)
    executor.allocate_kv([num_tokens // 16 + 1] * num_groups(loaded.model), 16, KVFormat("fp32"))
    oracle = transformers_model(path)
    table = list(range(num_tokens // 16 + 1))
    worst = 0.0
    with torch.no_grad():
        hidden = oracle.model(torch.from_numpy(ids[None].astype(np.int64))).last_hidden_state[0]
        for start in range(0, num_tokens, CHUNK):
            want = oracle.lm_head(hidden[start : start + CHUNK]).numpy()
            got = executor.run(single_sequence_step(ids[start : start + CHUNK], start, table))
            worst = max(worst, float(np.abs(got - want).max()))
    executor.close()
    return worst


def test_smollm2_fp32_is_transformers(smollm2_path: Path) -> None:
    assert largest_difference(smollm2_path, 256) < 1e-3


@pytest.mark.slow
def test_smollm2_fp32_is_transformers_over_2048_tokens(smollm2_path: Path) -> None:
    assert largest_difference(smollm2_path, 2048) < 1e-3


@pytest.mark.slow
def test_gemma3_fp32_is_transformers_over_2048_tokens(gemma3_path: Path) -> None:
    assert largest_difference(gemma3_path, 2048) < 1e-3
