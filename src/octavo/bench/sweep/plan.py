"""What a sweep will take, before the first verdict, and the rule it will judge by."""

from __future__ import annotations

import math

from octavo.bench.measures.confidence import at_most
from octavo.bench.sweep.conditions import needed
from octavo.bench.sweep.result import PassChance, PlannedTime, SweepPlan
from octavo.bench.sweep.search import find_highest
from octavo.bench.sweep.settings import (
    FURTHER,
    HOPELESS_SHARE,
    MOST_LOOKS,
    MOST_NEAR_LIMIT,
    REQUIRED_SHARE,
    SETTLING,
    WINDOW_ANSWERS,
    WINDOW_LIMITS,
    SweepSettings,
)
from octavo.bench.sweep.verdict import settled

_MISSING = (0.005, 0.01, 0.02, 0.03, 0.05, 0.1)


def plan_sweep(settings: SweepSettings, start: int) -> SweepPlan:
    """By going through the search from place ``start`` for every rate that could be the answer."""
    paths = {truth: _asked(settings, truth, start) for truth in range(-1, settings.last + 1)}
    longest = [_seconds(settings, place, near_limit=False, look=-1) for place in range(settings.last + 1)]
    requests = settings.requests(settings.min_rate)
    judged = requests - settled(requests)
    return SweepPlan(
        answer_seconds=settings.answer_seconds,
        max_verdicts=max(len(path) for path in paths.values()),
        requests_per_run=requests,
        max_near_limit=MOST_NEAR_LIMIT if settings.confirm else 0,
        max_requests=settings.looks(settings.min_rate, near_limit=settings.confirm > 0)[-1].total,
        needed=needed(settings.confidence),
        max_minutes=max(sum(longest[place] for place in path) + _most_near(settings, truth) for truth, path in paths.items()) / 60,
        minutes=[_planned(settings, rate, start) for rate in _examples(settings)],
        passes=[PassChance(missing=share, passes=at_most(allowed(judged), judged, share)) for share in _MISSING],
    )


def allowed(judged: int) -> int:
    """Misses that a rate may have."""
    return math.floor((1 - REQUIRED_SHARE) * judged + 1e-9)


def plan_lines(settings: SweepSettings, plan: SweepPlan) -> list[str]:
    """In words, for the terminal."""
    judged = plan.requests_per_run - settled(plan.requests_per_run)
    times = ", ".join(f"{each.rate:g}/s: {each.minutes:.1f} to {each.max_minutes:.1f}" for each in plan.minutes)
    chances = ", ".join(f"{100 * each.missing:g} %: {100 * each.passes:.0f}" for each in plan.passes)
    confidence = f"{100 * settings.confidence:g} %"
    near = (
        f"then at most {plan.max_near_limit} verdicts near the limit, each of up to {plan.max_requests} requests, until it is decided at "
        f"{confidence} confidence."
        if settings.confirm
        else "none near the limit is judged anew (--confirm 0)."
    )
    most = plan.max_requests - settled(plan.max_requests)
    shows = "" if most >= plan.needed else f" {most} cannot show it: --confirm or --requests-per-verdict would have to be larger."
    return [
        f"Search: at most {plan.max_verdicts} verdicts of {plan.requests_per_run} requests or more, {judged} of them judged; {near}",
        f"Minutes of sending, by the rate that the server turns out to sustain: {times}. If every "
        f"verdict takes the largest number, and all near the limit refute, at most {plan.max_minutes:.0f}.",
        f"One run of the search lets {allowed(judged)} of {judged} miss. How many of 100 such runs pass, by the share of requests that "
        f"miss at a rate: {chances}.",
        f"To show at {confidence} that fewer than 1 % miss takes {plan.needed} independent requests of which none does, and more where "
        f"some do; what is not decided then goes by its estimate, and the result says so.{shows}",
    ]


def rule(settings: SweepSettings) -> list[str]:
    """When a rate counts as sustained."""
    confidence = f"{100 * settings.confidence:g} %"
    lines = [
        f"""A rate is sustained if, of the requests of its runs without the first {100 * SETTLING:g} % of each, (a) every SLO's statistic
        over all of them together is inside its limit, (b) at least 99 % complete inside every SLO, and (c) the number in flight does
        not grow.""",
        """A refused, failed or expired request misses every SLO: its latencies, and the tokens it did not bring, are infinitely late. Where
        an SLO is on a mean, or on a percentile below p99, of ttft, tpot or e2e, (b) asks of a single request only that it completes.""",
        f"""(c) From when the server has filled, which is 1.25 times what its first requests took, the mean number in flight in the last
        third of the arrivals may exceed that in the first third by what the chance of Poisson arrivals explains at {confidence}:
        z * sqrt(5 n / 9) for n arrivals. At least half of the arrivals must come after that; else it is not known, and the
        rate not sustained.""",
        f"""A verdict is decided if bounds show it, at {confidence} one-sided, divided by the looks and conditions that can err: for shares
        of requests the binomial bound, with as many trials as the requests are worth by the correlation of their latencies; for gaps
        between tokens the bootstrap over one-second windows. What is not decided goes by its estimates.""",
        f"""The search goes by the estimates of one run a rate. The rate it ends at, and then ones above it or below, are judged
        anew, each by requests of its own alone, up to {settings.confirm} times as many, until decided. That is looked at {MOST_LOOKS} times
        at most: after half and all of them. Rates further above
        follow until one is shown not to be sustained, and further below until one is shown to be, if so many requests can show it.""",
        f"""A run is stopped when more than {100 * HOPELESS_SHARE:g} % of the requests that the verdict is to be judged by have missed: by
        then the rate cannot be sustained.""",
        f"""A run has at least {settings.requests_per_verdict} requests, and lasts at least {WINDOW_LIMITS} times the longest limit on ttft
        or e2e and {WINDOW_ANSWERS} times what one answer may take.""",
    ]
    if settings.confirm == 0:
        del lines[4]
    return [" ".join(line.split()) for line in lines]


def _asked(settings: SweepSettings, truth: int, start: int) -> list[int]:
    """The places that the search asks about, if ``truth`` is the highest that is sustained."""
    path: list[int] = []

    def sustained(place: int) -> bool:
        path.append(place)
        return place <= truth

    find_highest(sustained, settings.last, start, settings.doubling)
    return path


def _seconds(settings: SweepSettings, place: int, *, near_limit: bool, look: int) -> float:
    """Of sending, up to a look at a verdict there."""
    rate = settings.rate(place)
    return settings.looks(rate, near_limit)[look].total / rate


def _near(settings: SweepSettings, truth: int) -> float:
    """Seconds of the verdicts on ``truth`` and the place above, and of the one that shows the upper end, up to its first look."""
    if settings.confirm == 0:
        return 0.0
    bracket = sum(_seconds(settings, place, near_limit=True, look=-1) for place in {max(truth, 0), min(truth + 1, settings.last)})
    return bracket + _seconds(settings, min(truth + FURTHER[0], settings.last), near_limit=True, look=0)


def _most_near(settings: SweepSettings, truth: int) -> float:
    """Of as many as there may be, each of the largest number: all that refute, at lower and lower rates, take longest."""
    if settings.confirm == 0:
        return 0.0
    places = [max(0, truth + 1 - 2**step) for step in range(MOST_NEAR_LIMIT)]
    return sum(_seconds(settings, place, near_limit=True, look=-1) for place in places)


def _examples(settings: SweepSettings) -> list[float]:
    """Rates whose time is told: doubling ones, from 0.5 a second on where that is in the range."""
    rates = [settings.rate(settings.place(0.5 * 2**i)) for i in range(0, 18, 2)]
    return [rate for rate in dict.fromkeys(rates) if settings.min_rate <= rate <= settings.max_rate][:5]


def _planned(settings: SweepSettings, rate: float, start: int) -> PlannedTime:
    truth = settings.place(rate)
    search = sum(_seconds(settings, place, near_limit=False, look=0) for place in _asked(settings, truth, start))
    most = MOST_NEAR_LIMIT * _seconds(settings, truth, near_limit=True, look=-1) if settings.confirm else 0.0
    return PlannedTime(rate=rate, minutes=(search + _near(settings, truth)) / 60, max_minutes=(search + most) / 60)
