"""numerics_id: changes with all that shapes the output's bits, and with nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from octavo import _native
from octavo.config import EngineArgs
from octavo.runner.model_runner import ModelRunner
from support.tiny_models import make


def numerics_id(folder: Path, **changes: object) -> str:
    runner = ModelRunner(EngineArgs(model=str(folder), max_num_seqs=2, max_model_len=64, **changes))  # type: ignore[arg-type]
    runner.close()
    return runner.info().numerics_id


KV_SCALES = ("static", "dynamic", "guarded")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("llama")
    make("llama", path)
    return path


def test_what_shapes_bits_changes_it(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OCTAVO_ISA", raising=False)
    make("llama", tmp_path, seed=1)
    changes: list[dict[str, object]] = [
        {},
        {"dtype": "bfloat16"},
        {"quantization": "int8"},
        {"quantization": "int4"},
        {"kv_cache_dtype": "fp16"},
        *({"kv_cache_dtype": dtype, "kv_scales": scales} for dtype in ("fp8_e4m3", "fp8_e5m2", "int8") for scales in KV_SCALES),
        {"enforce_eager": True},
        *({"isa": isa} for isa in _native.supported_isas()[1:]),
    ]
    ids = [numerics_id(folder, **change) for change in changes] + [numerics_id(tmp_path)]
    assert len(set(ids)) == len(ids)


def test_what_does_not_shape_bits_leaves_it(folder: Path, tmp_path: Path) -> None:
    plain = numerics_id(folder)
    for change in ({"block_size": 32}, {"num_threads": 1}, {"max_num_batched_tokens": 7}, {"seed": 3}, {"kv_admission": "guaranteed"}):
        assert numerics_id(folder, **change) == plain, change
    moved = tmp_path / "elsewhere"
    moved.symlink_to(folder)
    assert numerics_id(moved) == plain


def test_names_for_the_same_kv_format_leave_it(folder: Path) -> None:
    plain = numerics_id(folder, kv_cache_dtype="fp8")
    assert numerics_id(folder, kv_cache_dtype="fp8_e4m3", kv_scales="guarded") == plain
    assert numerics_id(folder, kv_cache_dtype="int8") == numerics_id(folder, kv_cache_dtype="int8", kv_scales="dynamic")


def test_en_06_it_is_the_same_in_another_process(folder: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from octavo.config import EngineArgs; from octavo.runner.model_runner import ModelRunner\n"
        "r = ModelRunner(EngineArgs(model=sys.argv[1], max_num_seqs=2, max_model_len=64)); print(r.info().numerics_id)"
    )
    environment = os.environ | {"PYTHONHASHSEED": "12345"}
    found = subprocess.run(
        [sys.executable, "-c", code, str(folder)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == numerics_id(folder)
