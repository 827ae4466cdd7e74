"""Promise 3 with 8-bit K and V, through the whole engine on the real model."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from octavo import LLM, SamplingParams
from octavo.outputs import RequestOutput
from support.bits import bits

RNG = random.Random(3)
PREFIX = [RNG.randrange(20, 40_000) for _ in range(300)]
PROMPTS = [[*PREFIX, *(RNG.randrange(20, 40_000) for _ in range(RNG.randint(1, 12)))] for _ in range(32)]
GREEDY = SamplingParams(temperature=0.0, max_tokens=4, logprobs=1, ignore_eos=True)
FORMATS = [("fp8", "guarded"), pytest.param("int8", "dynamic", marks=pytest.mark.slow)]


def engine(path: Path, dtype: str, scales: str, **changes: object) -> LLM:
    settings: dict[str, object] = {"max_model_len": 384, "max_num_seqs": 32, "num_gpu_blocks_override": 256}
    return LLM(str(path), kv_cache_dtype=dtype, kv_scales=scales, **(settings | changes))


def ask(llm: LLM, prompts: list[list[int]]) -> list[RequestOutput]:
    return llm.generate([{"prompt_token_ids": ids} for ids in prompts], GREEDY, use_tqdm=False)


@pytest.mark.parametrize(("dtype", "scales"), FORMATS)
def test_kv_21_fp_09_shared_prefix_8_bit_kv_and_concurrency(smollm2_path: Path, dtype: str, scales: str) -> None:
    """32 requests at once, in a pool that holds the prefix once, are each as alone; the first three times over, hit or miss."""
    with engine(smollm2_path, dtype, scales, max_num_batched_tokens=384) as llm:
        first = [ask(llm, PROMPTS[:1])[0] for _ in range(3)]
        serial = [ask(llm, [ids])[0] for ids in PROMPTS]
        assert [output.num_cached_tokens > 0 for output in first] == [False, True, True]
        writes = llm.stats().kv_writes
        assert writes is not None and llm.kv_usage()["writes"]["guarded_k"] == writes.guarded_k
    assert bits(first[0]) == bits(first[1]) == bits(first[2]) == bits(serial[0])
    assert (sum(writes.guarded_k) > 0) == (scales == "guarded")
    with engine(smollm2_path, dtype, scales, max_num_batched_tokens=100, num_gpu_blocks_override=96, block_size=8) as llm:
        together = ask(llm, PROMPTS)
    assert [bits(output) for output in together] == [bits(output) for output in serial]


@pytest.mark.slow
def test_fp_10_kv_saved_in_one_format_is_a_miss_in_another(smollm2_path: Path, tmp_path: Path) -> None:
    """And a hit in its own, after a restart."""

    def answers(dtype: str, scales: str = "auto", **settings: object) -> tuple[list[tuple[list[int], bytes]], int]:
        with engine(smollm2_path, dtype, scales, num_gpu_blocks_override=48, **settings) as llm:
            outputs = ask(llm, PROMPTS[:1]) + ask(llm, [PROMPTS[1][150:]])
        return [bits(output) for output in outputs], outputs[0].num_cached_tokens

    plain, _ = answers("auto")
    saved, _ = answers("fp8", prefix_cache_dir=str(tmp_path))
    assert any(tmp_path.iterdir())
    assert answers("auto", prefix_cache_dir=str(tmp_path)) == (plain, 0)
    assert answers("fp8", "dynamic", prefix_cache_dir=str(tmp_path))[1] == 0
    found, hits = answers("fp8", prefix_cache_dir=str(tmp_path))
    assert found == saved and hits >= 288
