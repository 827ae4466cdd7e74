"""``octavo bench`` on a small random model: what the JSON must hold, and that its numbers agree with each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from octavo.cli.main import app
from support.tiny_models import make

SUMMARY = {"p50", "p90", "p95", "p99", "max", "mean"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("llama")
    make("llama", folder)
    return str(folder)


def bench(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    output = tmp_path / "result.json"
    assert app(["bench", *arguments, "--output", str(output)]) == 0
    return json.loads(output.read_text())


def test_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = bench(tmp_path, "machine", "--seconds", "0.02")
    # Far apart enough to hold on any machine, whatever else it does: a byte a nanosecond is slow, a petabyte is not there.
    assert 1e8 < result["read_bytes_s"] < 1e14
    for rate in ("int8_ops_s", "bf16_flops_s", "fp32_flops_s"):
        assert 1e8 < result[rate] < 1e15
    assert result["cpus"]
    assert "memory, reading" in capsys.readouterr().out


def test_latency(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--prefill-len", "32", "--decode-prompt-len", "8", "--decode-len", "16", "--repeats", "2"]
    result = bench(tmp_path, "latency", model, *sizes, "--max-model-len", "64")
    assert result["prefill_tok_s"] == pytest.approx(32 / result["ttft_ms"]["p50"] * 1000)
    assert result["decode_tok_s"] > 0
    assert 0 < result["percent_of_bandwidth"] < 100
    assert 0 < result["percent_of_compute"] < 100
    assert 0 < result["python_share"] < 1
    assert set(result["ttft_ms"]) == set(result["itl_ms"]) == SUMMARY
    assert result["plan"]["repeats"] == 2
    assert result["machine"]["cpus"]
    assert result["allocations_after_ready"] == 0  # measuring the machine takes memory too, which is not the engine's
    assert result["isa"] and len(result["numerics_id"]) == 64
    assert "prefill" in capsys.readouterr().out


def test_throughput(model: str, tmp_path: Path) -> None:
    sizes = ["--num-prompts", "6", "--input-len", "20", "--output-len", "8", "--max-concurrency", "3"]
    result = bench(tmp_path, "throughput", model, *sizes, "--max-model-len", "64", "--seed", "3")
    assert result["output_tok_s"] * result["duration_s"] == pytest.approx(6 * 8)
    assert result["total_tok_s"] * result["duration_s"] == pytest.approx(6 * 28)
    # 20 to 27 tokens in two blocks of 16: nothing but the tail is lost.
    assert 20 / 32 <= result["kv_efficiency"] <= 27 / 32
    assert 0 < result["python_share"] < 1
    assert set(result["ttft_ms"]) == set(result["itl_ms"]) == SUMMARY
    assert result["workload"]["seed"] == 3
    assert result["allocations_after_ready"] == 0


def test_too_short_a_context_is_said_in_one_line(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app(["bench", "throughput", model, "--input-len", "60", "--output-len", "10", "--max-model-len", "64"]) == 2
    assert "--max-model-len = 64: this benchmark needs 70 tokens" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["latency", "--repeats", "0"], ["throughput", "--num-prompts", "0"], ["latency", "--decode-len", "1"]]
)
def test_bad_values_name_the_flag(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert app(["bench", *arguments]) == 2
    assert arguments[1] in capsys.readouterr().err


def test_throughput_of_a_workload_file(model: str, tmp_path: Path) -> None:
    """A trace beside it, in which all requests come within 50 ms; --num-prompts and --seed change it, the lengths are its own."""
    lines = [{"timestamp": 10 * i, "input_length": 20 + i, "output_length": 2 + i % 3, "tenant": "ab"[i % 2]} for i in range(5)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "w.toml").write_text('name = "w"\n[trace]\nfile = "t.jsonl"\n')
    file = ["--workload", str(tmp_path / "w.toml"), "--max-model-len", "64"]
    result = bench(tmp_path, "throughput", model, *file, "--num-prompts", "4", "--seed", "5")
    assert result["output_tok_s"] * result["duration_s"] == pytest.approx(2 + 3 + 4 + 2)
    assert result["total_tok_s"] * result["duration_s"] == pytest.approx(11 + 20 + 21 + 22 + 23)
    assert result["duration_s"] >= 0.03, "the fourth comes after 30 ms"
    assert result["workload"]["trace"]["file"] == "t.jsonl" and result["workload"]["seed"] == 5


def test_a_flag_that_does_not_go_with_a_workload_file_is_named(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "w.toml").write_text('name = "w"')
    assert app(["bench", "throughput", model, "--workload", str(tmp_path / "w.toml"), "--input-len", "8"]) == 2
    assert "--input-len = 8: the workload file" in capsys.readouterr().err
