"""Native sampling and log-probabilities against the reference, which sorts; and known random numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo import _native
from octavo.runner import sampling_reference as reference
from support.native_cases import ISAS, POOL, POOL_2

ON_ALL_ISAS = pytest.mark.parametrize("isa", ISAS)


@dataclass
class Rule:
    """One row's sampling parameters, as the fp32 numbers that the native call takes."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 1
    index: int = 0

    def __post_init__(self) -> None:
        for name in ("temperature", "top_p", "min_p"):
            setattr(self, name, float(np.float32(getattr(self, name))))


def sample(logits: np.ndarray, rules: list[Rule], isa: str = ISAS[0], pool: _native.ThreadPool = POOL) -> list[int]:
    def column(name: str) -> list:
        return [getattr(rule, name) for rule in rules]

    batch = _native.SamplingRules(*map(column, ("temperature", "top_k", "top_p", "min_p", "seed")))
    return _native.sample(pool, logits, batch, column("index"), isa)


def expected(logits: np.ndarray, rule: Rule) -> int:
    return reference.sample_row(logits, rule.temperature, rule.top_k, rule.top_p, rule.min_p, rule.seed, rule.index)


rules = st.builds(
    Rule,
    temperature=st.sampled_from([0.0, 1e-6, 0.1, 0.7, 1.0, 1.5, 20.0]),
    top_k=st.sampled_from([-1, 0, 1, 2, 5, 50, 300, 10**6]),
    top_p=st.sampled_from([0.0, 0.1, 0.5, 0.9, 0.97, 0.9999, 1.0]),
    min_p=st.sampled_from([0.0, 0.0, 1e-4, 0.05, 0.3, 1.0]),
    seed=st.integers(0, 2**64 - 1),
    index=st.integers(0, 2**31 - 1),
)
"""Every filter alone and with others."""


@st.composite
def logit_rows(draw: st.DrawFn) -> np.ndarray:
    """Flat, ordinary and peaked rows, with or without ties and masked tokens."""
    vocab, seed = draw(st.sampled_from([1, 2, 15, 64, 65, 1000, 5003])), draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    row = rng.standard_normal(vocab).astype(np.float32) * draw(st.sampled_from([1e-3, 1.0, 4.0, 30.0]))
    if draw(st.booleans()):
        row = np.round(row * 2).astype(np.float32) / 2  # ties
    masked = rng.random(vocab) < draw(st.sampled_from([0.0, 0.5, 0.999]))
    masked[rng.integers(vocab)] = False
    row[masked] = -np.inf
    return row


@given(logits=logit_rows(), rule=rules, isa=st.sampled_from(ISAS))
@settings(max_examples=400, deadline=None)
def test_samples_as_the_sorted_reference(logits: np.ndarray, rule: Rule, isa: str) -> None:
    """Equal but for rounding: where the ids differ, the reference's own choice lies a rounding error away."""
    chosen = sample(logits[None], [rule], isa)[0]
    if chosen != expected(logits, rule):
        assert chosen in near_choices(logits, rule)


def near_choices(logits: np.ndarray, rule: Rule) -> set[int]:
    """What the reference says when each threshold moves by the error that fp32 weights may have."""
    choices = set()
    for shift in (-3e-6, 3e-6):
        for name in ("temperature", "top_p", "min_p"):
            moved = Rule(**vars(rule))
            setattr(moved, name, getattr(rule, name) * (1 + shift))
            choices.add(expected(logits, moved))
    return choices


@ON_ALL_ISAS
def test_random_numbers_are_philox(isa: str) -> None:
    """Over n equal tokens the choice is floor(u * n); u is by hand from the known vectors of Random123 (kat_vectors, philox4x32-10)."""
    assert reference.philox4x32((0, 0, 0, 0), (0, 0)) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    first = ((0x6627E8D5 >> 5) * 2**26 + (0xE169C58D >> 6)) / 2**53
    flat = np.zeros((1, 1 << 18), np.float32)
    assert sample(flat, [Rule(seed=0, index=0)], isa) == [int(first * (1 << 18))]
    many = [Rule(seed=seed, index=index) for seed in (0, 1, 2**32, 2**64 - 1) for index in (0, 1, 77, 2**31 - 1)]
    chosen = sample(np.repeat(flat, len(many), axis=0), many, isa, POOL_2)
    assert chosen == [int(reference.uniform(rule.seed, rule.index) * (1 << 18)) for rule in many]


@ON_ALL_ISAS
def test_a_row_does_not_depend_on_its_neighbours(isa: str) -> None:
    logits = np.random.default_rng(0).standard_normal((33, 3001)).astype(np.float32) * 3
    many = [Rule(temperature=r % 3 * 0.5, top_k=r % 5 * 20, top_p=1 - r % 4 * 0.1, min_p=r % 2 * 0.01, seed=r, index=r) for r in range(33)]
    together = sample(logits, many, isa, POOL_2)
    assert together == [sample(logits[r : r + 1], [many[r]], isa)[0] for r in range(33)]


@ON_ALL_ISAS
def test_equal_logits_fall_with_the_lower_id_first(isa: str) -> None:
    logits = np.full((1, 300), -1.0, np.float32)
    logits[0, [70, 131, 200, 299]] = 2.0
    assert sample(logits, [Rule(temperature=0.0)], isa) == [70]
    kept = {sample(logits, [Rule(top_k=3, seed=seed)], isa)[0] for seed in range(60)}
    assert kept == {70, 131, 200}
    kept = {sample(logits, [Rule(top_k=4, top_p=0.5, seed=seed)], isa)[0] for seed in range(60)}
    assert kept == {70, 131}, "two of four equal tokens are exactly half"
    assert {sample(logits, [Rule(top_p=0.0, seed=seed)], isa)[0] for seed in range(20)} == {70}
    assert {sample(logits, [Rule(min_p=1.0, seed=seed)], isa)[0] for seed in range(60)} == {70, 131, 200, 299}


@ON_ALL_ISAS
def test_top_p_keeps_the_likeliest_token_however_light_its_surroundings(isa: str) -> None:
    logits = np.full((1, 4096), -20.0, np.float32)
    logits[0, :1024], logits[0, 3000] = 0.0, 0.1
    assert {sample(logits, [Rule(top_p=1e-4, seed=seed)], isa)[0] for seed in range(20)} == {3000}


@ON_ALL_ISAS
def test_tokens_come_as_often_as_their_probability_says(isa: str) -> None:
    """Chi-squared with 4 degrees of freedom: 18.5 is exceeded once in 1,000 times."""
    p = np.array([0.5, 0.25, 0.125, 0.1, 0.025])
    draws = 4000
    logits = np.repeat(np.log(p).astype(np.float32)[None], draws, axis=0)
    counts = np.bincount(sample(logits, [Rule(seed=9, index=i) for i in range(draws)], isa, POOL_2), minlength=5)
    assert ((counts - draws * p) ** 2 / (draws * p)).sum() < 18.5


@ON_ALL_ISAS
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rows_that_are_no_numbers_give_minus_one_and_spare_the_others(isa: str, temperature: float) -> None:
    logits = np.zeros((4, 200), np.float32)
    logits[0, 150], logits[1, 3], logits[2] = np.nan, np.inf, -np.inf
    logits[3, 77] = 50.0
    assert sample(logits, [Rule(temperature=temperature)] * 4, isa) == [-1, -1, -1, 77]


@given(logits=logit_rows(), num=st.integers(0, 40), isa=st.sampled_from(ISAS), choice=st.integers(0, 10**6))
@settings(max_examples=100, deadline=None)
def test_logprobs_are_the_reference(logits: np.ndarray, num: int, isa: str, choice: int) -> None:
    rows = np.stack([logits, logits[::-1]])
    num, chosen = min(num, len(logits)), np.array([choice % len(logits)] * 2, np.int32)
    top, top_logprobs, chosen_logprobs, ranks = _native.logprobs(POOL_2, rows, chosen, num, isa)
    want = reference.logprobs(rows, chosen, num)
    assert np.array_equal(top, want[0])
    assert np.array_equal(ranks, want[3])
    np.testing.assert_allclose(top_logprobs, want[1], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(chosen_logprobs, want[2], rtol=1e-6, atol=1e-6)


@ON_ALL_ISAS
def test_logprobs_of_a_row_with_nan_are_nan(isa: str) -> None:
    logits = np.zeros((2, 100), np.float32)
    logits[0, 5] = np.nan
    top, top_logprobs, chosen, _ = _native.logprobs(POOL, logits, np.zeros(2, np.int32), 3, isa)
    assert np.isnan(top_logprobs[0]).all() and np.isnan(chosen[0])
    assert top[1].tolist() == [0, 1, 2]
    np.testing.assert_allclose(top_logprobs[1], np.log(0.01), rtol=1e-6)


def test_bad_arguments_are_refused_by_name() -> None:
    logits = np.zeros((2, 10), np.float32)
    with pytest.raises(ValueError, match="rules: 1 values for 2 rows"):
        sample(logits, [Rule()])
    with pytest.raises(ValueError, match="min_p: 2 values for 1 rows"):
        _native.SamplingRules([1.0], [0], [1.0], [0.0, 0.0], [1])
    with pytest.raises(ValueError, match="indices: 1 values for 2 rows"):
        _native.sample(POOL, logits, _native.SamplingRules([0.0] * 2, [0] * 2, [1.0] * 2, [0.0] * 2, [1] * 2), [0])
    with pytest.raises(ValueError, match=r"chosen\[1\] = 10"):
        _native.logprobs(POOL, logits, np.array([0, 10], np.int32), 1)
    with pytest.raises(ValueError, match="num = 11"):
        _native.logprobs(POOL, logits, np.array([0, 1], np.int32), 11)


def test_machine_rates_are_positive_and_ordered() -> None:
    rates = _native.machine_rates([-1], 0.02)
    assert set(rates) == {"read_bytes_s", "int8_ops_s", "bf16_flops_s", "fp32_flops_s"}
    assert min(rates.values()) > 1e8
