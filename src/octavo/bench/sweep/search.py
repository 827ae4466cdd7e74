"""The search: an exponential probe until a rate is sustained and another is not, then bisection between the two."""

from __future__ import annotations

from collections.abc import Callable

Sustained = Callable[[int], bool]


def find_highest(sustained: Sustained, last: int, start: int, doubling: int) -> int:
    """The highest place of 0 … ``last`` that is sustained, where all below one that is are; -1 if none is.

    Asks about no place twice, so that it ends whatever it is answered: what it returns was sustained when asked, and the place above was
    not. From ``start`` it goes up or down by ``doubling`` places at a time until the answer changes.
    """
    return _find(sustained, last, start, step=doubling, growth=1)


def find_nearby(sustained: Sustained, last: int, start: int) -> int:
    """The same, where ``start`` is near it already: up or down by 1, 2, 4 … places."""
    return _find(sustained, last, start, step=1, growth=2)


def _find(sustained: Sustained, last: int, start: int, step: int, growth: int) -> int:
    good, bad = -1, last + 1
    place = start
    while True:
        if sustained(place):
            good = place
        else:
            bad = place
        if (good >= 0 and bad <= last) or good == last or bad == 0:
            return _bisect(sustained, good, bad)
        place = min(max(place + (step if good >= 0 else -step), 0), last)
        step *= growth


def _bisect(sustained: Sustained, good: int, bad: int) -> int:
    """Between one that is and one that is not."""
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if sustained(middle) else (good, middle)
    return good
