"""8-bit K and V through the runner: scales of a checkpoint, what the log says, what is counted."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from octavo.config import EngineArgs
from octavo.kv.block_hash import root_hash
from octavo.outputs import KVWrites
from octavo.runner.kv_advice import LEAST_VECTORS, KVAdvice, layer_names
from octavo.runner.model_runner import ModelRunner, ReferenceModelRunner
from octavo.sampling_params import SamplingParams
from support.schedules import Job, run_alone
from support.tiny_models import make

PROMPT = np.random.default_rng(0).integers(3, 160, 100).tolist()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three layers of two KV heads."""
    path = tmp_path_factory.mktemp("llama")
    make("llama", path)
    return path


def with_scales(folder: Path, to: Path, scales: dict[int, float]) -> Path:
    """The model with scales of K and V for some layers."""
    to.mkdir()
    (to / "config.json").write_text((folder / "config.json").read_text())
    tensors = load_file(folder / "model.safetensors")
    for layer, scale in scales.items():
        tensors |= {f"model.layers.{layer}.self_attn.{part}_scale": np.array(scale, np.float32) for part in "kv"}
    save_file(tensors, to / "model.safetensors")
    return to


def run(folder: Path, runner_class: type[ModelRunner] = ModelRunner, **settings: Any) -> tuple[Job, ModelRunner]:
    """A request of 100 tokens and 4 more, alone."""
    runner = runner_class(EngineArgs(model=str(folder), max_num_seqs=2, max_model_len=128, **settings))
    runner.allocate_kv([8])
    job = Job("a", PROMPT, SamplingParams(temperature=0.0, seed=0, max_tokens=4, logprobs=2))
    run_alone(runner, job, 16)
    runner.close()
    return job, runner


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("dtype", ["fp8", "fp8_e5m2", "int8"])
def test_fp_06_without_scales_it_starts_and_says_so(folder: Path, caplog: pytest.LogCaptureFixture, dtype: str) -> None:
    job, _ = run(folder, kv_cache_dtype=dtype, kv_scales="static")
    assert job.done
    (said,) = [text for text in warnings(caplog) if "checkpoint" in text]
    assert "layers 0-2;" in said and "1.0" in said
    caplog.clear()
    run(folder, kv_cache_dtype=dtype, kv_scales="dynamic")
    assert not warnings(caplog)


@pytest.mark.parametrize("mode", ["static", "guarded"])
def test_fp_06_partial_scales_name_the_missing_layers(folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: str) -> None:
    run(with_scales(folder, tmp_path / "m", {1: 0.5}), kv_cache_dtype="fp8", kv_scales=mode)
    (said,) = [text for text in warnings(caplog) if "checkpoint" in text]
    assert "layers 0, 2;" in said


def logprobs(job: Job) -> np.ndarray:
    return np.array([entry.logprobs[0] for entry in job.logprobs])


def test_scales_of_the_checkpoint_are_used(folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A power of two is as good as 1.0 but for the least numbers; a scale that clips changes the result."""
    settings = {"kv_cache_dtype": "fp8_e5m2", "kv_scales": "static"}
    plain, _ = run(folder, **settings)
    caplog.clear()
    scaled, runner = run(with_scales(folder, tmp_path / "a", {0: 0.25, 1: 2.0, 2: 0.5}), **settings)
    assert not warnings(caplog) and not runner._executor.kv_counts()[:, 3:].any()
    np.testing.assert_allclose(logprobs(scaled), logprobs(plain), atol=2e-3)
    clipping, runner = run(with_scales(folder, tmp_path / "b", {0: 1.0, 1: 2.0**-20, 2: 1.0}), **settings)
    assert np.abs(logprobs(clipping) - logprobs(plain)).max() > 0.05
    counts = runner._executor.kv_counts()
    assert counts[1, 3:].min() > 0 and not counts[[0, 2], 3:].any()


def test_fp_01_a_layer_that_clips_is_named(caplog: pytest.LogCaptureFixture) -> None:
    advice = KVAdvice("static")
    n = LEAST_VECTORS
    advice.look(KVWrites([n // 2] * 3, [0] * 3, [0] * 3, [n] * 3, [n] * 3))
    assert not warnings(caplog), "too little to tell"
    advice.look(KVWrites([n] * 3, [0] * 3, [0] * 3, [0, n, 0], [0, n // 200, 0]))
    (said,) = warnings(caplog)
    assert said.startswith("K of layer 1:") and "--kv-scales guarded" in said
    advice.look(KVWrites([2 * n] * 3, [0] * 3, [0] * 3, [n, n, 0], [0, n, 0]))
    assert [text.split(":")[0] for text in warnings(caplog)[1:]] == ["K of layer 0", "V of layer 1"], "each layer once"


def test_a_layer_past_the_guarded_share_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    advice, n = KVAdvice("guarded"), 10 * LEAST_VECTORS
    for times in (1, 2, 4):
        advice.look(KVWrites([n * times] * 4, [n * times * 2 // 3] * 4, [n * times // 3] * 4, [0] * 4, [0] * 4))
    (said,) = warnings(caplog)
    assert said.startswith("K of layers 0-3: more than 50 %") and "--kv-scales dynamic" in said


def test_names_of_layers() -> None:
    assert (layer_names([4]), layer_names([5, 0, 1, 2, 7, 8])) == ("layer 4", "layers 0-2, 5, 7-8")


@pytest.mark.parametrize("dtype", ["fp8_e4m3", "fp8_e5m2"])
def test_the_guard_trips_on_some_tokens_of_the_models_that_bits_are_tested_with(folder: Path, dtype: str) -> None:
    """So that tests/runner/test_bits.py proves something; and the reference counts what the kernels count, but for a last bit's sake."""
    _, runner = run(folder, kv_cache_dtype=dtype, kv_scales="guarded")
    counts = runner._executor.kv_counts()
    assert (counts[:, 0] == 206).all()  # 103 tokens, 2 heads
    assert 0 < counts[:, 1:3].sum() < 2 * counts[:, 0].sum()
    _, reference = run(folder, ReferenceModelRunner, kv_cache_dtype=dtype, kv_scales="guarded")
    np.testing.assert_allclose(reference._executor.kv_counts().astype(float), counts.astype(float), atol=12)


def test_fp_10_every_format_has_prefix_keys_of_its_own(folder: Path) -> None:
    """A block saved under one is a miss under the others."""
    formats = [{}, {"kv_cache_dtype": "fp16"}] + [
        {"kv_cache_dtype": dtype, "kv_scales": mode} for dtype in ("fp8", "fp8_e5m2", "int8") for mode in ("static", "dynamic", "guarded")
    ]
    keys = set()
    for settings in formats:
        runner = ModelRunner(EngineArgs(model=str(folder), max_num_seqs=2, max_model_len=128, **settings))  # type: ignore[arg-type]
        keys.add(root_hash(16, runner.info().numerics_id, None, None))
        runner.close()
    assert len(keys) == len(formats)
