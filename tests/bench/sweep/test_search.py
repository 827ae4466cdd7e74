from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from octavo.bench.sweep.search import find_highest, find_nearby

grids = st.integers(0, 300).flatmap(lambda last: st.tuples(st.just(last), st.integers(0, last), st.integers(1, 40), st.integers(-1, last)))


class Asked:
    """An oracle that remembers what it was asked."""

    def __init__(self, answer):
        self.places = []
        self._answer = answer

    def __call__(self, place):
        assert place not in self.places, "asked twice"
        self.places.append(place)
        return self._answer(place)


@given(grids)
def test_it_finds_the_truth_of_a_monotone_oracle(case):
    last, start, doubling, truth = case
    oracle = Asked(lambda place: place <= truth)
    assert find_highest(oracle, last, start, doubling) == truth


@given(grids, st.randoms(use_true_random=False))
def test_a_noisy_oracle_does_not_make_it_loop(case, random):
    last, start, doubling, _ = case
    answers = {}
    oracle = Asked(lambda place: answers.setdefault(place, random.random() < 0.5))
    found = find_highest(oracle, last, start, doubling)
    assert found == -1 or answers[found]
    assert found == last or not answers[found + 1]
    assert len(oracle.places) <= last + 1


@given(grids)
def test_it_asks_no_more_than_probe_and_bisection_take(case):
    last, start, doubling, truth = case
    oracle = Asked(lambda place: place <= truth)
    find_highest(oracle, last, start, doubling)
    probe = abs(truth - start) // doubling + 2
    assert len(oracle.places) <= probe + doubling.bit_length() + 1


def test_a_probe_goes_up_in_doublings_and_down_when_it_begins_too_high():
    up = Asked(lambda place: place <= 50)
    find_highest(up, 100, 10, 14)
    assert up.places[:4] == [10, 24, 38, 52]
    down = Asked(lambda place: place <= 50)
    find_highest(down, 100, 90, 14)
    assert down.places[:4] == [90, 76, 62, 48]


@given(grids)
def test_nearby_finds_the_truth_too_and_a_start_that_is_right_takes_two_questions(case):
    last, start, _, truth = case
    oracle = Asked(lambda place: place <= truth)
    assert find_nearby(oracle, last, start) == truth
    if start == truth:
        assert len(oracle.places) <= 2


@given(grids, st.randoms(use_true_random=False))
def test_nearby_ends_between_a_rate_that_is_sustained_and_one_that_is_not(case, random):
    last, start, _, _ = case
    answers = {}
    found = find_nearby(Asked(lambda place: answers.setdefault(place, random.random() < 0.5)), last, start)
    assert found == -1 or answers[found]
    assert found == last or not answers[found + 1]
