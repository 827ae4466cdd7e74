"""``octavo kv-report`` on a small random model, as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from octavo.cli.main import app
from support.outputs import TOKENIZER
from support.tiny_models import make
from support.toy_tokenizer import write_tokenizer

TOKENS = 200
RUN = {
    "dtype", "scales", "kl_mean", "kl_p99", "top1_agreement", "perplexity", "bytes_per_token", "tokens_per_gib", "tokens_vs_bf16", "speed",
    "numerics_id",
}  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("gemma3")
    make("gemma3", folder, vocab_size=270)
    write_tokenizer(folder, TOKENIZER)
    return str(folder)


def report(model: str, tmp_path: Path, *arguments: str) -> dict[str, Any]:
    output = tmp_path / "report.json"
    sizes = ["--tokens", str(TOKENS), "--rounds", "1", "--dtype", "float32"]
    assert app(["kv-report", model, *sizes, *arguments, "--output", str(output)]) == 0
    return json.loads(output.read_text())


def test_every_way_is_reported(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = report(model, tmp_path)
    runs = {(run["dtype"], run["scales"]): run for run in result["runs"]}
    assert len(runs) == len(result["runs"]) == 12
    assert all(set(run) == RUN for run in result["runs"])
    assert result["tokens"] == TOKENS
    assert result["benchmark"] == "kv-report"
    # 3 layers of 2 heads of 32, K and V, numbers of 4, 2 or 1 bytes and scales of 2
    assert runs["fp32", None]["bytes_per_token"] == 3 * 2 * 2 * 32 * 4
    assert runs["int8", "static"]["bytes_per_token"] == 3 * 2 * 2 * 32
    assert runs["int8", "dynamic"]["bytes_per_token"] == 3 * 2 * 2 * (32 + 2)
    assert runs["int8", "dynamic"]["tokens_vs_bf16"] == pytest.approx(64 / 34)
    assert runs["fp32", None]["tokens_per_gib"] == 2**30 // (3 * 2 * 2 * 32 * 4)
    assert len({run["numerics_id"] for run in result["runs"]}) == 12
    assert runs["fp32", None]["kl_mean"] == pytest.approx(0, abs=1e-6)
    kl = {key: run["kl_mean"] for key, run in runs.items()}
    assert kl["fp16", None] < kl["bf16", None] < kl["int8", "dynamic"] < kl["fp8_e4m3", "dynamic"] < kl["fp8_e5m2", "dynamic"]
    assert {cost["dtype"] for cost in result["guard"]} == {"fp8_e4m3", "fp8_e5m2", "int8"}
    assert all(len(cost["guarded_share"]) == 3 and all(0 <= share <= 1 for share in cost["guarded_share"]) for cost in result["guard"])
    assert all([speed["context"] for speed in run["speed"]] == [TOKENS] for run in result["runs"])
    assert result["recommendation"]["rule"]
    assert "fp8_e4m3 guarded" in capsys.readouterr().out


def test_chosen_ways_and_a_text_of_ones_own(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text.txt"
    text.write_text("A sheet folded three times gives sixteen pages. " * 10, encoding="utf-8")
    result = report(model, tmp_path, "--dtypes", "int8/dynamic", "--text", str(text), "--markdown")
    assert [(run["dtype"], run["scales"]) for run in result["runs"]] == [("fp32", None), ("bf16", None), ("int8", "dynamic")]
    assert result["guard"] == []
    assert "| int8 dynamic |" in capsys.readouterr().out


def test_the_reference_is_what_the_engine_computes(model: str, tmp_path: Path) -> None:
    """Perplexity under fp32 K and V is that of transformers on the same weights."""
    import torch
    from transformers import AutoModelForCausalLM

    from octavo.bench.kv_report.text import read_text
    from octavo.tokenizer.load import load_tokenizer
    from support.tiny_models import honour_attention_softcap

    honour_attention_softcap()
    result = report(model, tmp_path, "--dtypes", "bf16")
    ids = torch.tensor([load_tokenizer(model).encode(read_text(None))[:TOKENS]])
    oracle = AutoModelForCausalLM.from_pretrained(model, attn_implementation="eager", dtype=torch.float32).eval()
    with torch.inference_mode():
        loss = oracle(ids, labels=ids).loss
    assert result["runs"][0]["perplexity"] == pytest.approx(float(loss.exp()), rel=1e-4)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--dtypes", "int4"], "--dtypes = int4: choose of fp16, bf16, fp8_e4m3"),
        (["--tokens", "1"], "--tokens = 1"),
        (["--tokens", "600"], "--tokens = 600: a sequence of this model has at most 512 tokens"),
        (["--text", "/nowhere"], "--text = /nowhere: No such file"),
        (["--kv-cache-dtype", "int8"], "--kv-cache-dtype = int8: the report tries several; name them in --dtypes"),
    ],
)
def test_bad_values_are_said_in_one_line(model: str, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app(["kv-report", model, *arguments]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.count("\n") == 1


def test_too_short_a_text_is_said(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text.txt"
    text.write_text("Hello", encoding="utf-8")
    assert app(["kv-report", model, "--text", str(text), "--tokens", "100"]) == 2
    assert "--tokens = 100: the text has 5 tokens" in capsys.readouterr().err
