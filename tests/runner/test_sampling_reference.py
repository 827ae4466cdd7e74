"""The sampling rule against published vectors, arithmetic by hand, and statistics."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from octavo.runner.sampling_reference import logprobs, philox4x32, sample_row, uniform

WORDS = 0xFFFFFFFF
logit_rows = hnp.arrays(np.float32, st.integers(2, 40), elements=st.floats(-20, 20, width=32))


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((WORDS,) * 4, (WORDS,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_random123s_known_answers(counter, key, expected):
    assert philox4x32(counter, key) == expected


def test_uniform_uses_both_words_of_the_seed_and_53_bits():
    x0, x1, *_ = philox4x32((7, 0, 0, 0), (5, 3))
    assert uniform(5 + (3 << 32), 7) == ((x0 >> 5) * 67108864 + (x1 >> 6)) / 9007199254740992
    draws = [uniform(1, i) for i in range(4000)]
    assert min(draws) >= 0 and max(draws) < 1 and abs(np.mean(draws) - 0.5) < 0.02


def row(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_sp_09_equal_logits_give_the_lowest_id():
    assert sample_row(row(1, 3, 3, 2), 0.0, 0, 1.0, 0.0, 1, 0) == 1
    assert {sample_row(row(1, 3, 3, 3), 1.0, 2, 1.0, 0.0, 1, i) for i in range(50)} == {1, 2}  # exactly two stay
    assert {sample_row(row(3, 3, 3, 3), 1.0, 0, 0.5, 0.0, 1, i) for i in range(50)} == {0, 1}


@pytest.mark.parametrize("temperature", [1e-4, 1e-8, 0.0])
@pytest.mark.parametrize("top_p", [1e-4, 0.0, 1.0])
def test_api_20_tiny_temperatures_and_top_p_equal_greedy(temperature, top_p):
    logits = np.random.default_rng(0).normal(size=1000).astype(np.float32) * 5
    for index in range(5):
        assert sample_row(logits, temperature, 0, top_p, 0.0, 3, index) == int(logits.argmax())


@pytest.mark.parametrize("top_p", [1e-4, 0.0])
def test_api_20_tiny_top_p_at_temperature_1_equals_greedy(top_p):
    logits = np.random.default_rng(1).normal(size=1000).astype(np.float32)
    assert {sample_row(logits, 1.0, 0, top_p, 0.0, 3, i) for i in range(20)} == {int(logits.argmax())}


@given(logit_rows, st.integers(0, 5), st.floats(0, 1), st.floats(0, 1))
def test_api_21_temperature_0_is_greedy_whatever_else(logits, top_k, top_p, min_p):
    assert sample_row(logits, 0.0, top_k, top_p, min_p, 9, 4) == int(np.argmax(logits))


@given(logit_rows, st.floats(0.1, 3), st.integers(0, 8), st.floats(0, 1), st.floats(0, 1), st.integers(0, 2**63 - 1), st.integers(0, 99))
def test_only_tokens_inside_every_limit_are_drawn(logits, temperature, top_k, top_p, min_p, seed, index):
    token = sample_row(logits, temperature, top_k, top_p, min_p, seed, index)
    weights = np.exp((logits.astype(np.float64) - logits.max()) / temperature)
    better = (logits > logits[token]) | ((logits == logits[token]) & (np.arange(len(logits)) < token))
    assert weights[token] >= min_p
    if top_k:
        assert better.sum() < top_k
    # All that is likelier does not reach top_p of what min_p and top_k leave, so the token was needed.
    left = np.sort(weights[weights >= min_p])[::-1]
    left = left[:top_k] if top_k else left
    if better.any():
        assert weights[better].sum() < top_p * left.sum() * (1 + 1e-9)


def test_draws_follow_the_distribution():
    """Chi-square over 8 tokens, 7 degrees of freedom: 24.3 is the 0.1 % point."""
    logits = row(0, 1, 2, 0.5, -1, 1.5, 0.2, -0.3)
    expected = np.exp(logits / 0.8)
    expected *= 20000 / expected.sum()
    counts = np.bincount([sample_row(logits, 0.8, 0, 1.0, 0.0, seed, seed % 7) for seed in range(20000)], minlength=8)
    assert ((counts - expected) ** 2 / expected).sum() < 24.3


def test_masked_tokens_are_never_drawn():
    logits = row(-np.inf, 0, -np.inf, 0)
    assert {sample_row(logits, 1.0, 0, 1.0, 0.0, 1, i) for i in range(50)} == {1, 3}


def test_logprobs_by_hand():
    """Weights 1, 2, 4, 1: probabilities 1/8, 1/4, 1/2, 1/8."""
    logits = np.log(np.array([[1, 2, 4, 1]], np.float32))
    top, values, chosen, rank = logprobs(logits, np.array([3], np.int32), 3)
    assert top.tolist() == [[2, 1, 0]]
    np.testing.assert_allclose(np.exp(values), [[0.5, 0.25, 0.125]], rtol=1e-6)
    np.testing.assert_allclose(np.exp(chosen), [0.125], rtol=1e-6)
    assert rank.tolist() == [3]  # two are likelier; its equal is not counted


def test_logprobs_agree_with_torch():
    import torch

    logits = np.random.default_rng(5).normal(size=(4, 300)).astype(np.float32) * 4
    _, values, chosen, rank = logprobs(logits, np.array([1, 2, 3, 4], np.int32), 5)
    expected = torch.log_softmax(torch.from_numpy(logits), dim=-1)
    np.testing.assert_allclose(values, expected.topk(5).values.numpy(), atol=2e-5)
    np.testing.assert_allclose(chosen, [expected[i, i + 1] for i in range(4)], atol=2e-5)
    assert rank.tolist() == [1 + int((expected[i] > expected[i, i + 1]).sum()) for i in range(4)]
