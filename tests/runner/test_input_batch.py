"""The persistent batch lays out what a plain reconstruction from the requests' histories says."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.runner.input_batch import InputBatch
from octavo.sampling_params import SamplingParams
from octavo.scheduler.output import NewRequestData, RunningRequestData, SchedulerOutput


def new(name: str, tokens: list[int], blocks: list[int], computed: int = 0, **params: object) -> NewRequestData:
    sampling = SamplingParams(seed=1, **params)  # type: ignore[arg-type]
    return NewRequestData(name, tokens, len(tokens), sampling, computed, [np.asarray(blocks, np.int32)])


def test_a_chunk_and_a_decode_by_hand() -> None:
    batch = InputBatch(4, 64, 8, 1)
    batch.apply(SchedulerOutput(0, new=[new("a", [7] * 9, [5, 2]), new("b", list(range(20)), [1])]))
    first = SchedulerOutput(0, num_scheduled_tokens={"a": 9, "b": 5}, new=[new("a", [7] * 9, [5, 2]), new("b", list(range(20)), [1])])
    laid = batch.lay_out(first)
    assert laid.inputs.query_start.tolist() == [0, 9, 14] and laid.inputs.logits_rows.tolist() == [8]
    assert laid.inputs.slot_mapping[0].tolist() == [40, 41, 42, 43, 44, 45, 46, 47, 16, 8, 9, 10, 11, 12]
    batch.append_token(laid.sampling[0], 99)
    none = np.zeros(0, np.int32)
    second = SchedulerOutput(
        1,
        running=[RunningRequestData("a", 9, [none]), RunningRequestData("b", 5, [np.asarray([3, 0], np.int32)])],
        num_scheduled_tokens={"b": 15, "a": 1},
    )
    batch.apply(second)
    laid = batch.lay_out(second)
    assert laid.inputs.token_ids.tolist() == [*range(5, 20), 99] and laid.inputs.positions.tolist() == [*range(5, 20), 9]
    assert laid.inputs.seq_lens.tolist() == [20, 10] and laid.inputs.logits_rows.tolist() == [14, 15]
    assert [row[:count].tolist() for row, count in zip(laid.inputs.block_tables[0], (3, 2), strict=True)] == [[1, 3, 0], [5, 2]]


def test_prompt_logprobs_score_each_prompt_token_once_over_chunks_and_resumption() -> None:
    batch = InputBatch(2, 64, 8, 1)
    tokens = list(range(10, 22))
    scored: list[int] = []
    computed = 0
    for count in (5, 1, 6):
        entry = new("a", tokens, [0, 1], computed, prompt_logprobs=0)
        entry.num_prompt_logprobs_sent = len(scored)
        step = SchedulerOutput(computed, new=[entry], num_scheduled_tokens={"a": count}, removed_request_ids=["a"])
        batch.apply(step)
        laid = batch.lay_out(step)
        for _, place, ids in laid.prompts:
            rows = laid.inputs.logits_rows[place]
            assert (laid.inputs.token_ids[rows] + 1 == ids).all()
            scored += ids.tolist()
        computed += count
    assert scored == tokens[1:]


@given(st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_layout_equals_reconstruction(seed: int) -> None:
    rng = random.Random(seed)
    size = rng.choice([8, 16])
    batch = InputBatch(3, 200, size, 1)
    live: dict[str, dict] = {}
    blocks = iter(rng.sample(range(4000), 4000))
    removed: list[str] = []
    for step_id in range(25):
        step = SchedulerOutput(step_id, removed_request_ids=removed)
        removed = []
        if len(live) < 3 and rng.random() < 0.6:
            name = f"r{step_id}"
            live[name] = {"tokens": [rng.randrange(1000) for _ in range(rng.randint(1, 90))], "blocks": [], "computed": 0, "fresh": True}
        for name in rng.sample(sorted(live), rng.randint(0, len(live))):
            job = live[name]
            count = rng.randint(1, len(job["tokens"]) - job["computed"])
            wanted = -(-(job["computed"] + count) // size) - len(job["blocks"])
            fresh = [next(blocks) for _ in range(wanted)]
            job["blocks"] += fresh
            if job.pop("fresh", False):
                step.new.append(new(name, list(job["tokens"]), list(job["blocks"]), job["computed"]))
            else:
                step.running.append(RunningRequestData(name, job["computed"], [np.asarray(fresh, np.int32)]))
            step.num_scheduled_tokens[name] = count
        batch.apply(step)
        if not step.num_scheduled_tokens:
            continue
        laid = batch.lay_out(step)
        row = 0
        sampling = []
        for sequence, (name, count) in enumerate(step.num_scheduled_tokens.items()):
            job = live[name]
            for position in range(job["computed"], job["computed"] + count):
                assert laid.inputs.token_ids[row] == job["tokens"][position] and laid.inputs.positions[row] == position
                assert laid.inputs.slot_mapping[0][row] == job["blocks"][position // size] * size + position % size
                row += 1
            job["computed"] += count
            assert laid.inputs.block_tables[0][sequence, : len(job["blocks"])].tolist() == job["blocks"]
            if job["computed"] == len(job["tokens"]):
                sampling.append(name)
        assert [r.request_id for r in laid.sampling] == sampling and row == laid.inputs.query_start[-1]
        for r in laid.sampling:
            token = rng.randrange(1000)
            batch.append_token(r, token)
            live[r.request_id]["tokens"].append(token)
        for name in sorted(live):
            if len(live[name]["tokens"]) > 150 or rng.random() < 0.05:
                removed.append(name)
                del live[name]
    assert len(batch) <= 3
