"""A whole sweep: warm up, search, and say what came out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import mean

from octavo.bench.load.records import LoadRun
from octavo.bench.sweep.plan import plan_sweep, rule
from octavo.bench.sweep.result import SweepPlan, SweepResult, Verdict
from octavo.bench.sweep.search import find_highest
from octavo.bench.sweep.settings import CONFIRMING_STEPS, Offer, SweepSettings
from octavo.bench.sweep.verdict import ClientTooSlow, RunFailed, decide
from octavo.errors import OctavoError


class SweepError(OctavoError):
    """Nothing could be measured at all."""


def sweep(
    offer: Offer, settings: SweepSettings, tell: Callable[[Verdict], None] | None = None, plan: SweepPlan | None = None
) -> SweepResult:
    """Find the highest rate that is sustained. ``tell`` hears of each verdict as it is reached.

    A run that fails ends the sweep: the result is then partial, and holds what was reached.

    Raises:
        SweepError: the warm-up failed.
    """
    warm = offer(None, settings.warmup, settings.run_seed(0.0))
    start = _start(warm, settings)
    search = _Search(offer, settings, tell)
    failed: RunFailed | None = None
    try:
        search.confirm(find_highest(search.sustained, settings.last, start, settings.doubling))
    except RunFailed as error:
        failed = error
    seconds = warm.seconds + sum(verdict.seconds for verdict in search.verdicts.values())
    return _result(settings, list(search.verdicts.values()), settings.rate(start), failed, seconds, plan or plan_sweep(settings))


class _Search:
    """Verdicts by place on the grid, in the order they were first reached."""

    def __init__(self, offer: Offer, settings: SweepSettings, tell: Callable[[Verdict], None] | None) -> None:
        self.verdicts: dict[int, Verdict] = {}
        self._runs: dict[int, list[LoadRun]] = {}
        self._offer = offer
        self._settings = settings
        self._tell = tell
        self._left_over = False
        """The last run was stopped, and the server may still be at its requests: one alone waits until it is through."""

    def sustained(self, place: int) -> bool:
        """A run there, and the verdict by it."""
        return self._decide(place, confirming=False)

    def _decide(self, place: int, *, confirming: bool) -> bool:
        if self._left_over:
            self._offer(None, 1, self._settings.run_seed(0.0, confirming=True))
        runs = self._runs.setdefault(place, [])
        verdict = decide(self._settings.rate(place), runs, self._offer, self._settings, confirming=confirming)
        self.verdicts[place] = verdict
        self._left_over = verdict.stopped_early
        if self._tell is not None:
            self._tell(verdict)
        return verdict.sustained

    def confirm(self, place: int) -> None:
        """Run the answer again, for longer, and while that refutes it, lower rates.

        A search that ends at the highest rate that passed favours rates that passed by luck.
        """
        if self._settings.confirm == 0:
            return
        for step in CONFIRMING_STEPS:
            if place - step < 0 or self._decide(place - step, confirming=True):
                return


def _start(warm: LoadRun, settings: SweepSettings) -> int:
    """Where one request after the other would keep the server busy: a rate that it sustains, or nearly."""
    done = [record.e2e for record in warm.records if record.completed]
    if len(done) < len(warm.records):
        failed = next((record for record in warm.records if not record.completed), None)
        why = warm.interrupted or (failed.message if failed is not None else "")
        raise SweepError(f"the warm-up failed: {len(warm.records) - len(done)} of {len(warm.records)} requests did not complete ({why})")
    return settings.place(1 / max(mean(done), 1e-9))


def _result(
    settings: SweepSettings, verdicts: Sequence[Verdict], start_rate: float, failed: RunFailed | None, seconds: float, plan: SweepPlan
) -> SweepResult:
    interrupted = None if failed is None else str(failed)
    highest = _answer(verdicts)
    above = min((verdict.rate for verdict in verdicts if not verdict.sustained and verdict.rate > (highest or 0.0)), default=None)
    return SweepResult(
        slo=",".join(map(str, settings.slos)),
        max_rate=highest,
        bracket=(highest, above),
        shown_sustained=max((verdict.rate for verdict in verdicts if verdict.sustained and verdict.decided), default=None),
        shown_not_sustained=min((verdict.rate for verdict in verdicts if not verdict.sustained and verdict.decided), default=None),
        confirmed=any(verdict.rate == highest and verdict.confirming for verdict in verdicts),
        confidence=settings.confidence,
        resolution=settings.resolution,
        requests_per_verdict=settings.requests_per_verdict,
        seed=settings.seed,
        start_rate=start_rate,
        rule=rule(settings),
        valid=not isinstance(failed, ClientTooSlow),
        partial=interrupted is not None,
        interrupted=interrupted,
        warnings=_warnings(settings, verdicts, highest, above, interrupted),
        plan=plan,
        seconds=seconds,
        verdicts=list(verdicts),
    )


def _answer(verdicts: Sequence[Verdict]) -> float | None:
    """The rate that was confirmed; without one, the highest that is sustained and below all that are not."""
    good = [verdict for verdict in verdicts if verdict.sustained]
    confirmed = max((verdict.rate for verdict in good if verdict.confirming), default=None)
    if confirmed is not None:
        return confirmed
    lowest_bad = min((verdict.rate for verdict in verdicts if not verdict.sustained), default=float("inf"))
    return max((verdict.rate for verdict in good if verdict.rate < lowest_bad), default=None)


def _warnings(
    settings: SweepSettings, verdicts: Sequence[Verdict], highest: float | None, above: float | None, interrupted: str | None
) -> list[str]:
    """What a reader of the answer must know, the gravest first."""
    said = []
    if interrupted is not None:
        said.append(f"Partial: the sweep stopped early ({interrupted}).")
    elif highest is None and settings.min_rate < min(verdict.rate for verdict in verdicts):
        said.append("No rate was sustained both by the search and in the longer runs that were to confirm it.")
    elif highest is None:
        said.append(f"Not even the lowest rate, {settings.min_rate:g} requests a second, is sustained; --min-rate sets it.")
    elif above is None:
        said.append(f"Every rate up to --max-rate {settings.max_rate:g} is sustained: the server may do more.")
    elif settings.confirm and not any(verdict.rate == highest and verdict.confirming for verdict in verdicts):
        said.append(f"{len(CONFIRMING_STEPS)} rates failed when they were run longer; the one told was not run longer.")
    at_answer = next((verdict for verdict in verdicts if verdict.rate == highest), None)
    if at_answer is not None and not at_answer.decided:
        confidence = f"{100 * settings.confidence:g} % confidence"
        said.append(f"Sustained by the estimates of {at_answer.judged} requests; their bounds do not show it at {confidence}.")
    return said
