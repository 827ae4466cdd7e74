"""Whole steps of an engine in this process, as cases: decoding one stream and 32, prefilling 512 tokens; and what of a step is Python."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from benchmarks.guard.cases import Case, Reference
from benchmarks.kernels.bench_step import PROMPT, BenchEngine
from octavo.bench.drive import Driver
from octavo.bench.limits import ModelCosts

DECODES, PREFILL = 12, 512
"""Decode steps of a run; tokens of the prefill."""


class Stepper(BenchEngine):
    """Whole steps of it, timed."""

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self.costs = ModelCosts.from_info(self.engine.info, self.args)
        self._driver = Driver(self.engine)

    def decode(self, streams: int) -> float:
        """The fastest step in which all of ``streams`` sequences decode."""
        timelines = self._driver.run(self.requests(streams, PROMPT, DECODES + 1)).timelines
        started, ended = max(t.tokens[0] for t in timelines), min(t.tokens[-1] for t in timelines)
        together = [token for token in timelines[0].tokens if started <= token <= ended]
        return min(after - before for before, after in itertools.pairwise(together))

    def prefill(self) -> float:
        return self._driver.run(self.requests(1, PREFILL, 1)).timelines[0].ttft

    def python(self, streams: int) -> float:
        """What a step in which ``streams`` sequences get a token takes beside native code, at best."""
        for request in self.requests(streams, PROMPT, DECODES + 1):
            self.engine.add(request)
        best, before = float("inf"), self.engine.stats()
        while self.engine.has_unfinished_requests:
            outputs, stats = self.engine.step(), self.engine.stats()
            if len(outputs.outputs) == streams:
                native = stats.native_seconds - before.native_seconds
                best = min(best, stats.step_seconds - before.step_seconds - native)
            before = stats
        return best

    def least_decode(self, streams: int) -> Callable[[Reference], float]:
        def least(reference: Reference) -> float:
            rates, costs = reference.rates, self.costs
            nbytes = costs.decode_bytes(PROMPT) + (streams - 1) * (costs.decode_bytes(PROMPT) - costs.weight_bytes)
            operations = [*costs.matmul_params.items(), *costs.head_params.items()]
            return max(nbytes / rates.read_bytes_s, sum(2.0 * streams * n / rates.of(kind) for kind, n in operations))

        return least

    def least_prefill(self, reference: Reference) -> float:
        return sum(n / reference.rates.of(kind) for kind, n in self.costs.prefill_ops(PREFILL).items())


def step_cases(stepper: Stepper, model: str) -> list[Case]:
    cases = [
        Case(
            f"{model}: decode step, {streams} stream{'s' if streams > 1 else ''}",
            lambda n=streams: stepper.decode(n),
            stepper.least_decode(streams),
        )
        for streams in (1, 32)
    ]
    cases.append(Case(f"{model}: prefill of {PREFILL}", stepper.prefill, stepper.least_prefill))
    return cases


def python_of_a_step(stepper: Stepper, model: str) -> list[Case]:
    return [
        Case(
            f"{model}: Python of a decode step, {n} stream{'s' if n > 1 else ''}", lambda n=n: stepper.python(n), lambda r: r.python_seconds
        )
        for n in (1, 32)
    ]
