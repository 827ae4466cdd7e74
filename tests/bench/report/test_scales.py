"""Ticks are round, cover the axis, and say enough digits to tell them apart."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.bench.report.numbers import text
from octavo.bench.report.scales import Scale, linear_domain, log_domain, log_ticks, nice_step

FINITE = st.floats(-1e12, 1e12, allow_nan=False)
POSITIVE = st.floats(1e-9, 1e12)


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (0, 100, ["0", "20", "40", "60", "80", "100"]),
        (0, 1, ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        (0, 10, ["0.0", "2.5", "5.0", "7.5", "10.0"]),
        (0, 12_345, ["0", "2,500", "5,000", "7,500", "10k"]),
        (0, 5e6, ["0", "1M", "2M", "3M", "4M", "5M"]),
        (20, 20.4, ["20.0", "20.1", "20.2", "20.3", "20.4"]),
    ],
)
def test_linear_ticks(low: float, high: float, labels: list[str]) -> None:
    count = 4 if labels[1] == "2.5" else 5
    assert [label for _, label in Scale(low, high, 0, 1).ticks(count)] == labels


def test_log_ticks_are_powers_of_ten_and_more_while_there_is_room() -> None:
    assert [label for _, label in log_ticks(1, 1000, 3)] == ["1", "10", "100", "1,000"]
    assert [label for _, label in log_ticks(1, 100, 7)] == ["1", "2", "5", "10", "20", "50", "100"]
    assert [label for _, label in log_ticks(0.01, 1, 3)] == ["0.01", "0.1", "1"]
    assert [value for value, _ in log_ticks(1e-9, 1e9, 6)] == pytest.approx([10.0**power for power in range(-9, 10, 3)])


@given(st.lists(FINITE, min_size=1), st.integers(2, 12))
def test_a_linear_axis_holds_every_value_and_a_few_ticks(values: list[float], count: int) -> None:
    low, high = linear_domain(values, count)
    span = high - low
    assert span > 0
    assert low <= min(values) + 1e-6 * span and high >= max(values) - 1e-6 * span
    ticks = Scale(low, high, 0, 1).ticks(count)
    assert 1 <= len(ticks) <= 2.5 * count + 2
    assert len({label for _, label in ticks}) == len(ticks)


@given(st.lists(POSITIVE, min_size=1))
def test_a_log_axis_holds_every_value_from_round_to_round(values: list[float]) -> None:
    low, high = log_domain(values)
    assert 0 < low < high
    assert low <= min(values) * (1 + 1e-6) and high >= max(values) * (1 - 1e-6)
    for end in (low, high):
        assert round(end / 10.0 ** math.floor(math.log10(end) + 1e-9), 6) in (1, 2, 2.5, 4, 5, 10)


@given(FINITE, st.floats(1e-6, 1e9))
def test_places_go_from_start_to_end(low: float, width: float) -> None:
    scale = Scale(low, low + width, 300, 20)
    if scale.high > scale.low:
        assert scale.place(low) == 300
        assert scale.place(scale.high) == pytest.approx(20)


def test_steps_are_1_2_2_5_or_5_times_a_power_of_ten() -> None:
    assert [nice_step(0, high, 5) for high in (1, 7, 11, 24, 60)] == pytest.approx([0.2, 2, 2.5, 5, 20])


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (0.0, "0"),
        (1234567.8, "1,234,568"),
        (104.6, "105"),
        (99.94, "99.9"),
        (12.345, "12.3"),
        (1.0, "1.00"),
        (0.0123456, "0.0123"),
        (-2.5, "-2.50"),
        (3.2e-7, "3.2e-07"),
        (math.nan, "–"),
        (math.inf, "∞"),
        (12345, "12,345"),
        (True, "yes"),
        ("as it is", "as it is"),
    ],
)
def test_numbers_have_the_digits_that_matter(value: float | str | None, shown: str) -> None:
    assert text(value) == shown
