"""Drives a runner through schedules made up by a test: alone and plain, or random in every way a scheduler could be."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np

from octavo.outputs import TokenLogprobs
from octavo.runner.interface import Runner
from octavo.sampling_params import SamplingParams
from octavo.scheduler.output import NewRequestData, RunnerOutput, RunningRequestData, SchedulerOutput


@dataclass
class Job:
    """A request, and what it has brought so far."""

    name: str
    prompt: list[int]
    params: SamplingParams
    output: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)
    computed: int = 0
    blocks: list[int] = field(default_factory=list)
    in_batch: bool = False

    @property
    def tokens(self) -> list[int]:
        return self.prompt + self.output

    @property
    def done(self) -> bool:
        return len(self.output) >= (self.params.max_tokens or 0)

    def bits(self) -> tuple[list[int], list[tuple[list[int], bytes, int]], list[tuple[list[int], bytes, int]]]:
        """All that must be the same however it was scheduled; floats as bytes."""
        return self.output, [_exact(x) for x in self.logprobs], [_exact(x) for x in self.prompt_logprobs]


def _exact(entry: TokenLogprobs) -> tuple[list[int], bytes, int]:
    return entry.token_ids, np.asarray(entry.logprobs, np.float64).tobytes(), entry.rank


class Driver:
    """Blocks are given out once and never taken back, in an order of the test's choosing."""

    def __init__(self, runner: Runner, block_size: int, block_order: list[int]) -> None:
        self.runner, self.block_size = runner, block_size
        self._blocks = iter(block_order)
        self._step = 0
        self._cached: dict[tuple[int, ...], int] = {}
        self._removed: list[str] = []

    def step(self, counts: dict[str, int], jobs: dict[str, Job]) -> None:
        """Advance jobs by ``counts`` tokens each, in one step."""
        scheduled = SchedulerOutput(self._step, num_scheduled_tokens=counts, removed_request_ids=self._removed)
        self._removed = []
        self._step += 1
        for name, count in counts.items():
            job = jobs[name]
            wanted = -(-(job.computed + count) // self.block_size)
            fresh = [next(self._blocks) for _ in range(wanted - len(job.blocks))]
            job.blocks += fresh
            if job.in_batch:
                scheduled.running.append(RunningRequestData(name, job.computed, [np.asarray(fresh, np.int32)]))
            else:
                blocks = np.asarray(job.blocks, np.int32)
                sent = len(job.prompt_logprobs)
                scheduled.new.append(
                    NewRequestData(name, job.tokens, len(job.prompt), job.params, job.computed, [blocks], num_prompt_logprobs_sent=sent)
                )
                job.in_batch = True
            job.computed += count
        self._collect(self.runner.execute(scheduled), counts, jobs)

    def remove(self, job: Job) -> None:
        """Preempt or finish: its blocks are forgotten, it would start again from nothing."""
        self._removed.append(job.name)
        job.computed, job.blocks, job.in_batch = 0, [], False

    def reuse_prefix(self, job: Job) -> None:
        """Start a job that is not in the batch on blocks which hold the same tokens already, but for its last token."""
        while len(job.tokens) > job.computed + self.block_size:
            block = self._cached.get(tuple(job.tokens[: job.computed + self.block_size]))
            if block is None:
                return
            job.blocks.append(block)
            job.computed += self.block_size

    def _collect(self, result: RunnerOutput, counts: dict[str, int], jobs: dict[str, Job]) -> None:
        assert not result.errors
        for name in counts:
            job = jobs[name]
            for index in range(job.computed // self.block_size):
                self._cached.setdefault(tuple(job.tokens[: (index + 1) * self.block_size]), job.blocks[index])
            job.prompt_logprobs += result.prompt_logprobs.get(name, [])
            assert (name in result.sampled) == (job.computed == len(job.tokens))
            job.output += result.sampled.get(name, [])
            job.logprobs += result.logprobs.get(name, [])


def run_alone(runner: Runner, job: Job, block_size: int) -> None:
    """The plain schedule: the whole prompt, then token by token, in blocks 0, 1, 2 …"""
    driver = Driver(runner, block_size, list(range(10_000)))
    while not job.done:
        driver.step({job.name: len(job.tokens) - job.computed}, {job.name: job})
    driver.remove(job)
    driver.step({}, {})


def run_randomly(runner: Runner, jobs: list[Job], block_size: int, num_blocks: int, rng: random.Random) -> None:
    """A random schedule: random chunks, neighbours, block placement, preemptions and prefix hits."""
    order = list(range(num_blocks))
    rng.shuffle(order)
    driver = Driver(runner, block_size, order)
    by_name = {job.name: job for job in jobs}
    preemptions = 3
    while unfinished := [job for job in jobs if not job.done]:
        chosen = rng.sample(unfinished, rng.randint(1, len(unfinished)))
        for job in chosen:
            if job.in_batch and preemptions and rng.random() < 0.1:
                driver.remove(job)
                preemptions -= 1
            if not job.in_batch and job.params.prompt_logprobs is None and rng.random() < 0.7:
                driver.reuse_prefix(job)
        chunk = rng.choice([1, 7, 16, 64, 1000])
        counts = {job.name: min(chunk, len(job.tokens) - job.computed) for job in chosen}
        driver.step(counts, by_name)
        for job in chosen:
            if job.done:
                driver.remove(job)
    driver.step({}, {})
