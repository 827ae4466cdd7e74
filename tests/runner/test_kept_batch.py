"""The batch that is kept from step to step lays each out as one that is built from nothing does."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.runner.input_batch import InputBatch, StepBatch
from octavo.sampling_params import SamplingParams
from octavo.scheduler.output import MovedBlocks, NewRequestData, RunningRequestData, SchedulerOutput

MAX_SEQS = 8


@dataclass
class Job:
    """A request as the scheduler knows it."""

    tokens: list[int]
    computed: int
    tables: list[list[int]]
    """Per layer group."""
    params: dict[str, Any] = field(default_factory=dict)
    known: bool = False
    """To the batch that is kept."""

    def __post_init__(self) -> None:
        self.num_prompt = len(self.tokens)
        self.scored = 0
        """Prompt positions whose log-probabilities went out."""

    def entry(self, name: str) -> NewRequestData:
        blocks = [np.asarray(table, np.int32) for table in self.tables]
        params = SamplingParams(seed=1, **self.params)
        return NewRequestData(name, list(self.tokens), self.num_prompt, params, self.computed, blocks, num_prompt_logprobs_sent=self.scored)


class Histories:
    """Requests in a batch that is kept, beside one that is built from nothing in each step."""

    def __init__(self, size: int, spare: int = 0, groups: int = 1) -> None:
        """``spare``: blocks that a request gets beyond those it needs, whenever it needs any."""
        self.size, self.spare, self.groups = size, spare, groups
        self.jobs: dict[str, Job] = {}
        self.removed: list[str] = []
        self.steps = 0
        self.ids = iter(range(1, 1_000_000))
        self.batch = self.empty()

    def empty(self) -> InputBatch:
        return InputBatch(MAX_SEQS, 400, self.size, self.groups)

    def add(self, name: str, length: int, computed: int = 0, **params: Any) -> None:
        """A request of so many tokens, the first ``computed`` of which are in the cache."""
        start = 1000 * len(self.jobs)
        self.jobs[name] = Job(list(range(start, start + length)), computed, [[] for _ in range(self.groups)], params)

    def drop(self, name: str) -> None:
        del self.jobs[name]
        self.removed.append(name)

    def come_back(self, name: str) -> None:
        """It lost its blocks, and is computed again, as the same request."""
        job = self.jobs[name]
        job.computed, job.tables, job.known = 0, [[] for _ in range(self.groups)], False
        self.removed.append(name)

    def move(self, name: str, group: int, place: int) -> MovedBlocks:
        block = next(self.ids)
        self.jobs[name].tables[group][place] = block
        return MovedBlocks(name, group, place, np.array([block], np.int32))

    def grow(self, job: Job, count: int) -> list[list[int]]:
        """Blocks for ``count`` more tokens, per group; no two are the same."""
        grown = []
        for table in job.tables:
            wanted = -(-(job.computed + count) // self.size) - len(table)
            grown.append([next(self.ids) for _ in range(wanted + self.spare if wanted > 0 else 0)])
            table += grown[-1]
        return grown

    def step(self, counts: dict[str, int], moved: list[MovedBlocks] | None = None, failed: str = "") -> None:
        """So many tokens of each; both batches must agree on them. ``failed``: a request that a transfer's error ends."""
        output = SchedulerOutput(self.steps, removed_request_ids=self.removed, moved=moved or [], num_scheduled_tokens=counts)
        again = SchedulerOutput(self.steps)
        self.removed, self.steps = [], self.steps + 1
        for name, count in counts.items():
            job = self.jobs[name]
            grown = self.grow(job, count)
            if job.known:
                output.running.append(RunningRequestData(name, job.computed, [np.asarray(blocks, np.int32) for blocks in grown]))
            else:
                output.new.append(job.entry(name))
            job.known = True
            if name != failed:
                again.new.append(job.entry(name))
                again.num_scheduled_tokens[name] = count
        self.batch.apply(output)
        if failed:
            self.drop(failed)
            output = replace(output, num_scheduled_tokens=dict(again.num_scheduled_tokens))
        if again.num_scheduled_tokens:  # a step of no tokens is never laid out
            rebuilt = self.empty()
            rebuilt.apply(again)
            laid = self.batch.lay_out(output)
            self.compare(laid, rebuilt.lay_out(again), list(again.num_scheduled_tokens))
            self.advance(laid, again.num_scheduled_tokens)

    def compare(self, laid: StepBatch, expected: StepBatch, names: list[str]) -> None:
        for part in ("token_ids", "positions", "query_start", "seq_lens", "logits_rows", "slot_mapping"):
            np.testing.assert_array_equal(getattr(laid.inputs, part), getattr(expected.inputs, part), part)
        for group, tables in enumerate(laid.inputs.block_tables):
            for place, name in enumerate(names):
                table = self.jobs[name].tables[group]
                assert tables[place, : len(table)].tolist() == table
        assert [row.request_id for row in laid.sampling] == [row.request_id for row in expected.sampling]
        assert laid.sample_rows == expected.sample_rows
        found, wanted = ([(row.request_id, place, tokens.tolist()) for row, place, tokens in batch.prompts] for batch in (laid, expected))
        assert found == wanted

    def advance(self, laid: StepBatch, counts: dict[str, int]) -> None:
        for row, _, tokens in laid.prompts:
            job = self.jobs[row.request_id]
            assert tokens.tolist() == job.tokens[job.scored + 1 : job.scored + 1 + len(tokens)]
            job.scored += len(tokens)
            assert job.scored < job.num_prompt
        for name, count in counts.items():
            self.jobs[name].computed += count
        assert [row.request_id for row in laid.sampling] == [n for n in counts if self.jobs[n].computed == len(self.jobs[n].tokens)]
        for row in laid.sampling:
            token = 7 * self.steps + row.index
            self.batch.append_token(row, token)
            self.jobs[row.request_id].tokens.append(token)


def decoding(lengths: list[int], size: int, spare: int = 0, groups: int = 1) -> Histories:
    """Requests of these lengths, all of which is in the cache but the last token."""
    histories = Histories(size, spare, groups)
    for i, length in enumerate(lengths):
        histories.add(f"r{i}", length, length - 1)
    return histories


def ones(names: list[str]) -> dict[str, int]:
    return dict.fromkeys(names, 1)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("spare", [0, 3])  # with spare blocks a block's edge is passed without a new one
@pytest.mark.parametrize("size", [8, 16])
def test_a_steady_decode_is_counted_on_over_the_edges_of_blocks(size: int, spare: int, groups: int) -> None:
    histories = decoding([1, 8, 13, 16], size, spare, groups)
    for _ in range(1 + 5 * size):
        histories.step(ones(list(histories.jobs)))


@pytest.mark.parametrize("groups", [1, 2])
def test_other_requests_another_order_and_moved_blocks_are_noticed(groups: int) -> None:
    histories = decoding([9, 3, 20], 8, groups=groups)
    a, b, c = histories.jobs
    for names in ([a, b, c], [a, b, c], [c, a, b], [c, a, b], [a], [a], [a, b, c], [b, c], [b, c], [a, b, c], [a, b, c]):
        histories.step(ones(names))
    for group in range(groups):
        histories.step(ones([a, b, c]), [histories.move(b, group, 0)])
        histories.step(ones([a, b, c]))


def test_a_name_that_comes_back_is_another_row() -> None:
    """At once, and after a step of no tokens, with other blocks and tokens."""
    histories = decoding([9, 3], 8)
    names = list(histories.jobs)
    for idle in (False, True):
        histories.step(ones(names))
        histories.step(ones(names))
        histories.drop("r0")
        if idle:
            histories.step({})
        histories.add("r0", 12, 11)
        histories.step(ones(names))
        histories.step(ones(names))


def test_one_that_fails_leaves_the_others_as_they_were() -> None:
    histories = decoding([9, 3, 20], 8)
    names = list(histories.jobs)
    histories.step(ones(names))
    histories.step(ones(names))
    histories.step(ones(names), failed="r1")
    histories.step(ones(["r0", "r2"]))
    histories.step(ones(["r0", "r2"]), failed="r0")
    histories.step(ones(["r2"]), failed="r2")
    histories.step({})
    assert len(histories.batch) == 0


def test_one_whose_prompt_is_scored_joins_and_leaves_those_that_decode() -> None:
    histories = decoding([9, 3], 8)
    names = list(histories.jobs)
    histories.step(ones(names))
    histories.step(ones(names))
    histories.add("scored", 12, prompt_logprobs=0)
    for count in (5, 1, 6, 1, 1):
        histories.step({**ones(names), "scored": count})
    assert histories.jobs["scored"].scored == 11
    histories.drop("scored")
    for _ in range(10):
        histories.step(ones(names))


EVENTS = ["go on"] * 8 + ["order", "some", "join", "join, scored", "leave", "come back", "move", "fail", "idle"]


@given(st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_whatever_happens_between_two_steps_is_noticed(seed: int) -> None:
    rng = random.Random(seed)
    histories = Histories(rng.choice([8, 16]), rng.choice([0, 3]), rng.choice([1, 2, 3]))
    names: list[str] = []
    for number in range(50):
        event, moved, failed = rng.choice(EVENTS), [], ""
        known = [name for name in names if histories.jobs[name].known]
        if event.startswith("join") and len(histories.jobs) < MAX_SEQS - 1:
            names.append(f"r{number}")
            histories.add(names[-1], rng.randint(1, 40), **({"prompt_logprobs": 0} if event == "join, scored" else {}))
        elif event == "order":
            rng.shuffle(names)
        elif event == "some":
            names = rng.sample(sorted(histories.jobs), rng.randint(0, len(histories.jobs)))
        elif known and event != "go on":
            one = rng.choice(known)
            if event in ("leave", "idle"):
                histories.drop(one)
                names.remove(one)
            elif event == "come back":
                histories.come_back(one)
            elif event == "move":
                group = rng.randrange(histories.groups)
                moved = [histories.move(one, group, rng.randrange(len(histories.jobs[one].tables[group])))]
            elif event == "fail":
                failed = one
            if event == "idle":
                histories.step({})
        left = {name: len(histories.jobs[name].tokens) - histories.jobs[name].computed for name in names}
        histories.step({name: rng.randint(1, count) for name, count in left.items()}, moved, failed)
        names = [name for name in names if name in histories.jobs]


def test_a_steady_decode_reuses_its_arrays() -> None:
    histories = decoding([1, 2], 16)
    names = list(histories.jobs)
    histories.step(ones(names))
    output = SchedulerOutput(9, num_scheduled_tokens=ones(names))
    output.running = [RunningRequestData(name, histories.jobs[name].computed, [np.zeros(0, np.int32)]) for name in names]
    kept = histories.batch._decoding
    assert kept is not None
    arrays = [kept.batch.inputs.token_ids, kept.batch.inputs.positions, *kept.batch.inputs.slot_mapping, *kept.batch.inputs.block_tables]
    laid = histories.batch.lay_out(output).inputs
    assert laid.positions.tolist() == [1, 2]
    assert all(a is b for a, b in zip(arrays, [laid.token_ids, laid.positions, *laid.slot_mapping, *laid.block_tables], strict=True))
