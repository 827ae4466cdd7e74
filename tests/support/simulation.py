"""Scheduler and KV core with a runner without a model, which checks their side of the contract in every step."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from octavo.kv.disk.files import BlockFiles
from octavo.kv.disk.tier import DiskTier
from octavo.kv.kv_cache_manager import KVCacheManager
from octavo.kv.transfers import BlockBytes
from octavo.outputs import EngineCoreOutput
from octavo.request import EngineCoreRequest, Request
from octavo.runner.interface import LayerGroup
from octavo.runner.transfers import carry_out
from octavo.sampling_params import SamplingParams
from octavo.scheduler.config import SchedulerConfig
from octavo.scheduler.output import Int32Array, RunnerOutput, SchedulerOutput
from octavo.scheduler.scheduler import Scheduler

VOCAB = 50
EOS = 0


def digest(before: int, token_id: int) -> int:
    """What a slot holds in place of K and V: it depends on a token and on all before it."""
    return (before * 1_000_003 + token_id * 7 + 1) % (2**61 - 1)


def text(kind: int, length: int) -> list[int]:
    """A prompt. Those of one kind are prefixes of each other: some hit the cache wholly, some in part."""
    return [(kind + 1 + i * (kind + 2) * 5) % VOCAB for i in range(length)]


def script(token_ids: list[int]) -> int:
    """The scripted model's next token: any function of all tokens so far."""
    state = 1
    for token_id in token_ids:
        state = digest(state, token_id)
    return state % VOCAB


def expected_output(core: EngineCoreRequest, max_model_len: int) -> tuple[list[int], str]:
    """Output and finish reason, by the rules of sampling_params alone."""
    params, tokens, output = core.sampling_params, list(core.prompt_token_ids), []
    while True:
        token = script(tokens)
        tokens.append(token)
        output.append(token)
        if len(output) >= params.min_tokens and (token in params.stop_token_ids or (token == EOS and not params.ignore_eos)):
            return output, "stop"
        if len(output) == params.max_tokens or len(tokens) == max_model_len:
            return output, "length"


@dataclass
class Row:
    """A request in the runner's batch."""

    tokens: list[int]
    tables: list[list[int]]
    """Per layer group."""
    num_computed: int


@dataclass
class SimulatedRunner:
    """Stores digests in slots as a real runner stores K and V, and reads them back: a wrong block shows as a wrong digest."""

    block_size: int
    windows: tuple[int, ...] = (0,)
    """Of each layer group; 0: it sees everything."""
    max_drafts: int = 1
    """Tokens it may return at once; how many depends on the sequence."""
    fail: set[str] = field(default_factory=set)
    rows: dict[str, Row] = field(default_factory=dict)
    slots: dict[tuple[int, int, int], int] = field(default_factory=dict)
    """(group, block, slot in it) → digest."""
    computed_tokens: int = 0

    def execute(self, scheduled: SchedulerOutput) -> RunnerOutput:
        output = RunnerOutput(scheduled.step_id, errors=carry_out(scheduled.transfers, self))
        self._update_rows(scheduled)
        for request_id, count in scheduled.num_scheduled_tokens.items():
            row = self.rows[request_id]
            if request_id in output.errors:
                row.num_computed += count
                continue
            if request_id in self.fail:
                output.errors[request_id] = "it broke"
                row.num_computed += count
                continue
            self._compute(row, count)
            if row.num_computed == len(row.tokens):
                output.sampled[request_id] = self._sample(row)
        return output

    def copy_blocks(self, group: int, src: Int32Array, dst: Int32Array) -> None:
        self.import_blocks(group, dst, self.export_blocks(group, src))

    def export_blocks(self, group: int, blocks: Int32Array, room: BlockBytes | None = None) -> BlockBytes:
        states = [[self.slots.get((group, block, i), -1) for i in range(self.block_size)] for block in blocks.tolist()]
        return np.array(states, np.int64).reshape(len(blocks), -1).view(np.uint8)

    def import_blocks(self, group: int, blocks: Int32Array, data: BlockBytes) -> None:
        assert len(set(blocks.tolist())) == len(blocks) == len(data)
        for block, states in zip(blocks.tolist(), data.copy().view(np.int64).tolist(), strict=True):
            self.slots.update({(group, block, i): state for i, state in enumerate(states)})

    def _update_rows(self, scheduled: SchedulerOutput) -> None:
        for request_id in scheduled.removed_request_ids:
            del self.rows[request_id]
        for new in scheduled.new:
            assert new.request_id not in self.rows
            self.rows[new.request_id] = Row(list(new.token_ids), [blocks.tolist() for blocks in new.block_ids], new.num_computed_tokens)
        for running in scheduled.running:
            row = self.rows[running.request_id]
            for table, blocks in zip(row.tables, running.new_block_ids, strict=True):
                table += blocks.tolist()
            assert row.num_computed == running.num_computed_tokens
        for moved in scheduled.moved:
            blocks = self.rows[moved.request_id].tables[moved.group]
            blocks[moved.first : moved.first + len(moved.block_ids)] = moved.block_ids.tolist()
        assert len(scheduled.new) + len(scheduled.running) == len(scheduled.num_scheduled_tokens)

    def _compute(self, row: Row, count: int) -> None:
        end = row.num_computed + count
        assert count > 0 and end <= len(row.tokens)
        states = [1]
        for token_id in row.tokens[:end]:
            states.append(digest(states[-1], token_id))
        for group, (table, window) in enumerate(zip(row.tables, self.windows, strict=True)):
            first = max(row.num_computed + 1 - window, 0) if window else 0
            for position in range(first, end):
                slot = group, table[position // self.block_size], position % self.block_size
                assert slot[1] >= 0, "a block that the window reaches was given away"
                if position >= row.num_computed:
                    self.slots[slot] = states[position + 1]
                assert self.slots[slot] == states[position + 1], "a slot does not hold this request's token"
        row.num_computed = end
        self.computed_tokens += count

    def _sample(self, row: Row) -> list[int]:
        sampled = []
        for _ in range(1 + len(row.tokens) % self.max_drafts):
            sampled.append(script(row.tokens))
            row.tokens.append(sampled[-1])
        return sampled


@dataclass
class Simulation:
    """Scheduler, KV core and simulated runner; ``lag`` steps are planned before the first comes back."""

    num_blocks: int = 64
    window: int = 0
    """If > 0, there is a second layer group, with this window and ``window_blocks``."""
    window_blocks: int = 64
    block_size: int = 8
    max_num_seqs: int = 8
    max_num_batched_tokens: int = 32
    max_model_len: int = 256
    enable_chunked_prefill: bool = True
    scheduling_policy: str = "fcfs"
    prefix_index: str = "hash"
    admission: str = "optimistic"
    placement: str = "paged"
    eviction: str = "lru"
    compaction_blocks: int = 0
    max_drafts: int = 1
    lag: int = 0
    swap_blocks: int = 0
    victim: str = "last"
    disk: BlockFiles | None = None
    itl_limit: float | None = None
    ttft_limit: float | None = None

    def __post_init__(self) -> None:
        policies = {seam: getattr(self, seam) for seam in ("placement", "prefix_index", "eviction", "admission")}
        nbytes = 8 * self.block_size
        groups = [LayerGroup("full", 1, nbytes), LayerGroup(f"window{self.window}", 1, nbytes, self.window)][: 2 if self.window else 1]
        self.kv = KVCacheManager(
            groups,
            [self.num_blocks, self.window_blocks][: len(groups)],
            self.block_size,
            policies,
            "simulated",
            self.max_num_seqs,
            self.max_model_len,
            swap_bytes=8 * self.block_size * self.swap_blocks,
            disk=DiskTier(self.disk, groups, self.block_size) if self.disk else None,
            compaction_blocks=self.compaction_blocks,
            max_tokens_in_flight=(1 + self.lag) * self.max_num_batched_tokens,
        )
        config = SchedulerConfig(
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            max_model_len=self.max_model_len,
            enable_chunked_prefill=self.enable_chunked_prefill,
            scheduling_policy=self.scheduling_policy,
            preemption_victim=self.victim,
            itl_limit=self.itl_limit,
            ttft_limit=self.ttft_limit,
        )
        self.now = 1000.0
        self.scheduler = Scheduler(config, self.kv, clock=lambda: self.now)
        self.runner = SimulatedRunner(self.block_size, (0, self.window)[: len(groups)], self.max_drafts)
        self.cores: dict[str, EngineCoreRequest] = {}
        self.requests: dict[str, Request] = {}
        self.outputs: dict[str, list[EngineCoreOutput]] = {}
        self.pending: deque[tuple[SchedulerOutput, RunnerOutput]] = deque()
        self.scheduled: list[SchedulerOutput] = []

    def add(self, request_id: str, prompt: list[int] | int, max_tokens: int = 8, **fields: Any) -> Request:
        """Queue a request; a number as prompt is that many tokens of its own.

        ``fields``: EngineCoreRequest's or SamplingParams'.
        """
        if isinstance(prompt, int):
            start = sum(request_id.encode()) * 13
            prompt = [(start + 3 * i) % VOCAB for i in range(prompt)]
        core_fields = {name: fields.pop(name) for name in EngineCoreRequest.__struct_fields__ if name in fields}
        params = SamplingParams(**({"max_tokens": max_tokens, "seed": 1, "ignore_eos": True} | fields))
        core = EngineCoreRequest(request_id, prompt, params, **({"arrival_time": self.now} | core_fields))
        request = Request(core, (EOS,))
        self.scheduler.add_request(request)
        self.cores[request_id], self.requests[request_id], self.outputs[request_id] = core, request, []
        return request

    def step(self) -> list[EngineCoreOutput]:
        """Plan and run a step; take in the one that is due."""
        scheduled = self.scheduler.schedule()
        assert scheduled.total_num_scheduled_tokens <= self.max_num_batched_tokens
        self.scheduled.append(scheduled)
        self.pending.append((scheduled, self.runner.execute(scheduled)))
        outputs = []
        if len(self.pending) > self.lag:
            outputs = self.scheduler.update_from_output(*self.pending.popleft())
            for output in outputs:
                self.outputs[output.request_id].append(output)
        self.scheduler.check_integrity()
        return outputs

    def run(self, most_steps: int = 2000) -> int:
        """Step until nothing is left; the number of steps."""
        for steps in range(most_steps):
            if not self.scheduler.has_work():
                self.drain()
                return steps
            self.step()
        raise AssertionError(f"not finished after {most_steps} steps")

    def drain(self) -> None:
        """Take in the steps still in flight."""
        while self.pending:
            assert not self.scheduler.update_from_output(*self.pending.popleft())

    def tokens(self, request_id: str) -> list[int]:
        return [token for output in self.outputs[request_id] for token in output.new_token_ids]

    def last(self, request_id: str) -> EngineCoreOutput:
        return self.outputs[request_id][-1]

    def check_output(self, request_id: str) -> None:
        """Tokens and finish reason are the scripted model's, whatever happened on the way."""
        core = self.cores[request_id]
        output, reason = expected_output(core, self.max_model_len)
        assert list(core.output_token_ids) + self.tokens(request_id) == output
        assert self.last(request_id).finish_reason == reason

    def check_idle(self) -> None:
        """No request left, every block back."""
        assert not self.scheduler.requests and not self.scheduler.running and not len(self.scheduler.waiting)
        self.scheduler.check_integrity()
        assert all(usage.held == 0 and usage.cached + usage.free == usage.total for usage in self.kv.usage().groups)
        assert self.kv.swap.nbytes == 0
