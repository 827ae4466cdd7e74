"""Runners without a model, for tests of the engine and the server.

``ScriptedRunner`` emits the ids that a script gives; ``RandomRunner`` samples, with the real sampler, from logits that are a
pure function of a sequence's tokens. Both keep a KV pool in which each slot holds its token's id and position, and read every
sequence back through its block table before they sample: a wrong block is an error.

Usable in any process: ``EngineArgs(model=write_model(folder, script), runner_cls="support.scripted:ScriptedRunner")``.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from octavo.config import EngineArgs
from octavo.outputs import ResourceCounts, TokenLogprobs
from octavo.runner.interface import LayerGroup, RunnerInfo
from octavo.runner.sampler import Sampler
from octavo.runner.sampling_state import SamplingState
from octavo.scheduler.output import NewRequestData, RunnerOutput, SchedulerOutput

SCRIPT_FILE = "script.json"
SCRIPTED = "support.scripted:ScriptedRunner"
RANDOM = "support.scripted:RandomRunner"
BYTES_PER_BLOCK = 4096


@dataclass
class Script:
    """What a scripted runner does."""

    outputs: list[list[int]] = field(default_factory=lambda: [[]])
    """A request with seed s emits outputs[s % len(outputs)], then the first EOS for ever."""
    eos_token_ids: list[int] = field(default_factory=lambda: [0])
    vocab_size: int = 1000
    max_model_len: int = 2048
    available_kv_bytes: int = 256 * BYTES_PER_BLOCK
    tokens_per_step: int = 1
    step_seconds: float = 0.0
    load_seconds: float = 0.0
    fail_request_at: int | None = None
    """Every request fails by itself when it is to emit this output index."""
    raise_at_step: int | None = None
    hang_at_step: int | None = None
    die_at_step: int | None = None

    def save(self, folder: Path) -> None:
        (folder / SCRIPT_FILE).write_text(json.dumps(dataclasses.asdict(self)))


@dataclass
class _Sequence:
    tokens: list[int]
    num_prompt_tokens: int
    state: SamplingState
    blocks: list[int]
    num_prompt_logprobs_sent: int = 0


class ScriptedRunner:
    """octavo.runner.interface.Runner; ``args.model`` is a folder with a script."""

    def __init__(self, args: EngineArgs) -> None:
        self.script = Script(**json.loads((Path(args.model) / SCRIPT_FILE).read_text()))
        self.block_size = args.block_size
        self.steps = 0
        self._sequences: dict[str, _Sequence] = {}
        time.sleep(self.script.load_seconds)

    def info(self) -> RunnerInfo:
        script = self.script
        return RunnerInfo(
            max_model_len=script.max_model_len,
            vocab_size=script.vocab_size,
            eos_token_ids=tuple(script.eos_token_ids),
            numerics_id="scripted",
            groups=[LayerGroup("all", 1, BYTES_PER_BLOCK)],
            available_kv_bytes=script.available_kv_bytes,
            load_phases={"script": script.load_seconds},
        )

    def allocate_kv(self, num_blocks: list[int]) -> None:
        self._slots = np.full((num_blocks[0] * self.block_size, 2), -1, np.int64)

    def resources(self) -> ResourceCounts:
        return ResourceCounts()

    def execute(self, scheduled: SchedulerOutput) -> RunnerOutput:
        self._misbehave()
        output = RunnerOutput(scheduled.step_id)
        computed = self._apply(scheduled)
        for request_id, count in scheduled.num_scheduled_tokens.items():
            sequence = self._sequences[request_id]
            start, end = computed[request_id], computed[request_id] + count
            assert end <= len(sequence.tokens), "more tokens scheduled than there are"
            self._write(sequence, start, end)
            self._score_prompt(request_id, sequence, start, end, output)
            if end == len(sequence.tokens):
                self._check(sequence)
                self._emit(request_id, sequence, output)
        return output

    def close(self) -> None:
        self._sequences.clear()

    def _misbehave(self) -> None:
        script, self.steps = self.script, self.steps + 1
        time.sleep(script.step_seconds)
        if script.raise_at_step == self.steps:
            raise RuntimeError("the script says so")
        if script.hang_at_step == self.steps:
            time.sleep(3600)
        if script.die_at_step == self.steps:
            os._exit(13)

    def _apply(self, scheduled: SchedulerOutput) -> dict[str, int]:
        """The batch as the scheduler sees it; tokens computed before this step, by request."""
        for request_id in scheduled.removed_request_ids:
            self._sequences.pop(request_id, None)
        for new in scheduled.new:
            assert new.request_id not in self._sequences, "added twice"
            self._sequences[new.request_id] = self._open(new)
        for running in scheduled.running:
            self._sequences[running.request_id].blocks.extend(running.new_block_ids[0].tolist())
        return {entry.request_id: entry.num_computed_tokens for entry in [*scheduled.new, *scheduled.running]}

    def _open(self, new: NewRequestData) -> _Sequence:
        state = SamplingState.from_request(new)
        blocks = new.block_ids[0].tolist()
        return _Sequence(list(new.token_ids), new.num_prompt_tokens, state, blocks, new.num_prompt_logprobs_sent)

    def _slot(self, sequence: _Sequence, position: int) -> int:
        return sequence.blocks[position // self.block_size] * self.block_size + position % self.block_size

    def _write(self, sequence: _Sequence, start: int, end: int) -> None:
        for position in range(start, end):
            self._slots[self._slot(sequence, position)] = sequence.tokens[position], position

    def _check(self, sequence: _Sequence) -> None:
        slots = [self._slot(sequence, position) for position in range(len(sequence.tokens))]
        expected = np.stack([sequence.tokens, np.arange(len(slots))], axis=1)
        assert np.array_equal(self._slots[slots], expected), "the KV pool does not hold the sequence"

    def _score_prompt(self, request_id: str, sequence: _Sequence, start: int, end: int, output: RunnerOutput) -> None:
        num = sequence.state.params.prompt_logprobs
        start, last = max(start, sequence.num_prompt_logprobs_sent), min(end, sequence.num_prompt_tokens - 1)
        if num is not None and start < last:
            output.prompt_logprobs[request_id] = [made_up_logprobs(t, num) for t in sequence.tokens[start + 1 : last + 1]]

    def _emit(self, request_id: str, sequence: _Sequence, output: RunnerOutput) -> None:
        if self.script.fail_request_at == len(sequence.state.output_token_ids):
            output.errors[request_id] = "the script says so"
            return
        output.sampled[request_id] = tokens = []
        for _ in range(self.script.tokens_per_step):
            token, logprobs = self._next(sequence)
            tokens.append(token)
            if logprobs is not None:
                output.logprobs.setdefault(request_id, []).append(logprobs)
            sequence.tokens.append(token)
            sequence.state.append(token)

    def _next(self, sequence: _Sequence) -> tuple[int, TokenLogprobs | None]:
        state = sequence.state
        script = self.script.outputs[state.seed % len(self.script.outputs)]
        index = len(state.output_token_ids)
        token = script[index] if index < len(script) else self.script.eos_token_ids[0]
        return token, None if state.params.logprobs is None else made_up_logprobs(token, state.params.logprobs)


class RandomRunner(ScriptedRunner):
    """Logits are random, but the same whenever a sequence's last tokens are: sampling is the real one."""

    _sampler = Sampler()

    def _next(self, sequence: _Sequence) -> tuple[int, TokenLogprobs | None]:
        seed = [len(sequence.tokens), *sequence.tokens[-4:]]
        logits = np.random.default_rng(seed).normal(size=(1, self.script.vocab_size)).astype(np.float32) * 2
        sampled = self._sampler.sample(logits, [sequence.state])
        assert not sampled.errors
        return sampled.token_ids[0], sampled.logprobs[0]


def made_up_logprobs(token: int, num: int) -> TokenLogprobs:
    """The token itself at -token / 100, rank 1, and ``num`` likeliest, of which it is the first."""
    top = [token + i for i in range(num)]
    return TokenLogprobs([token, *top], [-t / 100 for t in [token, *top]], 1)
