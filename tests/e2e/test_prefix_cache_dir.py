"""The prefix cache on disk, with the real model: an engine that starts finds what an earlier one computed, bit for bit."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from octavo import LLM, SamplingParams
from octavo.errors import InvalidRequestError
from octavo.outputs import RequestOutput
from support.bits import bits

PROMPT = [random.Random(8).randrange(20, 40_000) for _ in range(85)]
PARAMS = SamplingParams(temperature=0.8, seed=3, max_tokens=8, logprobs=3, ignore_eos=True)


def ask(path: Path, **settings: object) -> RequestOutput:
    """One request to a fresh engine, which is closed after."""
    with LLM(str(path), **({"max_model_len": 256, "num_gpu_blocks_override": 32} | settings)) as llm:
        return llm.generate({"prompt_token_ids": PROMPT}, PARAMS, use_tqdm=False)[0]


def test_fp_10_a_restarted_engine_finds_the_prefix_and_one_of_other_numerics_does_not(smollm2_path: Path, tmp_path: Path) -> None:
    plain = ask(smollm2_path)
    folder = str(tmp_path / "cache")
    cold = ask(smollm2_path, prefix_cache_dir=folder)
    warm = ask(smollm2_path, prefix_cache_dir=folder, num_threads=1, max_num_batched_tokens=64)
    assert (cold.num_cached_tokens, warm.num_cached_tokens) == (0, 80)
    assert bits(plain) == bits(cold) == bits(warm)
    other = ask(smollm2_path, prefix_cache_dir=folder, kv_cache_dtype="fp8")
    assert other.num_cached_tokens == 0
    assert ask(smollm2_path, prefix_cache_dir=folder, kv_cache_dtype="fp8").num_cached_tokens == 80
    assert len(list(Path(folder).glob("v1-*"))) == 2


def test_a_damaged_folder_is_a_plain_miss(smollm2_path: Path, tmp_path: Path) -> None:
    cold = ask(smollm2_path, prefix_cache_dir=str(tmp_path))
    for i, path in enumerate(sorted(tmp_path.rglob("*.kv"))):
        content = path.read_bytes()
        path.write_bytes([content[:100], content[:-1] + bytes([content[-1] ^ 1]), b"", bytes(len(content))][i % 4])
    again = ask(smollm2_path, prefix_cache_dir=str(tmp_path))
    assert again.num_cached_tokens == 0 and bits(again) == bits(cold)


def test_room_for_less_than_a_block_is_refused(smollm2_path: Path, tmp_path: Path) -> None:
    with pytest.raises(
        InvalidRequestError, match=r"prefix_cache_disk_gb = 0.001: the files of one KV block of 64 tokens take 2,949,180 bytes"
    ):
        ask(smollm2_path, prefix_cache_dir=str(tmp_path), prefix_cache_disk_gb=0.001, block_size=64, kv_cache_dtype="fp32")


def test_a_folder_without_a_prefix_index_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"prefix_cache_dir = .*: nothing is cached with prefix index none"):
        LLM("smollm2", prefix_cache_dir=str(tmp_path), enable_prefix_caching=False)
