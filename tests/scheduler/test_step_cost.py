"""The cost model against costs known beforehand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.scheduler.step_cost import ENOUGH_ERRORS, FRESH, GUESSED_MARGIN, REFIT_EVERY, StepCostModel, StepWork, pairs

TRUE = np.array([3e-3, 3e-4, 2e-7, 5e-4])
"""Seconds of a step, a token, a pair, a row."""


def work(tokens: int, computed: int, rows: int) -> StepWork:
    """``rows`` sequences decode and one prefills what is left of ``tokens``; each has ``computed`` tokens."""
    made = StepWork()
    for _ in range(rows):
        made.add(computed, 1, True, decode=True)
    if tokens > rows:
        made.add(computed, tokens - rows, False)
    return made


def seconds(made: StepWork) -> float:
    return float(TRUE @ made.features())


def varied(random: np.random.Generator) -> StepWork:
    rows = int(random.integers(0, 16))
    return work(rows + int(random.integers(1, 200)), int(random.integers(0, 2000)), rows)


def test_pairs_counts_every_token_and_what_it_attends_to() -> None:
    for computed, count in ((0, 1), (0, 5), (7, 1), (7, 3)):
        assert pairs(computed, count) == sum(position + 1 for position in range(computed, computed + count))


def test_the_coefficients_are_found() -> None:
    random, model = np.random.default_rng(0), StepCostModel()
    for _ in range(200):
        made = varied(random)
        model.observe(made, seconds(made))
    np.testing.assert_allclose(model.coefficients, TRUE, rtol=0.02)


def test_noise_averages_out_and_shows_in_the_margin() -> None:
    random, model = np.random.default_rng(1), StepCostModel()
    for _ in range(600):
        made = varied(random)
        model.observe(made, seconds(made) * (1 + 0.05 * random.standard_normal()) + (0.008 if random.random() < 0.1 else 0))
    probe = work(100, 500, 8)
    assert model.predict(probe) == pytest.approx(seconds(probe), rel=0.08)
    assert 0.008 < model.margin(0.05) < 0.02  # a tenth of the steps take 8 ms more, and noise is a twentieth of 60 ms at most


def test_what_was_wrong_with_the_model_at_first_does_not_stay_in_the_margin() -> None:
    """A pair costs ten times what it thought, which a long prompt among streams shows: it is 12 ms off before it has learned that."""
    random, model = np.random.default_rng(1), StepCostModel(TRUE)
    for _ in range(30):
        model.observe(work(1, 200, 1), seconds(work(1, 200, 1)))
    for computed in range(0, 4096, 60):
        made = work(68, computed, 8)
        true = float(TRUE * [1, 1, 10, 1] @ made.features())
        model.observe(made, true * (1 + 0.01 * random.standard_normal()))
    assert model.margin(0.05) < 0.008


def test_before_it_knows_its_errors_the_margin_is_a_guess() -> None:
    model = StepCostModel()
    for _ in range(ENOUGH_ERRORS // 2):
        model.observe(work(10, 10, 2), 0.01)
    assert model.margin(0.1) == pytest.approx(0.015)


def test_old_errors_are_forgotten_though_no_new_ones_come() -> None:
    """A machine that stalls while requests meet; then one stream alone, none of whose steps could tell that it no longer does."""
    model = StepCostModel(TRUE)
    for i in range(200):
        made = work(20, 100, 4)
        model.observe(made, seconds(made) + (0.03 if i % 10 == 0 else 0))
    assert model.margin(0.05) > 0.02
    for i in range(FRESH + REFIT_EVERY):
        made = work(1, 100 + i % 400, 1)
        model.observe(made, seconds(made))
    assert model.margin(0.05) == pytest.approx(GUESSED_MARGIN * 0.05)


def test_it_follows_a_machine_that_becomes_slower() -> None:
    random, model = np.random.default_rng(2), StepCostModel()
    for i in range(1500):
        made = varied(random)
        model.observe(made, seconds(made) * (1 if i < 500 else 1.6))
    probe = work(100, 500, 8)
    assert model.predict(probe) == pytest.approx(1.6 * seconds(probe), rel=0.05)


def test_hours_of_decoding_leave_the_cost_of_prefill_alone() -> None:
    random, model = np.random.default_rng(3), StepCostModel()
    for _ in range(200):
        made = varied(random)
        model.observe(made, seconds(made))
    for i in range(20_000):
        made = work(4, 100 + i % 400, 4)
        model.observe(made, seconds(made) * (1 + 0.02 * random.standard_normal()))
    probe = work(104, 300, 4)
    assert model.predict(probe) == pytest.approx(seconds(probe), rel=0.3)


@pytest.mark.parametrize("change", [0.5, 0.8, 1.5])
def test_a_single_stream_tells_the_machines_speed_and_not_the_cost_of_prefill(change: float) -> None:
    """Of one stream nobody can tell what a token costs from what a step does: a change of their sum is a change of each in proportion."""
    random, model = np.random.default_rng(5), StepCostModel(TRUE)
    for i in range(600):
        made = work(1, 100 + i, 1)
        model.observe(made, change * seconds(made) * (1 + 0.02 * random.standard_normal()))
    assert model.predict(work(1, 500, 1)) == pytest.approx(change * seconds(work(1, 500, 1)), rel=0.05)
    probe = work(104, 300, 4)
    assert model.predict(probe) == pytest.approx(change * seconds(probe), rel=0.3)


def test_no_coefficient_is_negative() -> None:
    """Times that fall with the tokens, as no machine has them, would make a line with a negative slope."""
    model = StepCostModel()
    for tokens in range(1, 60):
        model.observe(work(tokens, 0, 0), 0.1 - 0.001 * tokens)
    assert (model.coefficients >= 0).all()


@given(
    st.lists(st.floats(0, 1e-2), min_size=4, max_size=4),
    st.integers(0, 20),
    st.integers(0, 3000),
    st.integers(1, 600),
    st.floats(0.001, 0.3),
)
def test_most_tokens_is_the_largest_count_that_fits(coefficients: list[float], rows: int, computed: int, wanted: int, limit: float) -> None:
    model = StepCostModel(np.array(coefficients) * [1, 0.1, 1e-3, 1])
    base = work(rows, 50, rows)

    def fits(count: int) -> bool:
        made = StepWork(base.tokens, base.pairs, base.rows)
        made.add(computed, count, True)
        return model.predict(made) <= limit * (1 - 1e-9)

    found = model.most_tokens(base, computed, wanted, limit)
    assert 0 <= found <= wanted
    assert found == 0 or model.predict(base) + (model.predict(work(found, computed, 0)) - model.coefficients[0]) <= limit * (1 + 1e-6)
    assert found == wanted or not fits(found + 2)
