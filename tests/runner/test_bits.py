"""Promise 3: a request's tokens and logprobs are the same bits however it is scheduled, on every instruction set."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octavo import _native
from octavo.config import EngineArgs
from octavo.runner.model_runner import ModelRunner
from octavo.sampling_params import SamplingParams
from support.schedules import Job, run_alone, run_randomly
from support.tiny_models import VOCAB, make

NUM_BLOCKS = 600
SETTINGS = {
    "int4": {"quantization": "int4"},
    "int8-fp16-kv": {"quantization": "int8", "kv_cache_dtype": "fp16"},
    "fp8-kv": {"quantization": "int8", "kv_cache_dtype": "fp8"},
    "e5m2-static-kv": {"kv_cache_dtype": "fp8_e5m2", "kv_scales": "static"},
    "int8-dynamic-kv": {"quantization": "int4", "kv_cache_dtype": "int8"},
    "bf16": {"dtype": "bfloat16"},
    "fp32": {"dtype": "float32"},
    "eager": {"quantization": "int4", "enforce_eager": True},
}
_runners: dict[tuple[object, ...], ModelRunner] = {}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    found = {}
    for variant in ("llama", "gemma3", "qwen3"):
        found[variant] = tmp_path_factory.mktemp(variant)
        make(variant, found[variant])
    return found


def runner_of(folder: Path, isa: str, threads: int, block_size: int, setting: str) -> ModelRunner:
    key = (folder, isa, threads, block_size, setting)
    if key not in _runners:
        args = EngineArgs(
            model=str(folder), isa=isa, num_threads=threads, block_size=block_size, max_num_seqs=8, max_model_len=256, **SETTINGS[setting]
        )
        runner = _runners[key] = ModelRunner(args)
        runner.allocate_kv([NUM_BLOCKS * 16 // block_size] * len(runner.info().groups))
    return _runners[key]


@pytest.fixture(scope="module", autouse=True)
def closed_runners() -> object:
    yield
    for runner in _runners.values():
        runner.close()
    _runners.clear()


@st.composite
def job_lists(draw: st.DrawFn) -> list[Job]:
    """Two to four requests; some share a prefix, some sample, some are penalized, some want prompt logprobs."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    shared = [rng.randrange(3, VOCAB) for _ in range(64)]
    jobs = []
    for index in range(draw(st.integers(2, 4))):
        prompt = [*shared[: rng.choice([0, 16, 33, 64])], *(rng.randrange(3, VOCAB) for _ in range(rng.randint(1, 70)))]
        params = SamplingParams(
            seed=rng.randrange(2**40),
            max_tokens=rng.randint(1, 8),
            temperature=rng.choice([0.0, 0.8, 1.3]),
            top_k=rng.choice([0, 5]),
            top_p=rng.choice([1.0, 0.9]),
            repetition_penalty=rng.choice([1.0, 1.2]),
            frequency_penalty=rng.choice([0.0, 0.5]),
            logprobs=rng.choice([None, 0, 3]),
            prompt_logprobs=rng.choice([None, None, 2]),
        )
        jobs.append(Job(str(index), prompt, params))
    return jobs


def copies(jobs: list[Job]) -> list[Job]:
    return [Job(job.name, job.prompt, job.params) for job in jobs]


@pytest.mark.parametrize("isa", _native.supported_isas())
@pytest.mark.parametrize(
    ("variant", "setting"),
    [
        ("llama", "int4"),
        ("gemma3", "int8-fp16-kv"),
        ("qwen3", "bf16"),
        ("llama", "fp32"),
        ("gemma3", "int4"),
        ("qwen3", "eager"),
        ("llama", "fp8-kv"),
        ("gemma3", "e5m2-static-kv"),
        ("qwen3", "int8-dynamic-kv"),
    ],
)
@given(jobs=job_lists(), seed=st.integers(0, 2**32))
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_lt_02_bits_do_not_depend_on_the_schedule(
    folders: dict[str, Path], isa: str, variant: str, setting: str, jobs: list[Job], seed: int
) -> None:
    rng = random.Random(seed)
    plain = runner_of(folders[variant], isa, 1, 16, setting)
    for job in jobs:
        run_alone(plain, job, 16)
    for threads, block_size in ((1, rng.choice([8, 32])), (2, 16)):
        others = copies(jobs)
        runner = runner_of(folders[variant], isa, threads, block_size, setting)
        run_randomly(runner, others, block_size, NUM_BLOCKS * 16 // block_size, rng)
        for job, other in zip(jobs, others, strict=True):
            assert other.bits() == job.bits(), f"request {job.name}, {threads} threads, blocks of {block_size}"
