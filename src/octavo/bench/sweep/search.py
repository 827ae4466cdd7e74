"""The search: an exponential probe until a rate is sustained and another is not, then bisection between the two."""

from __future__ import annotations

from collections.abc import Callable

Sustained = Callable[[int], bool]


def find_highest(sustained: Sustained, last: int, start: int, doubling: int) -> int:
    """The highest place of 0 … ``last`` that is sustained, where all below one that is are; -1 if none is.

    Asks about no place twice, so that it ends whatever it is answered: what it returns was sustained when asked, and the place above was
    not. From ``start`` it goes up or down by ``doubling`` places at a time until the answer changes.
    """
    good, bad = -1, last + 1
    place = start
    while True:
        if sustained(place):
            good = place
            step = doubling
        else:
            bad = place
            step = -doubling
        if (good >= 0 and bad <= last) or good == last or bad == 0:
            break
        place = min(max(place + step, 0), last)
    return _bisect(sustained, good, bad)


def find_nearby(sustained: Sustained, last: int, start: int) -> int:
    """The same, where ``start`` is near it already: up place by place; or down by 1, 2, 4 … places, and back by bisection."""
    if sustained(start):
        good = start
        while good < last and sustained(good + 1):
            good += 1
        return good
    bad, step = start, 1
    while bad > 0:
        place = max(bad - step, 0)
        if sustained(place):
            return _bisect(sustained, place, bad)
        bad, step = place, 2 * step
    return -1


def _bisect(sustained: Sustained, good: int, bad: int) -> int:
    """Between one that is and one that is not."""
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if sustained(middle) else (good, middle)
    return good
