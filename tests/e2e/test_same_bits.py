"""Promise 3 through the whole engine on the real model: one request's ids and logprobs are the same bits in every company."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from octavo import LLM, SamplingParams
from support.bits import bits

PROMPT = [random.Random(1).randrange(20, 40_000) for _ in range(85)]
GREEDY = SamplingParams(temperature=0.0, max_tokens=12, logprobs=3, ignore_eos=True)
SAMPLED = SamplingParams(
    temperature=0.9, top_p=0.95, seed=7, max_tokens=12, logprobs=3, frequency_penalty=0.3, repetition_penalty=1.1, ignore_eos=True
)


def ask(llm: LLM, *params: SamplingParams) -> list[tuple[list[int], bytes]]:
    prompts = [{"prompt_token_ids": PROMPT}] * len(params)
    return [bits(output) for output in llm.generate(prompts, list(params), use_tqdm=False)]


def engine(path: Path, **changes: object) -> LLM:
    settings: dict[str, object] = {"max_model_len": 512, "max_num_seqs": 16, "num_gpu_blocks_override": 256}
    return LLM(str(path), **(settings | changes))


@pytest.fixture(scope="module", params=["auto", pytest.param("fp8", marks=pytest.mark.slow)])
def kv(request: pytest.FixtureRequest) -> str:
    """A kv_cache_dtype; under fp8 the guard trips on some vectors of these prompts (tests/e2e/test_kv_formats.py)."""
    dtype: str = request.param
    return dtype


@pytest.fixture(scope="module")
def alone(smollm2_path: Path, kv: str) -> Iterator[list[tuple[list[int], bytes]]]:
    """Each request by itself, cold, on one thread, prefilled whole."""
    with engine(smollm2_path, kv_cache_dtype=kv, num_threads=1, enable_prefix_caching=False) as llm:
        yield ask(llm, GREEDY) + ask(llm, SAMPLED)


@pytest.mark.parametrize("chunk", [1, 7, 16, 64, 512])
def test_lt_02_chunk_size(smollm2_path: Path, kv: str, alone: object, chunk: int) -> None:
    with engine(
        smollm2_path, kv_cache_dtype=kv, max_num_batched_tokens=chunk, max_num_seqs=min(16, chunk), enable_prefix_caching=False
    ) as llm:
        assert ask(llm, GREEDY) + ask(llm, SAMPLED) == alone


def test_prefix_hit(smollm2_path: Path, kv: str, alone: object) -> None:
    with engine(smollm2_path, kv_cache_dtype=kv) as llm:
        first = llm.generate({"prompt_token_ids": PROMPT}, GREEDY, use_tqdm=False)[0]
        second = llm.generate({"prompt_token_ids": PROMPT}, SAMPLED, use_tqdm=False)[0]
    assert (first.num_cached_tokens, second.num_cached_tokens) == (0, 80)
    assert [bits(first), bits(second)] == alone


def test_company_and_preemption(smollm2_path: Path, kv: str, alone: object) -> None:
    """Ten others of many lengths in a pool that cannot hold them all, so that some are preempted and recomputed."""
    rng = random.Random(2)
    others = [[rng.randrange(20, 40_000) for _ in range(rng.randint(1, 150))] for _ in range(10)]
    prompts = [{"prompt_token_ids": ids} for ids in [*others[:5], PROMPT, *others[5:], PROMPT]]
    noise = SamplingParams(temperature=1.0, max_tokens=40, ignore_eos=True)
    params = [noise] * 5 + [GREEDY] + [noise] * 5 + [SAMPLED]
    with engine(smollm2_path, kv_cache_dtype=kv, num_gpu_blocks_override=40, max_num_batched_tokens=64) as llm:
        outputs = llm.generate(prompts, params, use_tqdm=False)
        assert [bits(outputs[5]), bits(outputs[11])] == alone
        assert llm.stats().preemptions > 0, "the pool was too large to prove anything"


def test_block_size_and_eager_pool(smollm2_path: Path, kv: str, alone: object) -> None:
    for block_size in (8, 32, 64):
        with engine(smollm2_path, kv_cache_dtype=kv, block_size=block_size) as llm:
            assert ask(llm, GREEDY, SAMPLED) == alone
