"""EngineCore: schedule, execute, update; nothing else is in the loop."""

from __future__ import annotations

import contextlib
import importlib
import logging
import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from octavo.config import EngineArgs
from octavo.engine.calibration import calibrate
from octavo.engine.info import EngineInfo
from octavo.engine.kv_report import kv_report
from octavo.engine.pool import PoolPlan, plan_pool
from octavo.engine.step_clock import StepClock, StepTimes
from octavo.engine.step_demand import step_demand
from octavo.engine.step_log import StepLog
from octavo.errors import InvalidRequestError
from octavo.kv.disk import SPILL_SECONDS
from octavo.kv.disk.files import HEADER_BYTES, BlockFiles
from octavo.kv.disk.tier import DiskTier
from octavo.kv.kv_cache_manager import KVCacheManager
from octavo.outputs import EngineCoreOutput, EngineCoreOutputs, EngineStats, FinishReason, KVWrites
from octavo.request import EngineCoreRequest, Request
from octavo.runner.interface import Runner, RunnerInfo
from octavo.scheduler.config import SchedulerConfig
from octavo.scheduler.output import RunnerOutput, SchedulerOutput
from octavo.scheduler.scheduler import Scheduler

logger = logging.getLogger(__name__)


class EngineCore:
    """A loaded model, its KV pool and its scheduler. Used by one thread.

    With ``lag`` 1 a step's output is taken in after the next step was scheduled and run, as a device that overlaps steps needs;
    the results are the same.
    """

    def __init__(self, args: EngineArgs, *, earlier_phases: Mapping[str, float] | None = None, lag: int = 0) -> None:
        """Load the model. ``earlier_phases``: seconds that starting took before this call.

        Raises:
            InvalidRequestError, ModelFileError: naming what is wrong.
        """
        self.args = args
        self._lag = lag
        self._in_flight: deque[tuple[SchedulerOutput, RunnerOutput]] = deque()
        self._refused: list[EngineCoreOutput] = []
        self._step_end: float | None = None
        self._made: tuple[SchedulerOutput, RunnerOutput, StepTimes, float]
        self._closed = False
        self._clock = StepClock()
        self._kv_writes: KVWrites | None = None
        phases = _Phases(earlier_phases or {})
        with phases.measure("import"):
            runner_class = load_runner_class(args.runner_cls)
        with phases.measure("load"):
            self.runner: Runner = runner_class(args)
        runner_info = self.runner.info()
        self._eos_token_ids = runner_info.eos_token_ids
        self._windows = [group.window for group in runner_info.groups]
        phases.split("load", runner_info.load_phases)
        with phases.measure("allocate KV"):
            max_tokens_in_flight = (1 + lag) * args.max_num_batched_tokens
            plan = plan_pool(args, runner_info, max_tokens_in_flight)
            try:
                self.runner.allocate_kv(plan.num_blocks)
            except MemoryError:
                raise plan.too_large(args) from None
            self.kv = _kv_manager(args, runner_info, plan, max_tokens_in_flight)
            self.scheduler = Scheduler(SchedulerConfig.from_args(args, plan.max_model_len), self.kv)
        self._paced = args.itl_slo_ms is not None or args.ttft_slo_ms is not None
        if self._paced:
            with phases.measure("calibrate"):
                scheduler = self.scheduler
                calibrate(scheduler.pacer.cost, self.runner, self.kv, scheduler.config, runner_info.vocab_size)
        self.info = _describe(args, runner_info, plan, phases)
        self._resources_at_ready = self.runner.resources()
        self._log = StepLog(self.scheduler, self._resources_at_ready.allocations)

    @property
    def has_unfinished_requests(self) -> bool:
        """Whether another step has something to do, or to report."""
        return self.scheduler.has_work() or bool(self._in_flight) or bool(self._refused)

    def add_request(self, request: EngineCoreRequest) -> None:
        """Queue a request. One that could never run is refused at once: the next step reports its error."""
        self._clock.woken()
        try:
            self.scheduler.add_request(Request(request, self._eos_token_ids))
        except InvalidRequestError as error:
            self._refused.append(EngineCoreOutput(request.request_id, [], finish_reason=FinishReason.ERROR, error=str(error)))

    def abort(self, request_ids: list[str]) -> None:
        """Drop requests, in whatever state; their blocks are free at once. Unknown ids are ignored."""
        self.scheduler.abort(request_ids)

    def step(self) -> EngineCoreOutputs:
        """Advance every scheduled request by its tokens."""
        outputs = self.advance()
        self.account()
        return outputs

    def advance(self) -> EngineCoreOutputs:
        """A step without its accounts, so that its tokens can go their way first: ``account`` must follow."""
        self._clock.begin()
        scheduled = self.scheduler.schedule()
        self._clock.planned()
        executed = self.runner.execute(scheduled)
        self._kv_writes = executed.kv_writes or self._kv_writes
        self._in_flight.append((scheduled, executed))
        lag = self._lag if scheduled.num_scheduled_tokens else 0
        outputs, self._refused = self._refused, []
        while len(self._in_flight) > lag:
            outputs += self.scheduler.update_from_output(*self._in_flight.popleft())
        self._made = scheduled, executed, self._clock.end(executed, self.has_unfinished_requests), time.time()
        return EngineCoreOutputs(outputs)

    def account(self) -> None:
        """Enter the step that ``advance`` made into the log, and let the pacer learn of it."""
        start = time.perf_counter()
        scheduled, executed, times, now = self._made
        self._observe(scheduled, times.seconds)
        demand = step_demand(scheduled, self._windows)
        record = self._log.add(scheduled, len(executed.sampled), demand, times, now, self.runner.resources().allocations)
        record.account_seconds = time.perf_counter() - start
        self._clock.accounted(record.account_seconds)

    def _observe(self, scheduled: SchedulerOutput, seconds: float) -> None:
        """The pacer learns what passes between the ends of two steps: a decoding request waits for all of it."""
        if self._paced:
            end = time.perf_counter()
            self.scheduler.pacer.observe(scheduled.work, seconds if self._step_end is None else end - self._step_end)
            self._step_end = end if self.has_unfinished_requests else None

    def stats(self) -> EngineStats:
        """The engine as it stands."""
        stats = self.scheduler.stats()
        self._clock.tell(stats)
        stats.kv_writes = self._kv_writes
        stats.resources, stats.resources_at_ready = self.runner.resources(), self._resources_at_ready
        return stats

    def kv_usage(self) -> dict[str, Any]:
        """The KV pool as it stands, and the last steps; see octavo.engine.kv_report, also for how blocks are given. O(pool)."""
        return kv_report(self.kv, self.args.kv_policies(), self.scheduler.waiting.peek(), self._log, self._kv_writes)

    def steps(self, after: int | None = None) -> dict[str, Any]:
        """Steps after number ``after`` (octavo.engine.step_log, StepLog.after), and ``now``: this clock's seconds since the epoch."""
        return {"now": time.time(), **self._log.after(after)}

    def reset_prefix_cache(self) -> int:
        """Forget all cached blocks, and say how many; running requests keep what they hold."""
        return self.kv.reset_prefix_cache()

    def check_integrity(self) -> None:
        """Raise AssertionError if the books of an idle engine do not balance."""
        self.scheduler.check_integrity()

    def close(self) -> None:
        """Put what the prefix cache holds on disk, if it has a place there, and free the model's memory and threads. Idempotent."""
        if not self._closed and self.kv.disk is not None:
            self._spill(self.kv.disk)
        self._closed = True
        self.runner.close()

    def _spill(self, disk: DiskTier) -> None:
        deadline = time.monotonic() + SPILL_SECONDS
        try:
            for transfers in self.kv.spill_cached(deadline):
                self.runner.execute(SchedulerOutput(0, transfers=list(transfers)))
        except Exception:
            logger.exception("not all of the prefix cache could be put on disk")
        disk.close(deadline)


def _kv_manager(args: EngineArgs, runner: RunnerInfo, plan: PoolPlan, max_tokens_in_flight: int) -> KVCacheManager:
    return KVCacheManager(
        runner.groups,
        plan.num_blocks,
        args.block_size,
        args.kv_policies(),
        runner.numerics_id,
        args.max_num_seqs,
        plan.max_model_len,
        swap_bytes=int(args.swap_space * 2**30) if args.preemption_mode == "swap" else 0,
        compaction_blocks=args.kv_compaction_blocks if args.kv_compaction else 0,
        disk=_disk_tier(args, runner),
        max_tokens_in_flight=max_tokens_in_flight,
    )


def _disk_tier(args: EngineArgs, runner: RunnerInfo) -> DiskTier | None:
    if args.prefix_cache_dir is None:
        return None
    capacity, needed = int(args.prefix_cache_disk_gb * 1e9), sum(HEADER_BYTES + group.bytes_per_block for group in runner.groups)
    if capacity < needed:
        raise InvalidRequestError(
            f"prefix_cache_disk_gb = {args.prefix_cache_disk_gb}: the files of one KV block of {args.block_size} tokens "
            f"take {needed:,} bytes",
            field="prefix_cache_disk_gb",
        )
    files = BlockFiles(args.prefix_cache_dir, runner.numerics_id, capacity)
    return DiskTier(files, runner.groups, args.block_size)


def load_runner_class(path: str) -> type[Runner]:
    """The class that ``module:name`` names. Raises InvalidRequestError if there is none."""
    module, _, name = path.partition(":")
    try:
        found: type[Runner] = getattr(importlib.import_module(module), name)
        if not isinstance(found, type):
            raise TypeError(f"{name} is no class")
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise InvalidRequestError(f"runner_cls = {path!r}: it must name a class as module:name ({error})", field="runner_cls") from error
    return found


class _Phases:
    """Seconds per phase of starting, without gaps between the phases."""

    def __init__(self, earlier: Mapping[str, float]) -> None:
        self.seconds = dict(earlier)
        self._start = time.perf_counter() - sum(earlier.values())

    @contextlib.contextmanager
    def measure(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - start

    def split(self, name: str, parts: Mapping[str, float]) -> None:
        """Replace a phase by its parts, and what they leave."""
        rest = self.seconds.pop(name) - sum(parts.values())
        self.seconds |= {**parts, f"{name}, other": max(rest, 0.0)}

    @property
    def total(self) -> float:
        return time.perf_counter() - self._start


def _describe(args: EngineArgs, runner: RunnerInfo, plan: PoolPlan, phases: _Phases) -> EngineInfo:
    return EngineInfo(
        model=args.model,
        max_model_len=plan.max_model_len,
        max_num_seqs=args.max_num_seqs,
        max_logprobs=args.max_logprobs,
        vocab_size=runner.vocab_size,
        eos_token_ids=list(runner.eos_token_ids),
        numerics_id=runner.numerics_id,
        block_size=args.block_size,
        num_blocks=plan.num_blocks,
        kv_groups=[group.name for group in runner.groups],
        kv_windows=[group.window for group in runner.groups],
        kv_bytes_per_token=sum(group.bytes_per_block for group in runner.groups) / args.block_size,
        pool_tokens=plan.tokens,
        pool_bytes=plan.nbytes,
        isa=runner.isa,
        num_threads=runner.num_threads,
        arithmetic=list(runner.arithmetic),
        kv_cache_dtype=runner.kv_cache_dtype,
        kv_scales=runner.kv_scales,
        phases=phases.seconds,
        start_seconds=phases.total,
        details=runner.details,
    )
