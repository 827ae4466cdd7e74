"""A whole sweep: warm up, search, judge near the limit, and say what came out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from statistics import mean

from octavo.bench.load.records import LoadRun
from octavo.bench.sweep.conditions import needed
from octavo.bench.sweep.plan import plan_lines, plan_sweep, rule
from octavo.bench.sweep.result import SweepPlan, SweepResult, Verdict
from octavo.bench.sweep.search import find_highest, find_nearby
from octavo.bench.sweep.settings import ENOUGH_TO_SHOW, FURTHER, MOST_NEAR_LIMIT, SETTLING, Offer, SweepSettings
from octavo.bench.sweep.verdict import ClientTooSlow, RunFailed, decide
from octavo.errors import OctavoError

logger = logging.getLogger(__name__)


class SweepError(OctavoError):
    """Nothing could be measured at all."""


def sweep(
    offer: Offer,
    settings: SweepSettings,
    tell: Callable[[Verdict], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> SweepResult:
    """Find the highest rate that is sustained. ``tell`` hears of each verdict as it is reached.

    ``say`` is told, after the warm-up and before anything else, what the sweep will take, line by line: how long a run has to be depends on
    how long the server's answers last.

    Whatever ends the sweep early, Ctrl-C or an error, leaves a partial result that holds what was reached.

    Raises:
        SweepError: the warm-up failed.
    """
    warm = offer(None, settings.warmup, settings.run_seed(0.0))
    start = _start(warm, settings)
    settings = settings.after(warm.records)
    plan = plan_sweep(settings, start)
    if say is not None:
        for line in plan_lines(settings, plan):
            say(line)
    search = _Search(offer, settings, tell)
    failed = _failure_of(search, start)
    return _result(settings, search, settings.rate(start), failed, warm.seconds, plan)


def _failure_of(search: _Search, start: int) -> RunFailed | None:
    """Run it to its end, or to what ended it early: Ctrl-C and errors too, so that the verdicts there are stay."""
    try:
        search.run(start)
    except _EnoughTried:
        return None
    except RunFailed as error:
        return error
    except KeyboardInterrupt:
        return RunFailed("stopped by Ctrl-C")
    except Exception as error:
        if not search.verdicts:
            raise
        logger.exception("the sweep ends here")
        return RunFailed(str(error) if isinstance(error, OctavoError) else f"{type(error).__name__}: {error}")
    return None


class _EnoughTried(Exception):
    """As many verdicts near the limit as a sweep may take."""


class _Search:
    """Verdicts by place on the grid, in the order they were first reached; one near the limit takes the place of the search's."""

    def __init__(self, offer: Offer, settings: SweepSettings, tell: Callable[[Verdict], None] | None) -> None:
        self.verdicts: dict[int, Verdict] = {}
        self.seconds = 0.0
        self.answer: int | None = None
        """What the verdicts near the limit came to; -1: none is sustained; None: not known yet, or not asked for."""
        self._offer = offer
        self._settings = settings
        self._tell = tell
        self._near_limit = 0
        self._left_over = False
        """The last run was stopped, and the server may still be at its requests: one alone waits until it is through."""

    def run(self, start: int) -> None:
        """The search, the verdicts near the limit, and those that show the interval."""
        found = find_highest(self.sustained, self._settings.last, start, self._settings.doubling)
        if self._settings.confirm:
            self.answer = find_nearby(self.confirmed, self._settings.last, max(found, 0))
            self.show_interval(self.answer)

    def sustained(self, place: int) -> bool:
        """By the estimates of one run."""
        return self._decide(place, near_limit=False)

    def confirmed(self, place: int) -> bool:
        """By as many requests as it takes to decide, all of them new.

        A search that ends at the highest rate that passed favours rates that passed by luck: its own runs there count no more.
        """
        return not self._shown_lost(place) and self._judge_anew(place)

    def show_interval(self, answer: int) -> None:
        """Verdicts 4, 8, 16 … places above ``answer`` until one is shown not to be sustained, which is soon; and as many below, until one
        is shown to be, if there are requests enough for it."""
        for step in FURTHER:
            if answer + step <= self._settings.last and not self._shown_lost(answer + step):
                self._judge_anew(answer + step)
        most = self._settings.looks(self._settings.rate(max(answer, 0)), near_limit=True)[-1].total
        if (1 - SETTLING) * most < ENOUGH_TO_SHOW * needed(self._settings.confidence):
            return
        for step in FURTHER:
            if answer >= step and not self._shown_kept(answer - step):
                self._judge_anew(answer - step)

    def _shown_lost(self, place: int) -> bool:
        return any(known.decided and not known.sustained for at, known in self.verdicts.items() if at <= place)

    def _shown_kept(self, place: int) -> bool:
        return any(known.decided and known.sustained for at, known in self.verdicts.items() if at >= place)

    def _judge_anew(self, place: int) -> bool:
        if self._near_limit == MOST_NEAR_LIMIT:
            raise _EnoughTried
        self._near_limit += 1
        return self._decide(place, near_limit=True)

    def _decide(self, place: int, *, near_limit: bool) -> bool:
        if self._left_over:
            self._wait_for_what_is_left()
        verdict = decide(self._settings.rate(place), self._offer, self._settings, near_limit=near_limit)
        self.verdicts[place] = verdict
        self.seconds += verdict.seconds
        self._left_over = verdict.stopped_early
        if self._tell is not None:
            self._tell(verdict)
        return verdict.sustained

    def _wait_for_what_is_left(self) -> None:
        run = self._offer(None, 1, self._settings.run_seed(0.0, part=1))
        if run.interrupted is not None:
            raise RunFailed(run.interrupted)
        self._left_over = False


def _start(warm: LoadRun, settings: SweepSettings) -> int:
    """Where one request after the other would keep the server busy: a rate that it sustains, or nearly."""
    done = [record.e2e for record in warm.records if record.completed]
    if len(done) < len(warm.records):
        failed = next((record for record in warm.records if not record.completed), None)
        why = warm.interrupted or (failed.message if failed is not None else "")
        raise SweepError(f"the warm-up failed: {len(warm.records) - len(done)} of {len(warm.records)} requests did not complete ({why})")
    return settings.place(1 / max(mean(done), 1e-9))


def _result(
    settings: SweepSettings, search: _Search, start_rate: float, failed: RunFailed | None, warmup_seconds: float, plan: SweepPlan
) -> SweepResult:
    verdicts = list(search.verdicts.values())
    interrupted = None if failed is None else str(failed)
    highest = settings.rate(search.answer) if search.answer is not None and search.answer >= 0 else _answer(verdicts)
    above = min((verdict.rate for verdict in verdicts if not verdict.sustained and verdict.rate > (highest or 0.0)), default=None)
    shown = [verdict for verdict in verdicts if verdict.decided]
    return SweepResult(
        slo=",".join(map(str, settings.slos)),
        max_rate=highest,
        bracket=(highest, above),
        shown_sustained=max((verdict.rate for verdict in shown if verdict.sustained and verdict.rate <= (highest or 0.0)), default=None),
        shown_not_sustained=min((verdict.rate for verdict in shown if not verdict.sustained), default=None),
        confirmed=any(verdict.rate == highest and verdict.near_limit for verdict in verdicts),
        confidence=settings.confidence,
        resolution=settings.resolution,
        requests_per_verdict=settings.requests_per_verdict,
        seed=settings.seed,
        start_rate=start_rate,
        rule=rule(settings),
        valid=not isinstance(failed, ClientTooSlow),
        partial=interrupted is not None,
        interrupted=interrupted,
        warnings=[*_warnings(settings, search, highest, above, interrupted), *_undecided(settings, verdicts, (highest, above))],
        plan=plan,
        seconds=warmup_seconds + search.seconds,
        verdicts=verdicts,
    )


def _answer(verdicts: Sequence[Verdict]) -> float | None:
    """The highest rate sustained by a verdict near the limit; without one, the highest that is sustained and below all that are not."""
    good = [verdict for verdict in verdicts if verdict.sustained]
    confirmed = max((verdict.rate for verdict in good if verdict.near_limit), default=None)
    if confirmed is not None:
        return confirmed
    lowest_bad = min((verdict.rate for verdict in verdicts if not verdict.sustained), default=float("inf"))
    return max((verdict.rate for verdict in good if verdict.rate < lowest_bad), default=None)


def _warnings(settings: SweepSettings, search: _Search, highest: float | None, above: float | None, interrupted: str | None) -> list[str]:
    """What a reader of the answer must know before all else."""
    if interrupted is not None:
        return [f"Partial: the sweep stopped early ({interrupted})."]
    if highest is None and 0 not in search.verdicts:
        return ["No rate was sustained both by the search and by the verdicts near the limit."]
    if highest is None:
        return [f"Not even the lowest rate, {settings.min_rate:g} requests a second, is sustained; --min-rate sets it."]
    if above is None:
        return [f"Every rate up to --max-rate {settings.max_rate:g} is sustained: the server may do more."]
    if settings.confirm and search.answer is None:
        return [f"{MOST_NEAR_LIMIT} verdicts near the limit did not settle it; the rate told is the best known after them."]
    failed = [
        verdict.rate for verdict in search.verdicts.values() if verdict.near_limit and not verdict.sustained and verdict.rate < highest
    ]
    return [
        f"At {rate:g}/s, below it, the SLO was not kept: the verdicts contradict each other, and need more requests." for rate in failed
    ]


def _undecided(settings: SweepSettings, verdicts: Sequence[Verdict], bracket: tuple[float | None, float | None]) -> list[str]:
    """Of the ends of the bracket."""
    return [
        f"{'Sustained' if verdict.sustained else 'Not sustained'} at {verdict.rate:g}/s by the estimates of {verdict.judged} requests; "
        f"their bounds do not show it at {100 * settings.confidence:g} % confidence."
        for verdict in verdicts
        if not verdict.decided and verdict.rate in bracket
    ]
