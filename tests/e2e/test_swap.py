"""A preempted request's KV comes back from host memory as it was: ids and log-probabilities are those of a run without preemption."""

from __future__ import annotations

import random
from pathlib import Path

from octavo import LLM, SamplingParams
from octavo.outputs import EngineStats
from support.bits import bits

RNG = random.Random(6)
PROMPTS = [{"prompt_token_ids": [RNG.randrange(20, 40_000) for _ in range(RNG.randint(5, 30))]} for _ in range(6)]
PARAMS = SamplingParams(temperature=0.8, seed=3, max_tokens=60, logprobs=2, ignore_eos=True)


def generate(path: Path, **settings: object) -> tuple[list[tuple[list[int], bytes]], EngineStats]:
    with LLM(str(path), max_model_len=128, max_num_seqs=8, max_num_batched_tokens=64, enable_prefix_caching=False, **settings) as llm:
        outputs = [bits(output) for output in llm.generate(PROMPTS, PARAMS, use_tqdm=False)]
        return outputs, llm.stats()


def test_swapping_changes_no_bits_and_computes_nothing_again(smollm2_path: Path) -> None:
    expected, stats = generate(smollm2_path, num_gpu_blocks_override=64)
    assert stats.preemptions == 0
    swapped, stats = generate(smollm2_path, num_gpu_blocks_override=14, preemption_mode="swap", preemption_victim="cheapest")
    assert stats.preemptions > 0 and stats.swapped_in_blocks == stats.swapped_out_blocks > 0
    assert stats.recomputed_tokens == 0 and stats.swap_bytes == 0
    assert swapped == expected
