"""Files of each weight format through the engine's own arithmetic, beside transformers in fp32."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from octavo import LLM, _native
from octavo.config import EngineArgs
from octavo.engine.core import EngineCore
from octavo.errors import InvalidRequestError
from octavo.runner.cpu_backend import build_cpu, choose_isa
from octavo.runner.loading import kv_format, load_model
from octavo.runner.model_runner import ModelRunner
from support.gguf_models import VOCAB, make_llama
from support.oracles import transformers_model
from support.steps import single_sequence_step

ISAS = _native.supported_isas()
IDS = np.random.default_rng(3).integers(3, VOCAB, 96).astype(np.int32)
TABLE = [5, 1, 7, 3, 0, 6]
KINDS = {"F32": 0.9999, "F16": 0.999, "BF16": 0.999, "Q8_0": 0.999, "Q6_K": 0.99, "Q4_0": 0.98, "Q4_K": 0.98}
"""Format → how near (cosine) the logits must be to those of the weights before they were quantized."""


def logits_of(model: Any) -> np.ndarray:
    with torch.no_grad():
        found: np.ndarray = model(torch.from_numpy(IDS[None].astype(np.int64))).logits[0].numpy()
    return found


def served(path: Path, **settings: Any) -> np.ndarray:
    """Logits of every position as the engine computes them by default: chunked, over a scattered block table."""
    args = EngineArgs(model=str(path), **settings)
    executor, _ = build_cpu(args, load_model(args))
    executor.allocate_kv([8], 16, kv_format(args))
    chunks = [(0, 50), (50, 1), (51, len(IDS) - 51)]
    found = [np.array(executor.run(single_sequence_step(IDS[at : at + count], at, TABLE))) for at, count in chunks]
    executor.close()
    return np.concatenate(found)


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * b).sum(-1) / (np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1))


@pytest.mark.parametrize("kind", KINDS)
def test_gg_04_gg_05_logits_of_every_format_are_transformers(kind: str, tmp_path: Path) -> None:
    """Near the unquantized model, as near as the format allows; and nearer to the model that the file's weights make."""
    path = tmp_path / "model.gguf"
    unquantized = logits_of(make_llama(path, kind))
    dequantized = logits_of(transformers_model(path))
    for isa in ISAS:
        got = served(path, isa=isa)
        assert np.isfinite(got).all()
        assert cosines(got, unquantized).min() > KINDS[kind], isa
        assert cosines(got, dequantized).min() > 0.9999, isa


@pytest.mark.parametrize("kind", ["F16", "BF16"])
def test_gg_04_values_past_fp16_do_not_overflow(kind: str, tmp_path: Path) -> None:
    """Activations of a million, sixteen times the largest fp16 number, between weights that fp16 holds."""

    def stretch(state: dict[str, np.ndarray]) -> None:
        for name, values in state.items():
            if "up_proj" in name or "v_proj" in name:
                values *= 2.0**10
            if "post_attention_layernorm" in name or "input_layernorm" in name:
                values *= 2.0**10 if "post" in name else 2.0**7
            if "down_proj" in name or "o_proj" in name:
                values *= 2.0**-10
            if "gate_proj" in name or "q_proj" in name or "k_proj" in name:
                values *= 2.0**-10 if "gate" in name else 2.0**-7

    path = tmp_path / "model.gguf"
    want = logits_of(make_llama(path, kind, stretch))
    for isa in ISAS:
        got = served(path, isa=isa)
        assert np.isfinite(got).all()
        assert cosines(got, want).min() > 0.999, isa


def test_gg_05_half_precision_files_keep_their_formats(tmp_path: Path) -> None:
    """F16 matrices beside F32 norms: nothing is widened in memory."""
    path = tmp_path / "model.gguf"
    make_llama(path, "F16")
    tensors = {tensor["name"]: tensor for tensor in runner_info(path).details["tensors"]}
    assert {(t["stored"], t["run"]) for name, t in tensors.items() if "norm" not in name} == {("F16", "F16")}
    assert {(t["stored"], t["run"]) for name, t in tensors.items() if "norm" in name} == {("F32", "F32")}
    assert all(t["run_bytes"] == t["stored_bytes"] for t in tensors.values())


def runner_info(path: Path, **settings: Any) -> Any:
    runner = ModelRunner(EngineArgs(model=str(path), **settings))
    runner.close()
    return runner.info()


def test_cpu_05_a_model_gives_the_same_on_every_instruction_set(tmp_path: Path) -> None:
    """In fp32 to 1e-3. A rounding may fall to the other side where activations are 8-bit: there by direction."""
    path = tmp_path / "model.gguf"
    make_llama(path, "Q4_K")
    exact = [served(path, isa=isa, dtype="float32") for isa in ISAS]
    quick = [served(path, isa=isa) for isa in ISAS]
    for isa, wide, narrow in zip(ISAS, exact, quick, strict=True):
        assert np.abs(wide - exact[0]).max() < 1e-3, isa
        assert cosines(narrow, quick[0]).min() > 0.9999, isa
        assert runner_info(path, isa=isa).isa == isa


def test_cpu_05_an_instruction_set_that_this_cpu_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether asked for by argument or by OCTAVO_ISA; unasked, the best of those it has is taken."""
    monkeypatch.delenv("OCTAVO_ISA", raising=False)
    monkeypatch.setattr(_native, "supported_isas", lambda: ["avx2", "generic"])
    assert choose_isa(EngineArgs()) == "avx2"
    assert choose_isa(EngineArgs(isa="generic")) == "generic"
    with pytest.raises(InvalidRequestError, match="isa = avx512: this CPU has avx2, generic"):
        choose_isa(EngineArgs(isa="avx512"))
    with pytest.raises(InvalidRequestError, match="isa = 'amx'"):
        EngineArgs(isa="amx")
    monkeypatch.setenv("OCTAVO_ISA", "amx")
    with pytest.raises(InvalidRequestError, match="isa = amx: this CPU has avx2, generic"):
        choose_isa(EngineArgs())


@pytest.mark.parametrize(
    ("kind", "settings", "arithmetic", "kv"),
    [
        ("F16", {}, ["fp32"], "bf16"),  # no arithmetic here is fp16's
        ("BF16", {}, ["bf16"], "bf16"),
        ("Q4_0", {}, ["int8"], "bf16"),
        ("F16", {"dtype": "bfloat16"}, ["bf16"], "bf16"),
        ("Q4_0", {"dtype": "float32"}, ["fp32"], "fp32"),
        ("F16", {"kv_cache_dtype": "fp16"}, ["fp32"], "fp16"),
    ],
)
def test_cpu_09_what_auto_comes_to_is_said(kind: str, settings: dict[str, Any], arithmetic: list[str], kv: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    make_llama(path, kind)
    core = EngineCore(EngineArgs(model=str(path), num_threads=1, num_gpu_blocks_override=8, **settings))
    core.close()
    assert (core.info.arithmetic, core.info.kv_cache_dtype) == (arithmetic, kv)
    assert core.info.describe()[0] == f"{arithmetic[0]} arithmetic on {core.info.isa}, 1 thread; K and V in {kv}"


def test_cpu_05_cpu_06_cpu_09_the_log_says_what_runs(smollm2_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), LLM(str(smollm2_path), isa="generic", num_threads=2, max_model_len=64):
        pass
    assert "int8 arithmetic on generic, 2 threads; K and V in bf16" in caplog.text
