"""The report's arithmetic against torch and against numbers worked out by hand; which ways it compares and which it recommends."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from octavo.bench.kv_report import tables
from octavo.bench.kv_report.divergence import Distributions, Divergence
from octavo.bench.kv_report.measure import score
from octavo.bench.kv_report.recommend import recommend
from octavo.bench.kv_report.speed import SpeedPlan, measure_speeds, ratio
from octavo.bench.kv_report.text import read_text, text_ids
from octavo.bench.kv_report.variants import BASELINE, REFERENCE, choose_variants
from octavo.engine.kv_variants import KVVariant
from octavo.errors import InvalidRequestError


def logits_of(*probabilities: list[float], shift: float = 0.0) -> np.ndarray:
    return (np.log(np.array(probabilities)) + shift).astype(np.float32)


def test_divergence_by_hand():
    divergence = Divergence()
    p, q = logits_of([0.5, 0.25, 0.25], [0.2, 0.8, 1e-30]), logits_of([0.25, 0.5, 0.25], [0.2, 0.8, 1e-30], shift=10.0)
    divergence.add(Distributions(p), q, np.array([1, 0]))
    fidelity = divergence.fidelity()
    # 0.5 ln 2 + 0.25 ln 1/2 + 0.25 ln 1 = 0.25 ln 2, and 0 for what is but shifted
    assert fidelity.kl_mean == pytest.approx(0.25 * math.log(2) / 2, abs=1e-6)
    assert fidelity.kl_p99 == pytest.approx(0.99 * 0.25 * math.log(2), abs=1e-6)
    assert fidelity.top1_agreement == 0.5
    assert fidelity.perplexity == pytest.approx(math.exp(-(math.log(0.5) + math.log(0.2)) / 2), rel=1e-5)


def test_divergence_is_torchs_in_chunks_too():
    generator = torch.Generator().manual_seed(1)
    x = 6 * torch.randn(50, 1000, generator=generator)
    y = x + 0.03 * torch.randn(50, 1000, generator=generator) + 4
    tokens = torch.randint(0, 1000, (50,), generator=generator)
    log_p, log_q = torch.log_softmax(x.double(), -1), torch.log_softmax(y.double(), -1)
    kl = torch.nn.functional.kl_div(log_q, log_p, reduction="none", log_target=True).sum(-1)
    divergence = Divergence()
    for start in range(0, 50, 7):
        chunk = slice(start, start + 7)
        divergence.add(Distributions(x[chunk].numpy()), y[chunk].numpy(), tokens[start + 1 : start + 8].numpy())
    fidelity = divergence.fidelity()
    assert fidelity.kl_mean == pytest.approx(float(kl.mean()), rel=1e-3)
    assert fidelity.kl_p99 == pytest.approx(float(kl.quantile(0.99)), rel=1e-3)
    assert fidelity.top1_agreement == pytest.approx(float((x.argmax(-1) == y.argmax(-1)).double().mean()))
    assert fidelity.perplexity == pytest.approx(float(torch.nn.functional.cross_entropy(y[:-1].double(), tokens[1:]).exp()), rel=1e-5)


class TableScorer:
    """Logits after each token, from a table by position; notes what it was asked."""

    def __init__(self, table: np.ndarray) -> None:
        self.table, self.asked = table, []

    def run(self, token_ids: np.ndarray, start: int, num_logits: int) -> np.ndarray:
        self.asked.append((start, token_ids.tolist(), num_logits))
        end = start + len(token_ids)
        return self.table[end - num_logits : end]


def test_every_position_is_scored_once_whatever_the_chunks(monkeypatch):
    monkeypatch.setattr("octavo.bench.kv_report.measure.CHUNK_LOGITS", 3 * 8 + 2)
    random = np.random.default_rng(0)
    tables_ = [random.normal(size=(10, 8)).astype(np.float32) for _ in range(2)]
    ids = random.integers(0, 8, 10).astype(np.int32)
    scorers = [TableScorer(table) for table in tables_]
    reference, other = score(scorers, ids, 8, lambda *done: None)
    whole = Divergence()
    whole.add(Distributions(tables_[0]), tables_[1], ids[1:])
    assert other.kl_mean == pytest.approx(whole.fidelity().kl_mean)
    assert other.perplexity == pytest.approx(whole.fidelity().perplexity)
    assert (reference.kl_mean, reference.top1_agreement) == (pytest.approx(0, abs=1e-6), 1)
    assert [start for start, _, _ in scorers[1].asked] == [0, 3, 6, 9]
    assert scorers[0].asked == scorers[1].asked


def test_speeds_compute_the_texts_own_tokens_again_in_turn():
    ids = np.arange(2100, dtype=np.int32)
    scorers = [TableScorer(np.zeros((2100, 1), np.float32)) for _ in range(2)]
    speeds = measure_speeds(scorers, ids, SpeedPlan(rounds=3, decode_steps=2))
    assert [s.context for s in speeds[0]] == [2048]
    assert {len(s.decode) for s in (speeds[0][0], speeds[1][0])} == {3}
    prefill, *decodes = scorers[0].asked[:4]
    assert prefill == (2048 - 512, list(range(1536, 2048)), 1)
    assert decodes == [(2047, [2047], 1)] * 3
    assert len(scorers[0].asked) == 3 * 4


def test_contexts_are_those_the_text_fills():
    assert SpeedPlan().contexts(8192) == [2048, 8192]
    assert SpeedPlan().contexts(8191) == [2048]
    assert SpeedPlan().contexts(300) == [300]


def test_ratio_pairs_rounds():
    """A machine that is slow in one round is slow for all."""
    assert ratio([1.0, 10.0, 2.0], [0.5, 5.0, 1.0]) == 2.0


def test_all_ways_are_compared_by_default():
    variants = choose_variants([])
    assert variants[:2] == [REFERENCE, BASELINE]
    assert len(variants) == len(set(variants)) == 3 + 9
    assert choose_variants(["int8/dynamic", "fp8_e5m2"])[2:] == [
        KVVariant("int8", "dynamic"),
        *(KVVariant("fp8_e5m2", scales) for scales in ("static", "dynamic", "guarded")),
    ]
    assert choose_variants(["fp8", "float16"]) == choose_variants(["fp8_e4m3", "fp16"])


@pytest.mark.parametrize("name", ["int4", "int8/", "int8/best", "bf16/static", "fp8_e4m3/dynamic/x", "/"])
def test_an_unknown_dtype_lists_those_there_are(name):
    with pytest.raises(InvalidRequestError, match=rf"^dtypes = {name}: choose of fp16, bf16, fp8_e4m3, fp8_e5m2, int8") as error:
        choose_variants(["bf16", name])
    assert error.value.field == "dtypes"


def record(dtype: str, scales: str | None, kl: float, tokens: float, decode: float) -> dict[str, Any]:
    speed = {"context": 2048, "decode_vs_bf16": decode, "prefill_vs_bf16": 1.0}
    measures = {"kl_mean": kl, "kl_p99": kl, "top1_agreement": 0.99, "perplexity": 9.0, "bytes_per_token": 10.0, "tokens_per_gib": 7}
    return {"dtype": dtype, "scales": scales, **measures, "tokens_vs_bf16": tokens, "speed": [speed]}


def test_the_recommendation_follows_its_rule():
    bf16, slow = record("bf16", None, 0.0001, 1.0, 1.0), record("int8", "guarded", 0.0011, 1.94, 0.9)
    large, good = record("int8", "static", 0.001, 1.85, 1.2), record("int8", "dynamic", 0.0012, 1.94, 1.1)
    worse = record("fp8_e4m3", "dynamic", 0.013, 1.94, 1.3)
    best = recommend([bf16, slow, large, worse, good])
    assert (best.dtype, best.scales) == ("int8", "dynamic")
    assert best.decode_vs_bf16 == 1.1
    only_slow = recommend([bf16, slow, large])
    assert (only_slow.dtype, only_slow.scales, only_slow.decode_vs_bf16) == ("int8", "guarded", 0.9)
    none = recommend([bf16, large])
    assert (none.dtype, none.scales) == ("bf16", None)


def test_the_built_in_text_is_long_enough_and_verbatim():
    text = read_text(None)
    assert len(text) > 40_000
    assert "Everyone is permitted to copy and distribute verbatim copies" in text
    assert text.index("GNU GENERAL PUBLIC LICENSE") < text.index("Apache License")


class Letters:
    """A tokenizer that gives each character an id."""

    def encode(self, text: str) -> list[int]:
        return [ord(c) for c in text]


def test_tokens_are_bounded_by_text_and_context():
    def take(text: str, tokens: int | None, context: int) -> list[int]:
        return text_ids(Letters(), text, tokens, context).tolist()  # type: ignore[arg-type]

    assert take("abcdef", None, 4) == [97, 98, 99, 100]
    assert take("abc", None, 4) == [97, 98, 99]
    assert take("abc", 2, 4) == [97, 98]
    with pytest.raises(InvalidRequestError, match=r"tokens = 5: a sequence of this model has at most 4"):
        take("abcdefgh", 5, 4)
    with pytest.raises(InvalidRequestError, match=r"tokens = 4: the text has 3 tokens"):
        take("abc", 4, 9)
    with pytest.raises(InvalidRequestError, match=r"text: it has 1 tokens: it must have at least 2"):
        take("a", None, 9)


def test_tables_say_it_in_both_forms():
    runs = [record("bf16", None, 0.0001, 1.0, 1.0), record("int8", "guarded", 0.0012, 1.94, 1.1)]
    guard = {"dtype": "int8", "speed": [{"context": 2048, "decode_percent": 3.25, "prefill_percent": -1.0}], "guarded_share": [0.0, 0.5]}
    best = {"dtype": "int8", "scales": "guarded", "decode_vs_bf16": 1.1, "rule": "the best"}
    report = {"tokens": 4096, "runs": runs, "guard": [guard], "recommendation": best}
    page = tables.markdown(report)
    assert "| int8 guarded | 0.00120 | 0.0012 | 99.00 % | 9.0000 | 10 | 7 | 1.94 × |" in page
    assert "| int8 guarded | 1.10 × | 1.00 × |" in page
    assert "| int8 | +3.2 % | -1.0 % | 25.0 % | 50.0 % | 1 |" in page
    assert "Recommended 8-bit KV: --kv-cache-dtype int8 --kv-scales guarded, which decodes at 1.10 times the speed" in page
    assert page.endswith("(rule: the best).")
    out = io.StringIO()
    tables.show(report, Console(file=out, width=140))
    assert "int8 guarded" in out.getvalue() and "+3.2 %" in out.getvalue()
