"""The last steps, for people who want to see what an engine does, and for a benchmark that asks why a token was late."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec

from octavo.engine.step_clock import StepTimes
from octavo.engine.step_demand import StepDemand
from octavo.kv.transfers import LoadBlocks, SaveBlocks, Transfer
from octavo.kv.usage import KVUsage
from octavo.scheduler.output import SchedulerOutput
from octavo.scheduler.scheduler import Scheduler

LENGTH = 512
"""Steps remembered with what the KV pool held."""
LONG_LENGTH = 16_384
"""Steps remembered as a StepRecord: minutes, at a few milliseconds a step; about 8 MB."""
MOST_AT_ONCE = 4096
"""Steps that one answer brings."""


class StepRecord(msgspec.Struct, gc=False, kw_only=True):
    """One step, and the engine after it: plain numbers."""

    step: int
    """Counted from 1."""
    time: float
    """Its end, in seconds since the epoch."""
    seconds: float
    """How long it took. Of it:"""
    schedule_seconds: float = 0.0
    """planning;"""
    transfer_seconds: float = 0.0
    """moving KV blocks (swap space, disk, compaction);"""
    native_seconds: float = 0.0
    """in native code;"""
    gc_seconds: float = 0.0
    """in Python's garbage collector."""
    account_seconds: float = 0.0
    """After it: entering it here, and what the pacer learns of it."""
    idle_before: float = 0.0
    """Of the time since the step before: seconds without a request,"""
    gc_before: float = 0.0
    """and in the garbage collector."""
    tokens: int = 0
    """Tokens computed."""
    prefill_tokens: int = 0
    """Of them, in chunks of more than one, of ``prefills`` requests."""
    prefills: int = 0
    decodes: int = 0
    """Requests that computed one token."""
    sampled: int = 0
    """Requests that got a token."""
    recomputed_tokens: int = 0
    """Computed again after a preemption."""
    attended: tuple[int, ...] = ()
    """By layer group: pairs of a token and a position it attends to."""
    kv_reads: tuple[int, ...] = ()
    """By layer group: positions whose K and V are read, once a request."""
    running: int = 0
    waiting: int = 0
    waiting_reason: str = ""
    """Why the head of the queue did not start."""
    preemptions: int = 0
    """Of this step."""
    allocations: int = 0
    """Times that the process took native memory from the system, or it grew."""
    moved_blocks: int = 0
    """By compaction, before this step."""
    saved_blocks: int = 0
    """To the swap space or the disk."""
    loaded_blocks: int = 0
    """From there."""
    swapped_blocks: int = 0
    """Of those saved and loaded, the swap space's."""
    kv_held_bytes: int = 0
    kv_live_bytes: int = 0
    kv_usage: float = 0.0
    """held / total, in bytes."""
    fragmentation: float = 0.0
    """Of the group that is worst off."""


class StepLog:
    """Ring buffers of a scheduler's steps. It is kept at every step, so what is seldom asked for is worked out when it is."""

    def __init__(self, scheduler: Scheduler, allocations: int) -> None:
        """``allocations``: that the process has made before its first step."""
        self._scheduler = scheduler
        self._records: deque[StepRecord] = deque(maxlen=LONG_LENGTH)
        self._usages: deque[KVUsage] = deque(maxlen=LENGTH)
        """After each of the last records."""
        self._before = _Totals(allocations=allocations)

    def add(self, made: SchedulerOutput, sampled: int, demand: StepDemand, times: StepTimes, time: float, allocations: int) -> StepRecord:
        """The step ``made`` has come back, and the scheduler stands as it left it; ``allocations``: of the process, since its start."""
        scheduler, before = self._scheduler, self._before
        counted, usage = scheduler.totals.stats, scheduler.kv.usage(scheduler.waiting.peek())
        held, live, total = usage.held_live_total()
        record = StepRecord(
            step=made.step_id,
            time=time,
            seconds=times.seconds,
            schedule_seconds=times.schedule_seconds,
            transfer_seconds=times.transfer_seconds,
            native_seconds=times.native_seconds,
            gc_seconds=times.gc_seconds,
            idle_before=times.idle_before,
            gc_before=times.gc_before,
            tokens=demand.tokens,
            prefill_tokens=demand.prefill_tokens,
            prefills=demand.prefills,
            decodes=demand.decodes,
            sampled=sampled,
            recomputed_tokens=counted.recomputed_tokens - before.recomputed_tokens,
            attended=demand.attended,
            kv_reads=demand.kv_reads,
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
            waiting_reason=scheduler.waiting_reason,
            preemptions=counted.preemptions - before.preemptions,
            allocations=allocations - before.allocations,
            kv_held_bytes=held,
            kv_live_bytes=live,
            kv_usage=held / total,
            fragmentation=usage.fragmentation,
        )
        swapped = scheduler.kv.swap.blocks_in + scheduler.kv.swap.blocks_out
        if made.transfers:
            _count_blocks(record, made.transfers)
            record.swapped_blocks = swapped - before.swapped_blocks
        self._records.append(record)
        self._usages.append(usage)
        before.preemptions, before.recomputed_tokens = counted.preemptions, counted.recomputed_tokens
        before.allocations, before.swapped_blocks = allocations, swapped
        return record

    def after(self, step: int | None) -> dict[str, Any]:
        """Steps after number ``step``, oldest first, MOST_AT_ONCE at most; None: no steps.

        ``last``: the number of the last step that there is. ``lost``: how many after ``step`` are remembered no more.
        """
        records = self._records
        last = records[-1].step if records else 0
        if step is None or step >= last:
            return {"last": last, "lost": 0, "steps": []}
        first = max(step + 1, records[0].step)
        start = first - records[0].step
        found = [records[i] for i in range(start, min(start + MOST_AT_ONCE, len(records)))]
        return {"last": last, "lost": first - step - 1, "steps": found}

    def as_list(self) -> list[dict[str, Any]]:
        """The last LENGTH steps as plain numbers, oldest first. ``kv_bytes``: held, live, tail, reserved, stale, cached, free and external,
        over all groups; ``fragmentation``: of the group that is worst off."""
        start = len(self._records) - len(self._usages)
        return [_as_dict(self._records[start + i], usage) for i, usage in enumerate(self._usages)]


class _Totals(msgspec.Struct, gc=False):
    """Counters as the last step left them."""

    allocations: int = 0
    preemptions: int = 0
    recomputed_tokens: int = 0
    swapped_blocks: int = 0


def _count_blocks(record: StepRecord, transfers: Sequence[Transfer]) -> None:
    for transfer in transfers:
        if isinstance(transfer, SaveBlocks):
            record.saved_blocks += len(transfer.blocks)
        elif isinstance(transfer, LoadBlocks):
            record.loaded_blocks += len(transfer.blocks)
        else:
            record.moved_blocks += len(transfer.dst)


def _as_dict(record: StepRecord, usage: KVUsage) -> dict[str, Any]:
    nbytes = [group.bytes_by_place() for group in usage.groups]
    return {
        "step": record.step,
        "time": record.time,
        "seconds": record.seconds,
        "tokens": record.tokens,
        "running": record.running,
        "waiting": record.waiting,
        "preemptions": record.preemptions,
        "moved_blocks": record.moved_blocks,
        "kv_bytes": {name: sum(group[name] for group in nbytes) for name in nbytes[0] if name != "total"},
        "fragmentation": record.fragmentation,
    }
