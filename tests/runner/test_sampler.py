"""States and the batch sampler: penalties by hand, masks, resume, independence of neighbours."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.runner.sampler import Sampler
from octavo.runner.sampling_reference import sample_row
from octavo.runner.sampling_state import SamplingState
from octavo.sampling_params import SamplingParams
from octavo.scheduler.output import NewRequestData

VOCAB = 50


def state(prompt=(1, 2), output=(), eos=(0,), **params) -> SamplingState:
    return SamplingState(SamplingParams(**({"seed": 1} | params)), prompt, output, eos)


def logits_of(*values: float) -> np.ndarray:
    return np.array([values], np.float32)


def adjusted(s: SamplingState, *values: float) -> list[float]:
    row = np.array(values, np.float32)
    if s.adjusts:
        s.adjust(row)
    return row.tolist()


def test_api_50_penalties_by_hand():
    """Prompt 0, 1; output 1, 1, 2. Repetition counts both; frequency and presence the output only."""
    s = state(prompt=[0, 1], output=[1, 1, 2], repetition_penalty=2.0, frequency_penalty=0.5, presence_penalty=0.25)
    assert adjusted(s, 4, -4, 4, 4) == [2, -8 - 0.5 * 2 - 0.25, 2 - 0.5 - 0.25, 4]


def test_api_50_presence_and_frequency_ignore_the_prompt():
    s = state(prompt=[0, 1, 1], presence_penalty=1.0, frequency_penalty=1.0)
    assert adjusted(s, 1, 1, 1) == [1, 1, 1]


@given(st.lists(st.integers(0, 9), max_size=120), st.floats(-2, 2), st.floats(-2, 2), st.floats(0.5, 2))
def test_penalties_equal_plain_counting(output, frequency, presence, repetition):
    s = state(prompt=[3, 3, 4], frequency_penalty=frequency, presence_penalty=presence, repetition_penalty=repetition)
    for token in output:
        s.append(token)
    values = np.linspace(-3, 3, 10).astype(np.float32)
    expected = []
    for token, value in enumerate(values.tolist()):
        if token in output or token in (3, 4):
            value = value / repetition if value > 0 else value * repetition
        expected.append(value - frequency * output.count(token) - presence * (token in output))
    np.testing.assert_allclose(adjusted(s, *values), expected, rtol=1e-5, atol=1e-5)


def test_allowed_tokens_bias_and_bitmask():
    assert adjusted(state(allowed_token_ids=[2, 0]), 1, 2, 3) == [1, -np.inf, 3]
    assert adjusted(state(logit_bias={1: 5.0, 2: -1.0}), 1, 2, 3) == [1, 7, 2]
    s = state()
    s.bitmask = np.array([0b101], np.int32)
    assert adjusted(s, 1, 2, 3) == [1, -np.inf, 3]


def test_a_bitmask_covers_a_vocabulary_of_any_size():
    s = state()
    s.bitmask = np.zeros(3, np.int32)
    s.bitmask[2] = 1 << 5  # token 69 of 70
    row = np.zeros(70, np.float32)
    s.adjust(row)
    assert np.flatnonzero(np.isfinite(row)).tolist() == [69]


def test_api_30_min_tokens_masks_every_eos_and_stop_token():
    s = state(eos=(0, 3), min_tokens=2, stop_token_ids=[1], ignore_eos=False)
    assert adjusted(s, 1, 1, 1, 1) == [-np.inf, -np.inf, 1, -np.inf]
    s.append(2)
    assert s.adjusts
    s.append(2)
    assert not s.adjusts


def test_bad_words_ban_the_token_that_would_complete_them():
    s = state(bad_words_token_ids=[[4], [1, 2, 3]])
    assert adjusted(s, 0, 0, 0, 0, 0) == [0, 0, 0, 0, -np.inf]
    s.append(1)
    s.append(2)
    assert adjusted(s, 0, 0, 0, 0, 0) == [0, 0, 0, -np.inf, -np.inf]
    s.append(0)
    assert adjusted(s, 0, 0, 0, 0, 0) == [0, 0, 0, 0, -np.inf]


def test_logprobs_are_of_the_models_own_logits():
    s = state(logprobs=2, temperature=0.0, logit_bias={0: 50.0})
    output = Sampler().sample(logits_of(*np.log([1, 2, 4, 1])), [s])
    entry = output.logprobs[0]
    assert output.token_ids == [0] and entry.token_ids == [0, 2, 1] and entry.rank == 3
    np.testing.assert_allclose(np.exp(entry.logprobs), [1 / 8, 1 / 2, 1 / 4], rtol=1e-5)


def test_logprobs_of_impossible_tokens_are_floored():
    s = state(logprobs=3, temperature=0.0)
    entry = Sampler().sample(logits_of(1, -np.inf, -np.inf), [s]).logprobs[0]
    assert entry.logprobs == [0.0, 0.0, -9999.0, -9999.0]


def test_rows_that_ask_for_different_numbers_of_logprobs():
    logits = np.random.default_rng(0).normal(size=(3, VOCAB)).astype(np.float32)
    output = Sampler().sample(logits, [state(logprobs=0), state(), state(logprobs=3)])
    assert [None if entry is None else len(entry.token_ids) for entry in output.logprobs] == [1, None, 4]


def test_prompt_logprobs_score_the_given_tokens():
    logits = np.log(np.array([[1, 2, 4, 1], [4, 1, 1, 2]], np.float32))
    first, second = Sampler().prompt_logprobs(logits, [1, 0], 1)
    assert (first.token_ids, first.rank) == ([1, 2], 2) and (second.token_ids, second.rank) == ([0, 0], 1)
    np.testing.assert_allclose(np.exp(first.logprobs + second.logprobs), [0.25, 0.5, 0.5, 0.5], rtol=1e-5)


def test_a_broken_row_fails_alone():
    logits = np.zeros((4, VOCAB), np.float32)
    logits[1, 7] = np.nan
    logits[2] = -np.inf
    logits[3, 5] = 1
    states = [state(temperature=0.0, logprobs=1) for _ in range(4)]
    output = Sampler().sample(logits, states)
    assert output.token_ids == [0, -1, -1, 5]
    assert set(output.errors) == {1, 2} and "finite" in output.errors[1] and "forbidden" in output.errors[2]
    assert output.logprobs[1] is None and output.logprobs[3] is not None


def test_sampling_leaves_the_logits_alone():
    logits = np.random.default_rng(0).normal(size=(2, VOCAB)).astype(np.float32)
    before = logits.copy()
    Sampler().sample(logits, [state(allowed_token_ids=[3], repetition_penalty=1.5), state()])
    np.testing.assert_array_equal(logits, before)


def test_api_22_a_seeded_row_does_not_depend_on_its_neighbours():
    logits = np.random.default_rng(2).normal(size=(8, VOCAB)).astype(np.float32)
    alone = [Sampler().sample(logits[:1], [state(seed=42, output=[5] * i)]).token_ids[0] for i in range(10)]
    crowd = [state(seed=k, temperature=0.0 if k % 2 else 1.3, presence_penalty=k / 10) for k in range(7)]
    together = [Sampler().sample(logits, [state(seed=42, output=[5] * i), *crowd]).token_ids[0] for i in range(10)]
    assert alone == together and len(set(alone)) > 1


params_strategy = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 0.7, 1.5]),
        "top_k": st.sampled_from([0, 5]),
        "top_p": st.sampled_from([1.0, 0.9]),
        "min_p": st.sampled_from([0.0, 0.05]),
        "presence_penalty": st.sampled_from([0.0, 1.0]),
        "frequency_penalty": st.sampled_from([0.0, 0.5]),
        "repetition_penalty": st.sampled_from([1.0, 1.3]),
        "min_tokens": st.sampled_from([0, 4]),
        "bad_words_token_ids": st.sampled_from([[], [[7], [3, 4]]]),
        "logprobs": st.sampled_from([None, 2]),
        "seed": st.integers(0, 2**63 - 1),
    }
)


def run(sampler: Sampler, s: SamplingState, steps: int, start: int = 0) -> list[tuple[int, list[float] | None]]:
    """Steps ``start`` … ``steps`` over logits that depend on the output index alone."""
    made = []
    for index in range(start, steps):
        logits = np.random.default_rng(index).normal(size=(1, VOCAB)).astype(np.float32) * 2
        output = sampler.sample(logits, [s])
        made.append((output.token_ids[0], output.logprobs[0] and output.logprobs[0].logprobs))
        s.append(output.token_ids[0])
    return made


@settings(max_examples=40, deadline=None)
@given(params_strategy)
def test_resume_at_every_output_index_continues_exactly(params):
    params = SamplingParams(max_tokens=100, **params)
    prompt, steps, sampler = [3, 7, 7], 8, Sampler()
    whole = run(sampler, SamplingState(params, prompt, (), (0, 1)), steps)
    for at in range(steps + 1):
        tokens = [*prompt, *(token for token, _ in whole[:at])]
        resumed = SamplingState.from_request(NewRequestData("r", tokens, len(prompt), params, len(tokens) - 1, [], (0, 1)))
        assert run(sampler, resumed, steps, at) == whole[at:]


def test_the_batch_follows_the_rule_row_by_row():
    rng = np.random.default_rng(4)
    logits = rng.normal(size=(6, VOCAB)).astype(np.float32) * 3
    states = [
        state(seed=i, temperature=[0.0, 0.5, 1.0][i % 3], top_k=[0, 4][i % 2], top_p=0.9, min_p=0.01, output=[0] * i) for i in range(6)
    ]
    expected = [
        sample_row(row, s.params.temperature, s.params.top_k, s.params.top_p, s.params.min_p, s.seed, len(s.output_token_ids))
        for row, s in zip(logits, states, strict=True)
    ]
    assert Sampler().sample(logits, states).token_ids == expected


def test_python_time_of_32_greedy_rows_is_small():
    """Python's own work per step; the pass over the logits is left out by a tiny vocabulary."""
    import time

    logits = np.zeros((32, 64), np.float32)
    states, sampler = [state(temperature=0.0) for _ in range(32)], Sampler()
    best = min(_timed(time.perf_counter, sampler, logits, states) for _ in range(20))
    assert best < 1.5e-3


def _timed(clock, sampler, logits, states) -> float:
    start = clock()
    sampler.sample(logits, states)
    return clock() - start


def test_a_state_needs_a_seed():
    with pytest.raises(AssertionError):
        SamplingState(SamplingParams(), [1])


@pytest.fixture(scope="module")
def pool():
    from octavo._native import ThreadPool

    pool = ThreadPool([-1, -1])
    yield pool
    pool.close()


def test_the_native_sampler_draws_the_references_tokens(pool):
    rng = np.random.default_rng(6)
    native, reference = Sampler(pool), Sampler()
    for vocab in (7, 1000, 49152):
        logits = (rng.normal(size=(12, vocab)) * 3).astype(np.float32)
        logits[3] = np.round(logits[3])  # many ties
        states = [
            state(
                seed=2**60 + i,
                temperature=[0.0, 0.7, 1.3][i % 3],
                top_k=[0, 5, 1][i % 2],
                top_p=[1.0, 0.8][i % 2],
                min_p=[0.0, 0.1][i // 6],
                output=[0] * i,
                logprobs=[None, 0, 5][i % 3],
                presence_penalty=[0.0, 0.5][i % 2],
            )
            for i in range(12)
        ]
        got, expected = native.sample(logits, states), reference.sample(logits, states)
        assert got.token_ids == expected.token_ids and got.native_seconds > 0
        for a, b in zip(got.logprobs, expected.logprobs, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                assert (a.token_ids, a.rank) == (b.token_ids, b.rank)
                np.testing.assert_allclose(a.logprobs, b.logprobs, atol=1e-5)


def test_the_native_sampler_fails_broken_rows_alone_too(pool):
    logits = np.zeros((3, VOCAB), np.float32)
    logits[0, 3], logits[1] = np.nan, -np.inf
    output = Sampler(pool).sample(logits, [state(temperature=t) for t in (0.0, 1.0, 0.0)])
    assert set(output.errors) == {0, 1} and output.token_ids == [-1, -1, 0]
