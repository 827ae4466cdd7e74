"""Runners of the experiment: one that ends each request at its drawn length, and one without a model, whose time is a model too."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from octavo.config import EngineArgs
from octavo.outputs import ResourceCounts
from octavo.runner.interface import LayerGroup, RunnerInfo
from octavo.scheduler.output import RunnerOutput, SchedulerOutput

SIMULATED_RUNNER = "octavo.bench.kv.runners:SimulatedRunner"


class Clock(Protocol):
    """Where time comes from, in seconds."""

    def now(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class WallClock:
    """This machine's."""

    def now(self) -> float:
        return time.perf_counter()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class VirtualClock:
    """Of a simulation: it moves when told to."""

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds


@dataclass(frozen=True)
class StepCost:
    """What a step is taken to last: a fixed part, and so much for each token and for each position that one attends to. Seconds.

    The defaults come within a third of what docs/benchmarks.md has for smollm2 on two cores: 3.7 ms for a token of one stream, 20.6 ms
    for 32 of them, 145 ms for a prefill of 512. (Fitted by least squares; a cost that is linear cannot meet all three.)
    """

    fixed: float = 3.5e-3
    token: float = 3.2e-4
    attended: float = 2.0e-8

    def seconds(self, scheduled: SchedulerOutput) -> float:
        tokens, attended = step_work(scheduled)
        return self.fixed + self.token * tokens + self.attended * attended


def step_work(scheduled: SchedulerOutput) -> tuple[int, int]:
    """A step's tokens, and the positions that they attend to, all together."""
    attended = 0
    for request_id, computed in _computed(scheduled).items():
        count = scheduled.num_scheduled_tokens[request_id]
        attended += count * computed + count * (count + 1) // 2
    return scheduled.total_num_scheduled_tokens, attended


class EndingRunner:
    """An engine's runner, but a request ends at the length drawn for it, as if the model had ended it there.

    The lengths are known here alone: to scheduler and admission the end is a stop token, as unforeseen as any. ``end_token`` is none of the
    model's, so it comes at no other time; as a request's last token it is never computed, so nothing else in the engine depends on it.
    ``before`` and ``after`` are called around each step, once it is planned and once it has run.
    """

    def __init__(
        self,
        runner: Any,
        lengths: Mapping[str, int],
        end_token: int,
        before: Callable[[SchedulerOutput], None],
        after: Callable[[SchedulerOutput], None],
    ) -> None:
        self._runner = runner
        self._left = dict(lengths)
        self._end_token = end_token
        self._before = before
        self._after = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def execute(self, scheduled: SchedulerOutput) -> RunnerOutput:
        self._before(scheduled)
        output: RunnerOutput = self._runner.execute(scheduled)
        self._after(scheduled)
        for request_id, token_ids in output.sampled.items():
            if request_id in self._left:
                self._end(request_id, token_ids)
        return output

    def _end(self, request_id: str, token_ids: list[int]) -> None:
        left = self._left[request_id]
        if len(token_ids) >= left:
            token_ids[left - 1 :] = [self._end_token]
        self._left[request_id] = left - len(token_ids)


class SimulatedRunner:
    """octavo.runner.interface.Runner without a model: tokens are a function of request and position, and a step takes no time."""

    VOCAB_SIZE = 49152
    BYTES_PER_TOKEN = 23040
    """Both are smollm2's, with KV in bf16."""

    def __init__(self, args: EngineArgs) -> None:
        self._block_size = args.block_size
        self._num_tokens: dict[str, int] = {}

    def info(self) -> RunnerInfo:
        return RunnerInfo(
            max_model_len=2**24,
            vocab_size=self.VOCAB_SIZE,
            eos_token_ids=(),
            numerics_id="simulated",
            groups=[LayerGroup("all", 1, self._block_size * self.BYTES_PER_TOKEN)],
            available_kv_bytes=2**40,
            isa="none (simulated)",
        )

    def allocate_kv(self, num_blocks: list[int]) -> None:
        """Nothing is stored."""

    def resources(self) -> ResourceCounts:
        return ResourceCounts()

    def execute(self, scheduled: SchedulerOutput) -> RunnerOutput:
        output = RunnerOutput(scheduled.step_id)
        for request_id in scheduled.removed_request_ids:
            self._num_tokens.pop(request_id, None)
        for new in scheduled.new:
            self._num_tokens[new.request_id] = len(new.token_ids)
        for request_id, computed in _computed(scheduled).items():
            known = self._num_tokens[request_id]
            if computed + scheduled.num_scheduled_tokens[request_id] == known:
                output.sampled[request_id] = [zlib.crc32(f"{request_id} {known}".encode()) % self.VOCAB_SIZE]
                self._num_tokens[request_id] = known + 1
        return output

    def close(self) -> None:
        self._num_tokens.clear()


def _computed(scheduled: SchedulerOutput) -> dict[str, int]:
    """Tokens computed before this step, by request."""
    computed = {new.request_id: new.num_computed_tokens for new in scheduled.new}
    return computed | {running.request_id: running.num_computed_tokens for running in scheduled.running}


def fit_step_cost(work: list[tuple[int, int]], seconds: list[float]) -> StepCost:
    """The StepCost that fits measured steps best, by least squares of the relative error; parts that come out negative are 0."""
    measured = np.maximum(np.array(seconds), 1e-9)
    columns = np.array([(1, *each) for each in work], float)
    kept = [0, 1, 2]
    while True:
        parts, *_ = np.linalg.lstsq(columns[:, kept] / measured[:, None], np.ones(len(work)), rcond=None)
        if (parts >= 0).all() or len(kept) == 1:
            break
        del kept[int(np.argmin(parts))]
    found = dict(zip(kept, parts, strict=True))
    return StepCost(*(float(max(found.get(i, 0.0), 0.0)) for i in range(3)))
