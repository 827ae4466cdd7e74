"""Drives a runner through schedules made up by a test: alone and plain, or random in every way a scheduler could be."""

from __future__ import annotations

import random
from collections.abc import Collection
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
    blocks: list[list[int]] = field(default_factory=list)
    """Per layer group; -1 where it gave a block away."""
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
    """Blocks are given out in an order of the test's choosing. Those that a sliding window left behind are given to others first; no other
    is taken back."""

    def __init__(self, runner: Runner, block_size: int, block_orders: list[list[int]]) -> None:
        """``block_orders``: per layer group, all its blocks."""
        self.runner, self.block_size = runner, block_size
        self._windows = [group.window for group in runner.info().groups]
        self._free = [list(reversed(order)) for order in block_orders]
        self._step = 0
        self._cached: list[dict[tuple[int, ...], int]] = [{} for _ in block_orders]
        self._removed: list[str] = []

    def step(self, counts: dict[str, int], jobs: dict[str, Job]) -> None:
        """Advance jobs by ``counts`` tokens each, in one step."""
        scheduled = SchedulerOutput(self._step, num_scheduled_tokens=counts, removed_request_ids=self._removed)
        self._removed = []
        self._step += 1
        for name, count in counts.items():
            job = jobs[name]
            fresh = [self._grow(job, group, count, jobs.values()) for group in range(len(self._windows))]
            if job.in_batch:
                scheduled.running.append(RunningRequestData(name, job.computed, fresh))
            else:
                blocks = [np.asarray(table, np.int32) for table in job.blocks]
                sent = len(job.prompt_logprobs)
                scheduled.new.append(
                    NewRequestData(name, job.tokens, len(job.prompt), job.params, job.computed, blocks, num_prompt_logprobs_sent=sent)
                )
                job.in_batch = True
            job.computed += count
        self._collect(self.runner.execute(scheduled), counts, jobs)

    def remove(self, job: Job) -> None:
        """Preempt or finish: its blocks are forgotten, it would start again from nothing."""
        self._removed.append(job.name)
        job.computed, job.blocks, job.in_batch = 0, [], False

    def reuse_prefix(self, job: Job) -> None:
        """Start a job that is not in the batch on blocks which hold the same tokens already, but for its last token: as many as leave no
        group without one that its window reaches."""
        size = self.block_size
        prefixes = [tuple(job.tokens[:end]) for end in range(size, len(job.tokens), size)]
        found = [[cached.get(prefix, -1) for prefix in prefixes] for cached in self._cached]
        for count in range(len(prefixes), 0, -1):
            firsts = [self._first(group, count * size) for group in range(len(found))]
            if all(-1 not in blocks[first:count] for blocks, first in zip(found, firsts, strict=True)):
                job.blocks = [[-1] * first + blocks[first:count] for blocks, first in zip(found, firsts, strict=True)]
                job.computed = count * size
                return

    def _grow(self, job: Job, group: int, count: int, jobs: Collection[Job]) -> np.ndarray:
        """Blocks for ``count`` more tokens, after those behind the window were given away."""
        job.blocks = job.blocks or [[] for _ in self._windows]
        table = job.blocks[group]
        for index in range(min(self._first(group, job.computed), len(table))):
            if table[index] >= 0 and sum(bool(other.blocks) and table[index] in other.blocks[group] for other in jobs) == 1:
                self._free[group].append(table[index])
                self._cached[group] = {key: block for key, block in self._cached[group].items() if block != table[index]}
            table[index] = -1
        fresh = [self._free[group].pop() for _ in range(-(-(job.computed + count) // self.block_size) - len(table))]
        table += fresh
        return np.asarray(fresh, np.int32)

    def _first(self, group: int, position: int) -> int:
        """The first block that a query at ``position`` reads."""
        window = self._windows[group]
        return max(0, position + 1 - window) // self.block_size if window else 0

    def _collect(self, result: RunnerOutput, counts: dict[str, int], jobs: dict[str, Job]) -> None:
        assert not result.errors
        for name in counts:
            job = jobs[name]
            for cached, table in zip(self._cached, job.blocks, strict=True):
                for index in range(job.computed // self.block_size):
                    if table[index] >= 0:
                        cached.setdefault(tuple(job.tokens[: (index + 1) * self.block_size]), table[index])
            job.prompt_logprobs += result.prompt_logprobs.get(name, [])
            assert (name in result.sampled) == (job.computed == len(job.tokens))
            job.output += result.sampled.get(name, [])
            job.logprobs += result.logprobs.get(name, [])


def run_alone(runner: Runner, job: Job, block_size: int) -> None:
    """The plain schedule: the whole prompt, then token by token, in blocks 0, 1, 2 …"""
    driver = Driver(runner, block_size, [list(range(10_000)) for _ in runner.info().groups])
    while not job.done:
        driver.step({job.name: len(job.tokens) - job.computed}, {job.name: job})
    driver.remove(job)
    driver.step({}, {})


def run_randomly(runner: Runner, jobs: list[Job], block_size: int, num_blocks: int, rng: random.Random) -> None:
    """A random schedule: random chunks, neighbours, block placement, preemptions and prefix hits."""
    orders = [rng.sample(range(num_blocks), num_blocks) for _ in runner.info().groups]
    driver = Driver(runner, block_size, orders)
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
