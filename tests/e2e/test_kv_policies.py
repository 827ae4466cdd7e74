"""Who owns which block changes nothing of what is generated: the real model under each set of policies."""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo import LLM, SamplingParams

POLICIES = [
    {"kv_policy": "contiguous"},
    {"kv_policy": "contiguous", "kv_placement": "contiguous-best"},
    {"kv_policy": "static"},
    {"kv_prefix_index": "radix", "kv_eviction": "cost", "kv_admission": "predicted"},
    {"kv_eviction": "lfu", "kv_admission": "guaranteed"},
]


def generate(path: Path, **policies: str) -> list[list[int]]:
    """Twelve requests with a prefix in common, in a pool that holds some of them at a time."""
    params = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)
    prompts = [f"A sheet that is folded three times gives eight leaves, or sixteen pages. Number {i} is" for i in range(12)]
    with LLM(str(path), max_model_len=128, num_gpu_blocks_override=32, max_num_seqs=8, max_num_batched_tokens=64, **policies) as llm:
        return [output.outputs[0].token_ids for output in llm.generate(prompts, params, use_tqdm=False)]


@pytest.fixture(scope="module")
def paged(smollm2_path: Path) -> list[list[int]]:
    return generate(smollm2_path)


@pytest.mark.parametrize("policies", POLICIES, ids=lambda policies: "-".join(policies.values()))
def test_outputs_do_not_depend_on_policies(smollm2_path: Path, paged: list[list[int]], policies: dict[str, str]) -> None:
    assert len({tuple(ids) for ids in paged}) > 1, "all prompts gave one answer"
    assert generate(smollm2_path, **policies) == paged
