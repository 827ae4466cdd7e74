"""The persistent batch: one row a request, in arrays that a step updates and gathers from, and never rebuilds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from octavo.ops.spec import StepInputs
from octavo.runner.sampling_state import SamplingState
from octavo.runner.step_arrays import StepArrays, widened
from octavo.scheduler.output import NewRequestData, RunningRequestData, SchedulerOutput

Int32Array = npt.NDArray[np.int32]

TOKEN_BYTES_AT_START = 1 << 28
"""Bytes of token ids that are mapped at start (untouched pages cost nothing); longer sequences make the array grow."""


@dataclass(slots=True)
class Row:
    """What is kept of one request beside the arrays."""

    request_id: str
    index: int
    num_prompt_tokens: int
    state: SamplingState
    num_blocks: list[int]
    """Per layer group."""
    num_tokens: int
    """Known, of which the array has the first ``num_written``."""
    num_written: int
    num_prompt_logprobs_sent: int = 0
    place: int = -1
    """Its row of the step's block tables."""
    changed: bool = False
    """Since the blocks were copied there."""


@dataclass(slots=True)
class StepBatch:
    """One step, laid out: the program's inputs, and which logits row is whose. Valid until the next one is laid out."""

    inputs: StepInputs
    sampling: list[Row] = field(default_factory=list)
    """Requests that sample, in order of ``sample_rows``."""
    sample_rows: list[int] = field(default_factory=list)
    """Index into the logits, per sampling request."""
    prompts: list[tuple[Row, slice, Int32Array]] = field(default_factory=list)
    """Requests that want prompt logprobs: the logits rows and the tokens whose log-probabilities they give."""


@dataclass(slots=True)
class _Decoding:
    """A step in which every request computed one token, and sampled."""

    names: list[str]
    lengths: list[int]
    """After it."""
    batch: StepBatch


class InputBatch:
    """Rows of up to ``max_num_seqs`` requests. Mutated by one thread."""

    def __init__(self, max_num_seqs: int, max_model_len: int, block_size: int, num_groups: int, max_num_tokens: int = 0) -> None:
        """``max_num_tokens``: of one step, for which room is made at once."""
        self.block_size = block_size
        self.max_model_len = max_model_len
        self._rows: dict[str, Row] = {}
        self._free = list(range(max_num_seqs - 1, -1, -1))
        columns = max(64, min(max_model_len, TOKEN_BYTES_AT_START // (4 * max_num_seqs)))
        self._tokens = np.zeros((max_num_seqs, columns), np.int32)
        self._blocks = [np.zeros((max_num_seqs, -(-columns // block_size)), np.int32) for _ in range(num_groups)]
        self._decoding: _Decoding | None = None
        self._step = StepArrays(max_num_seqs, max_num_tokens, block_size, self._blocks)

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._rows

    def apply(self, scheduled: SchedulerOutput) -> None:
        """Drop what left, add what is new, append and move blocks: the batch as the scheduler sees it."""
        for request_id in scheduled.removed_request_ids:
            if (row := self._rows.pop(request_id, None)) is not None:
                self._free.append(row.index)
        for new in scheduled.new:
            self._add(new)
        for running in scheduled.running:
            self._append_blocks(self._rows[running.request_id], running)
        for moved in scheduled.moved:
            row = self._rows[moved.request_id]
            self._blocks[moved.group][row.index, moved.first : moved.first + len(moved.block_ids)] = moved.block_ids
            row.changed = True

    def append_token(self, row: Row, token_id: int) -> None:
        """A token was sampled: it is the row's last one from now on. The array gets it when a step is laid out anew."""
        if row.num_tokens < self.max_model_len:
            row.num_tokens += 1
        row.state.append(token_id)

    def lay_out(self, scheduled: SchedulerOutput) -> StepBatch:
        """The step's inputs. Rows of a request stand together, requests in the order they were scheduled."""
        if self._decoding is not None and self._goes_on(self._decoding, scheduled):
            return self._decoding.batch
        self._decoding = None
        rows = [self._rows[request_id] for request_id in scheduled.num_scheduled_tokens]
        for row in rows:
            self._write_tokens(row)
        counts = np.fromiter(scheduled.num_scheduled_tokens.values(), np.int32, len(rows))
        computed = _num_computed(scheduled)
        first = np.fromiter((computed[row.request_id] for row in rows), np.int32, len(rows))
        indices = np.fromiter((row.index for row in rows), np.intp, len(rows))
        inputs = self._step.lay_out(rows, counts, first, indices, self._tokens, self._blocks)
        samples = inputs.seq_lens == np.fromiter((row.num_tokens for row in rows), np.int32, len(rows))
        if any(row.state.params.prompt_logprobs is not None for row in rows):
            return self._score_prompts(StepBatch(inputs), rows, first, samples.tolist())
        inputs.logits_rows = inputs.query_start[1:][samples] - np.int32(1)
        sampling = [row for row, last in zip(rows, samples.tolist(), strict=True) if last]
        batch = StepBatch(inputs, sampling, list(range(len(sampling))))
        if len(rows) == len(sampling) == len(inputs.token_ids):
            self._decoding = _Decoding(list(scheduled.num_scheduled_tokens), inputs.seq_lens.tolist(), batch)
        return batch

    def _goes_on(self, last: _Decoding, scheduled: SchedulerOutput) -> bool:
        """Whether the step is the last one's requests with their next token each; ``last.batch`` is it then."""
        running, rows = scheduled.running, last.batch.sampling
        if (
            scheduled.new
            or [entry.request_id for entry in running] != last.names
            or list(scheduled.num_scheduled_tokens) != last.names
            or scheduled.total_num_scheduled_tokens != len(last.names)
            or [entry.num_computed_tokens for entry in running] != last.lengths
            or any([row.changed for row in rows])
            or not self._step.go_on(last.batch.inputs, [row.state.output_token_ids[-1] for row in rows])
        ):
            return False
        last.lengths = [length + 1 for length in last.lengths]
        return True

    def _score_prompts(self, batch: StepBatch, rows: Sequence[Row], first: Int32Array, samples: list[bool]) -> StepBatch:
        """Choose the rows whose logits are needed: a request's last token if it samples, and prompt tokens to be scored."""
        inputs = batch.inputs
        wanted: list[int] = []
        for i, row in enumerate(rows):
            start, end, seq_len = int(inputs.query_start[i]), int(inputs.query_start[i + 1]), int(inputs.seq_lens[i])
            if row.state.params.prompt_logprobs is not None:
                low = max(int(first[i]), row.num_prompt_logprobs_sent)
                high = min(seq_len, row.num_prompt_tokens - 1)
                if low < high:
                    place = slice(len(wanted), len(wanted) + high - low)
                    batch.prompts.append((row, place, self._tokens[row.index, low + 1 : high + 1].copy()))
                    wanted.extend(range(start + low - int(first[i]), start + high - int(first[i])))
            if samples[i]:
                batch.sampling.append(row)
                batch.sample_rows.append(len(wanted))
                wanted.append(end - 1)
        inputs.logits_rows = np.asarray(wanted, np.int32)
        return batch

    def _add(self, new: NewRequestData) -> None:
        state = SamplingState.from_request(new)
        count, none = len(new.token_ids), [0] * len(self._blocks)
        row = Row(new.request_id, self._free.pop(), new.num_prompt_tokens, state, none, count, count, new.num_prompt_logprobs_sent)
        self._reserve(count)
        self._rows[new.request_id] = row
        self._tokens[row.index, :count] = new.token_ids
        for group, blocks in enumerate(new.block_ids):
            self._put_blocks(row, group, blocks)

    def _append_blocks(self, row: Row, running: RunningRequestData) -> None:
        for group, blocks in enumerate(running.new_block_ids):
            if len(blocks):
                self._put_blocks(row, group, blocks)

    def _put_blocks(self, row: Row, group: int, blocks: Int32Array) -> None:
        start = row.num_blocks[group]
        end = start + len(blocks)
        if end > self._blocks[group].shape[1]:
            self._blocks[group] = widened(self._blocks[group], end)
        self._blocks[group][row.index, start:end] = blocks
        row.num_blocks[group] = end
        row.changed = True

    def _write_tokens(self, row: Row) -> None:
        """Bring the array up to date."""
        start, end = row.num_written, row.num_tokens
        if start < end:
            self._reserve(end)
            self._tokens[row.index, start:end] = row.state.output_token_ids[start - row.num_prompt_tokens : end - row.num_prompt_tokens]
            row.num_written = end

    def _reserve(self, num_tokens: int) -> None:
        if num_tokens > self._tokens.shape[1]:
            self._tokens = widened(self._tokens, num_tokens)


def _num_computed(scheduled: SchedulerOutput) -> dict[str, int]:
    computed = {new.request_id: new.num_computed_tokens for new in scheduled.new}
    computed.update((running.request_id, running.num_computed_tokens) for running in scheduled.running)
    return computed
