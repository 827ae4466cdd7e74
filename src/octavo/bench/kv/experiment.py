"""The experiment: the same arrivals and prompts through an engine of its own for each trial."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from octavo.bench.drive import StepError
from octavo.bench.kv.measure import (
    Measures,
    StepSample,
    Window,
    efficiency_meanwhile,
    find_window,
    mean_length,
    mean_parts,
    measure,
    shares,
)
from octavo.bench.kv.plan import Trial, trial_args
from octavo.bench.kv.runners import SIMULATED_RUNNER, Clock, EndingRunner, StepCost, VirtualClock, WallClock, step_work
from octavo.bench.workload.requests import DrawnRequest, Workload
from octavo.bench.workload.tokens import Tokens
from octavo.config import EngineArgs
from octavo.engine.core import EngineCore
from octavo.engine.info import EngineInfo
from octavo.outputs import EngineStats
from octavo.request import EngineCoreRequest
from octavo.sampling_params import SamplingParams
from octavo.scheduler.output import SchedulerOutput


@dataclass(frozen=True)
class TrialResult:
    """One trial: what was measured, and how it went step by step."""

    trial: Trial
    measures: Measures
    parts: dict[str, float]
    """Averages over the window, as shares of the pool: see octavo.bench.kv.measure.PARTS."""
    mean_length: float
    """Tokens of a running request."""
    efficiency_meanwhile: float
    """See octavo.bench.kv.measure."""
    window: Window
    samples: list[StepSample]
    work: list[tuple[int, int]]
    """Of each step: tokens, and positions they attend to."""
    outputs: dict[int, tuple[int, ...]]
    """Token ids of the requests that ended, by index."""
    info: EngineInfo

    def as_run(self) -> dict[str, Any]:
        """Its entry in the result's ``runs``."""
        return {**dataclasses.asdict(self.trial), **dataclasses.asdict(self.measures)}


@dataclass(frozen=True)
class Experiment:
    """What all trials share."""

    args: EngineArgs
    workload: Workload
    pool_tokens: int
    cost: StepCost | None = None
    """Simulate: no model runs, and a step takes this time."""
    tokens: Tokens | None = None
    """What prompts are made of; None: all ids that the model has."""

    def run(self, trial: Trial) -> TrialResult:
        """One trial, on an engine made for it.

        Raises:
            InvalidRequestError, ModelFileError: if no such engine can be made.
            StepError: when a request fails.
        """
        args = trial_args(self.args, trial, self.workload, self.pool_tokens)
        if self.cost is not None:
            args = dataclasses.replace(args, runner_cls=SIMULATED_RUNNER)
        core = EngineCore(args)
        try:
            requests = self.workload.draw(self.tokens or Tokens.of_size(core.info.vocab_size))
            run = _Run(core, args, requests, self.workload.arrivals.in_flight, self.cost)
            run.to_the_end()
        finally:
            core.close()
        window = find_window(run.samples)
        return TrialResult(
            trial,
            measure(run.samples, window),
            mean_parts(run.samples, window),
            mean_length(run.samples, window),
            efficiency_meanwhile(run.samples, window),
            window,
            run.samples,
            run.work,
            {i: tuple(token_ids) for i, token_ids in run.outputs.items() if i in run.ended},
            core.info,
        )

    def run_all(self, trials: Sequence[Trial], told: Callable[[TrialResult], None]) -> list[TrialResult]:
        """Each trial in turn; ``told`` hears of each as it ends."""
        results = []
        for trial in trials:
            results.append(self.run(trial))
            told(results[-1])
        return results


def engine_request(request: DrawnRequest, end_token: int, seed: int) -> EngineCoreRequest:
    """What the engine is told: prompt, max_tokens, tenant; nothing that depends on where the request really ends."""
    params = SamplingParams(
        temperature=0, max_tokens=request.max_tokens, ignore_eos=True, stop_token_ids=[end_token], detokenize=False, seed=seed
    )
    return EngineCoreRequest(
        request_id=str(request.index), prompt_token_ids=request.prompt_token_ids, sampling_params=params, cache_salt=request.tenant
    )


class _Run:
    """One engine, stepped until the load is through, or past the end of its saturation."""

    def __init__(self, core: EngineCore, args: EngineArgs, requests: list[DrawnRequest], most: int | None, cost: StepCost | None) -> None:
        """``most``: requests at a time, if there is a limit."""
        self._core = core
        self._args = args
        self._coming = deque(requests)
        self._most = most or len(requests)
        self._cost = cost
        self._clock: Clock = WallClock() if cost is None else VirtualClock()
        self._open = 0
        self._preemptions = 0
        self._waiting = 0
        self._planned: dict[str, Any] = {}
        self._start = self._clock.now()
        self.samples: list[StepSample] = []
        self.work: list[tuple[int, int]] = []
        self.outputs: dict[int, list[int]] = {request.index: [] for request in requests}
        self.ended: set[int] = set()
        lengths = {str(request.index): request.output_tokens for request in requests if request.output_tokens < request.max_tokens}
        self._end_token = core.info.vocab_size  # one past the model's own
        core.runner = cast(Any, EndingRunner(core.runner, lengths, self._end_token, self._before, self._after))

    def to_the_end(self) -> None:
        """Step until every request has ended, or, after saturation, until none waits and none is to come: what follows would not count."""
        while self._coming or self._core.has_unfinished_requests:
            self._submit()
            if not self._core.has_unfinished_requests:
                self._clock.sleep(max(self._coming[0].arrival - self._now(), 0.0))
            else:
                self._step()
                if not (self._coming or self._waiting) and any(sample.started_full for sample in self.samples):
                    break

    def _now(self) -> float:
        return self._clock.now() - self._start

    def _submit(self) -> None:
        """Hand over what has come by now."""
        while self._coming and self._open < self._most and self._coming[0].arrival <= self._now():
            self._core.add_request(engine_request(self._coming.popleft(), self._end_token, self._args.seed or 0))
            self._open += 1

    def _step(self) -> None:
        start = self._now()
        outputs = self._core.step()
        brought, ended = 0, 0
        for output in outputs.outputs:
            if output.error is not None:
                raise StepError(f"request {output.request_id}: {output.error}")
            brought += len(output.new_token_ids)
            self.outputs[int(output.request_id)].extend(output.new_token_ids)
            if output.finish_reason is not None:
                ended += 1
                self.ended.add(int(output.request_id))
        self._open -= ended
        self._sample(start, self._core.stats(), brought, ended)

    def _sample(self, start: float, stats: EngineStats, brought: int, ended: int) -> None:
        parts, fragmentation = shares(stats.kv["groups"])
        self.samples.append(
            StepSample(
                start=start,
                seconds=self._now() - start,
                running=stats.running,
                context_tokens=sum(request.num_computed_tokens for request in self._core.scheduler.running),
                parts=parts,
                fragmentation=fragmentation,
                output_tokens=brought,
                ended=ended,
                preemptions=stats.preemptions - self._preemptions,
                **self._planned,
            )
        )
        self._waiting = stats.waiting
        self._preemptions = stats.preemptions

    def _before(self, scheduled: SchedulerOutput) -> None:
        """The step is planned: this is how things stand while it runs."""
        stats = self._core.scheduler.stats()
        parts, _ = shares(stats.kv["groups"])
        room = scheduled.total_num_scheduled_tokens < self._args.max_num_batched_tokens and stats.running < self._args.max_num_seqs
        self._planned = {
            "started_full": room and stats.waiting > 0,
            "held_meanwhile": parts["held"],
            "live_meanwhile": parts["live"],
        }
        self.work.append(step_work(scheduled))

    def _after(self, scheduled: SchedulerOutput) -> None:
        if self._cost is not None:
            self._clock.sleep(self._cost.seconds(scheduled))
