"""Blocks that move between steps: the runner's outputs are the same bits, in order, and what cannot be moved fails its request alone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from octavo.config import EngineArgs
from octavo.kv.transfers import CopyBlocks, HostBlocks, LoadBlocks, SaveBlocks, Transfer
from octavo.runner.interface import RunnerInfo
from octavo.runner.model_runner import ModelRunner, ReferenceModelRunner
from octavo.sampling_params import SamplingParams
from octavo.scheduler.output import NewRequestData, RunnerOutput, RunningRequestData, SchedulerOutput
from support.schedules import Job, run_alone, run_randomly
from support.tiny_models import VOCAB, make

NUM_BLOCKS = 64
SIZE = 16


@pytest.fixture(scope="module", params=[ModelRunner, ReferenceModelRunner])
def runner(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelRunner]:
    folder = tmp_path_factory.mktemp("gemma3")
    make("gemma3", folder)
    runner = request.param(EngineArgs(model=str(folder), num_threads=1, max_num_seqs=4, max_model_len=256, block_size=SIZE))
    runner.allocate_kv([NUM_BLOCKS] * len(runner.info().groups))
    yield runner
    runner.close()


class Shuffler:
    """A runner whose blocks are moved about before each step and back again; what lies in between is overwritten."""

    def __init__(self, runner: ModelRunner, rng: random.Random) -> None:
        self.runner, self.rng = runner, rng

    def info(self) -> RunnerInfo:
        return self.runner.info()

    def execute(self, scheduled: SchedulerOutput) -> RunnerOutput:
        for group in range(len(self.info().groups)):
            scheduled.transfers += self.round_trip(group)
        return self.runner.execute(scheduled)

    def round_trip(self, group: int) -> list[Transfer]:
        order = np.array(self.rng.sample(range(NUM_BLOCKS), NUM_BLOCKS), np.int32)
        half, rest = order[: NUM_BLOCKS // 2], order[NUM_BLOCKS // 2 :]
        every = np.arange(NUM_BLOCKS, dtype=np.int32)
        kept, other = HostBlocks(), HostBlocks()
        return [
            CopyBlocks(group, every, order, "nobody"),  # a permutation: every block is read and written
            SaveBlocks(group, half, kept),
            SaveBlocks(group, rest, other),
            CopyBlocks(group, rest, half, "nobody"),  # over what was saved
            LoadBlocks(group, rest[5:], other, 5, "nobody"),
            LoadBlocks(group, half, kept, 0, "nobody"),
            CopyBlocks(group, order, every, "nobody"),
        ]


def jobs() -> list[Job]:
    rng = random.Random(3)
    params = SamplingParams(seed=5, max_tokens=6, temperature=0.8, logprobs=2)
    return [Job(str(i), [rng.randrange(3, VOCAB) for _ in range(length)], params) for i, length in enumerate((37, 5, 48))]


def test_moving_blocks_changes_no_bits(runner: ModelRunner) -> None:
    plain, moved = jobs(), jobs()
    run_randomly(runner, plain, SIZE, NUM_BLOCKS, random.Random(1))
    run_randomly(Shuffler(runner, random.Random(2)), moved, SIZE, NUM_BLOCKS, random.Random(1))
    for job, other in zip(plain, moved, strict=True):
        assert other.bits() == job.bits()


def test_a_block_takes_the_bytes_that_are_stated(runner: ModelRunner) -> None:
    for group, described in enumerate(runner.info().groups):
        assert runner._executor.export_blocks(group, np.arange(3, dtype=np.int32)).shape == (3, described.bytes_per_block)


@pytest.mark.parametrize("runner_class", [ModelRunner, ReferenceModelRunner])
@pytest.mark.parametrize("dtype", ["fp8", "int8"])
def test_a_block_of_8_bits_takes_the_bytes_that_are_stated(runner_class: type[ModelRunner], dtype: str, tmp_path: Path) -> None:
    make("gemma3", tmp_path)
    args = EngineArgs(model=str(tmp_path), num_threads=1, max_num_seqs=1, max_model_len=64, block_size=SIZE, kv_cache_dtype=dtype)
    runner = runner_class(args)
    try:
        runner.allocate_kv([4] * len(runner.info().groups))
        test_a_block_takes_the_bytes_that_are_stated(runner)
    finally:
        runner.close()


def test_a_failed_transfer_fails_its_request_alone(runner: ModelRunner) -> None:
    groups = range(len(runner.info().groups))
    good, bad, _ = jobs()
    for name, transfer in {
        "bad": LoadBlocks(0, np.array([NUM_BLOCKS], np.int32), HostBlocks(np.zeros((1, 8), np.uint8)), 0, "bad"),
        "empty": LoadBlocks(0, np.array([3], np.int32), HostBlocks(), 0, "empty"),
        "copy": CopyBlocks(0, np.array([1], np.int32), np.array([-1], np.int32), "copy"),
    }.items():
        lost = HostBlocks()
        scheduled = SchedulerOutput(1, transfers=[SaveBlocks(0, np.array([-5], np.int32), lost), transfer])
        for request_id, job, first in (("good", good, 0), (name, bad, 8)):
            blocks = [np.arange(first, first + 8, dtype=np.int32) for _ in groups]
            scheduled.new.append(NewRequestData(request_id, job.prompt, len(job.prompt), job.params, 0, blocks))
            scheduled.num_scheduled_tokens[request_id] = len(job.prompt)
        output = runner.execute(scheduled)
        assert lost.failed and lost.data is None
        assert output.sampled.keys() == {"good"} and output.errors.keys() == {name}
        assert output.errors[name].startswith("its KV blocks could not be ")
        first_token = output.sampled["good"]
        goes_on = SchedulerOutput(2, num_scheduled_tokens={"good": 1}, removed_request_ids=[name])
        goes_on.running.append(RunningRequestData("good", len(good.prompt), [np.zeros(0, np.int32) for _ in groups]))
        assert len(runner.execute(goes_on).sampled["good"]) == 1
        runner.execute(SchedulerOutput(3, removed_request_ids=["good"]))
        if not good.output:
            run_alone(runner, good, SIZE)
        assert first_token == good.output[:1]
