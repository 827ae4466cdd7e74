"""A first idea of what a step costs, from a few steps before the engine is ready."""

from __future__ import annotations

import dataclasses
import time

from octavo.kv.kv_cache_manager import KVCacheManager
from octavo.request import EngineCoreRequest, Request
from octavo.runner.interface import Runner
from octavo.sampling_params import SamplingParams
from octavo.scheduler.config import SchedulerConfig
from octavo.scheduler.scheduler import Scheduler
from octavo.scheduler.step_cost import StepCostModel

BATCHES = ((1, 16), (8, 8), (1, 64), (1, 256))
"""(sequences at most, tokens of each prompt). Several sequences come early: they tell what a row costs from what a step does."""
DECODES = 4
"""Steps after the prefill of each batch."""
MOST_SECONDS = 1.0
"""A large model gets fewer batches."""


def calibrate(cost: StepCostModel, runner: Runner, kv: KVCacheManager, config: SchedulerConfig, vocab_size: int) -> None:
    """Fit ``cost`` to steps of made-up requests, run on an idle engine by a scheduler of their own; none of them leaves a trace in ``kv``.

    Batches that the pool or the context cannot hold are left out. The first is run twice: the first time, memory is touched first.
    """
    scratch = Scheduler(dataclasses.replace(config, itl_limit=None, ttft_limit=None), kv)
    started = time.perf_counter()
    with kv.without_caching():
        for number, (most, length) in enumerate((BATCHES[0], *BATCHES)):
            sequences = min(most, config.max_num_seqs)
            fits = length + DECODES < config.max_model_len and kv.can_ever_fit(sequences * (length + DECODES + kv.block_size))
            if fits and time.perf_counter() - started < MOST_SECONDS:
                ids = [f"calibration-{number}-{i}" for i in range(sequences)]
                for i, request_id in enumerate(ids):
                    scratch.add_request(_request(request_id, [(number + 31 * i + 7 * token) % vocab_size for token in range(length)]))
                _run(scratch, runner, cost if number else StepCostModel())
                scratch.abort(ids)
        runner.execute(scratch.schedule())  # it forgets the last ones
    cost.forget_errors()


def _request(request_id: str, prompt: list[int]) -> Request:
    params = SamplingParams(temperature=0, max_tokens=DECODES + 2, ignore_eos=True, detokenize=False, seed=0)
    return Request(EngineCoreRequest(request_id, prompt, params))


def _run(scheduler: Scheduler, runner: Runner, cost: StepCostModel) -> None:
    for _ in range(1 + DECODES):
        start = time.perf_counter()
        scheduled = scheduler.schedule()
        scheduler.update_from_output(scheduled, runner.execute(scheduled))
        if scheduled.work.tokens:
            cost.observe(scheduled.work, time.perf_counter() - start)
