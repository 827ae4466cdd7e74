"""What a sweep will take, before anything is sent, and the rule it will judge by."""

from __future__ import annotations

import math

from octavo.bench.measures.confidence import at_most
from octavo.bench.sweep.result import PassChance, PlannedTime, SweepPlan
from octavo.bench.sweep.search import find_highest
from octavo.bench.sweep.settings import CONFIRMING_STEPS, HOPELESS_SHARE, REQUIRED_SHARE, SETTLING, WINDOW_LIMITS, SweepSettings
from octavo.bench.sweep.verdict import settled

_MISSING = (0.005, 0.01, 0.02, 0.03, 0.05, 0.1)


def plan_sweep(settings: SweepSettings) -> SweepPlan:
    """By going through the search for every rate that could be the answer, from every rate at which it could begin."""
    last, doubling = settings.last, settings.doubling
    places = range(last + 1)
    costs = [_seconds(settings, place) for place in places]
    counts = []
    seconds = []
    for truth in range(-1, last + 1):
        asked = [_asked(last, doubling, truth, start) for start in places]
        counts.append(max(len(path) for path in asked))
        seconds.append(max(sum(costs[place] for place in path) for path in asked) + _confirming(settings, truth, len(CONFIRMING_STEPS)))
    requests = settings.requests(settings.min_rate)
    judged = requests - settled(requests)
    return SweepPlan(
        max_verdicts=max(counts),
        requests_per_run=requests,
        max_confirmations=len(CONFIRMING_STEPS) if settings.confirm else 0,
        requests_to_confirm=settings.requests(settings.min_rate, confirming=True),
        max_minutes=max(seconds) / 60,
        minutes=[_planned(settings, rate) for rate in _examples(settings)],
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
    needed = math.ceil(math.log(1 - settings.confidence) / math.log(REQUIRED_SHARE))
    return [
        f"At most {plan.max_verdicts} verdicts of {plan.requests_per_run} requests or more, {judged} of them judged; then at most "
        f"{plan.max_confirmations} runs of {plan.requests_to_confirm} to confirm the answer. {settings.warmup} requests to warm up.",
        f"Minutes of sending, by the rate that the server turns out to sustain: {times}. At most {plan.max_minutes:.0f}.",
        f"One run of {judged} judged requests lets {allowed(judged)} miss. How many of 100 such runs pass, by the share of requests that "
        f"miss at a rate: {chances}.",
        f"To show at {100 * settings.confidence:g} % confidence that fewer than 1 % miss takes {needed} requests of which none does; "
        "fewer decide by their estimate, and the result says so.",
    ]


def rule(settings: SweepSettings) -> list[str]:
    """When a rate counts as sustained."""
    confidence = f"{100 * settings.confidence:g} %"
    lines = [
        f"""A rate is sustained if, of the requests of its runs without the first {100 * SETTLING:g} % of each, (a) every SLO's statistic
        over all of them together is inside its limit, (b) at least 99 % complete inside every SLO, and (c) the number in flight does not
        grow.""",
        """A refused, failed or expired request misses every SLO: its latencies, and the tokens it did not bring, are infinitely late. Where
        an SLO is on a mean, or on a percentile below p99, of ttft, tpot or e2e, (b) asks of a single request only that it completes.""",
        f"""(c) The mean number in flight in the last third of the arrivals may exceed that in the first third by what the chance of Poisson
        arrivals explains at {confidence}: z * sqrt(5 n / 9) for n arrivals.""",
        f"""Estimates decide. A verdict is called decided if bounds show it too, at {confidence} one-sided: for shares of requests the
        binomial bound, with as many trials as the requests are worth by the correlation of their latencies; for gaps between tokens the
        bootstrap over one-second windows.""",
        f"""The rate that the search ends at is run again with {settings.confirm} times the requests and judged by all of them; if it fails,
        lower ones are, at most {len(CONFIRMING_STEPS)} in all.""",
        f"""A run is stopped when more than {100 * HOPELESS_SHARE:g} % of its judged requests have missed: by then the rate cannot be
        sustained.""",
        f"""A run has at least {settings.requests_per_verdict} requests and lasts at least {WINDOW_LIMITS} times the longest limit on ttft
        or e2e.""",
    ]
    if settings.confirm == 0:
        del lines[4]
    return [" ".join(line.split()) for line in lines]


def _asked(last: int, doubling: int, truth: int, start: int) -> list[int]:
    """The places that the search asks about, if ``truth`` is the highest that is sustained."""
    path: list[int] = []

    def sustained(place: int) -> bool:
        path.append(place)
        return place <= truth

    find_highest(sustained, last, start, doubling)
    return path


def _seconds(settings: SweepSettings, place: int, confirming: bool = False) -> float:
    """Of sending, in one run."""
    rate = settings.rate(place)
    return settings.requests(rate, confirming) / rate


def _confirming(settings: SweepSettings, truth: int, tries: int) -> float:
    """Seconds that so many confirmations take, the last at ``truth``."""
    if settings.confirm == 0:
        return 0.0
    last = CONFIRMING_STEPS[tries - 1]
    places = [min(settings.last, max(0, truth + last - step)) for step in CONFIRMING_STEPS[:tries]]
    return sum(_seconds(settings, place, confirming=True) for place in places)


def _examples(settings: SweepSettings) -> list[float]:
    """Rates whose time is told: doubling ones, from 0.5 a second on where that is in the range."""
    rates = [settings.rate(settings.place(0.5 * 2**i)) for i in range(0, 18, 2)]
    return [rate for rate in dict.fromkeys(rates) if settings.min_rate <= rate <= settings.max_rate][:5]


def _planned(settings: SweepSettings, rate: float) -> PlannedTime:
    """With the probe beginning at half the answer."""
    truth = settings.place(rate)
    search = sum(_seconds(settings, place) for place in _asked(settings.last, settings.doubling, truth, max(0, truth - settings.doubling)))
    once, often = (search + _confirming(settings, truth, tries) for tries in (1, len(CONFIRMING_STEPS)))
    return PlannedTime(rate=rate, minutes=once / 60, max_minutes=often / 60)
