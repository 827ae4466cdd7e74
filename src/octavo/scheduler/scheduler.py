"""The scheduler: which tokens run next."""

from __future__ import annotations

import bisect
import time
from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from octavo.kv.guard import PolicyError
from octavo.kv.kv_cache_manager import KVCacheManager
from octavo.kv.prefix_hit import PrefixHit
from octavo.outputs import EngineCoreOutput, EngineStats, FinishReason
from octavo.request import Request, RequestStatus
from octavo.scheduler.books import check_books
from octavo.scheduler.config import SchedulerConfig
from octavo.scheduler.deadlines import Deadlines
from octavo.scheduler.output import MovedBlocks, RunnerOutput, SchedulerOutput
from octavo.scheduler.pacer import Pacer, is_decode
from octavo.scheduler.preemption_log import PreemptionLog
from octavo.scheduler.queue import RequestQueue
from octavo.scheduler.request_check import check_request
from octavo.scheduler.step import Step, WaitReason
from octavo.scheduler.stops import Stop, stop_after, tell_end
from octavo.scheduler.totals import Totals
from octavo.scheduler.victims import VictimChooser
from octavo.scheduler.wait_estimate import WaitEstimate


class Scheduler:
    """Hands out each step's tokens and KV blocks.

    ``schedule`` and ``update_from_output`` alternate; updates may come late, in the order of their steps. Every SchedulerOutput goes
    to the runner, one of no tokens too (it may still remove requests), and its RunnerOutput comes back.

    Blocks go back to the pool the moment a request ends or is preempted, even if a step in flight still writes to them. That is safe
    because the runner executes steps in order: whoever gets such a block writes it in a later step, reads only what it wrote itself,
    and the block was not shared, since only blocks confirmed by ``mark_computed`` are.

    Preemption cannot thrash: octavo.scheduler.victims says why.
    """

    def __init__(self, config: SchedulerConfig, kv: KVCacheManager, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock``: what requests' arrival times and deadlines are on."""
        self.config = config
        self.kv = kv
        self.requests: dict[str, Request] = {}
        """Every request that has not ended."""
        self.waiting = RequestQueue(config.scheduling_policy)
        self.running: list[Request] = []
        """In order of rank."""
        self.pacer = Pacer(config.itl_limit)
        self._clock = clock
        self._victims = VictimChooser(config.preemption_victim, kv)
        self._log = PreemptionLog(clock)
        self._deadlines = Deadlines()
        self._wait = WaitEstimate(self.pacer, config.max_num_batched_tokens)
        self._steps_in_flight: deque[tuple[int, list[tuple[Request, int]]]] = deque()
        self._removed: list[str] = []
        self._outbox: list[EngineCoreOutput] = []  # ends that no step brought about
        self.totals = Totals()
        self._num_started = 0
        self._num_planned = 0
        self._blocked: WaitReason | None = None
        """Why the head of the queue did not start in the last step."""

    # Requests come and go

    def add_request(self, request: Request) -> None:
        """Queue a request, fresh or with output already.

        Raises:
            InvalidRequestError: if it could never run: it names the field, its value and the limit.
        """
        request.max_num_tokens = min(request.max_num_tokens, self.config.max_model_len)
        self.totals.stats.added += 1
        check_request(request, self.requests, self.config.max_model_len, self.kv)
        request.arrival_index = self.totals.stats.added
        request.waiting_since = self._clock()
        self.requests[request.request_id] = request
        self.waiting.add(request)
        self._deadlines.add(request)

    def abort(self, request_ids: Iterable[str]) -> None:
        """End requests without an output; their blocks go back at once. Ids that have ended, or never were, are ignored."""
        for request_id in request_ids:
            if (request := self.requests.get(request_id)) is not None:
                self._end(request, Stop(FinishReason.ABORT))

    def has_work(self) -> bool:
        """Whether a request has not ended, or its end has not been told."""
        return bool(self.requests or self._outbox)

    # The step

    def schedule(self) -> SchedulerOutput:
        """Plan a step. A policy that fails ends the request that it failed to serve; any other exception takes back every block that the
        step took.

        The one rule: a request has num_computed_tokens, and a step brings them towards num_tokens (with those that steps in flight will
        sample), as far as budget and blocks go. A prompt, a chunk of it, a decode, what is recomputed after a preemption and
        what a drafter added are all such tokens. The budget goes in order of rank: a class before the next, and in a class the running,
        by seniority, before the waiting. Under a limit on the time between tokens, what is no decode gets no more than the pacer lets it.
        """
        self._expire()
        self._num_planned += 1
        plan = self.pacer.plan(self.running, self.waiting.num_prompt_tokens)
        step = Step(SchedulerOutput(self._num_planned), self.config.max_num_batched_tokens, plan)
        try:
            while step.budget > 0 and (request := self._next(step)) is not None:
                try:
                    if request.status is RequestStatus.RUNNING:
                        self._advance(request, step)
                    else:
                        self._start(request, step)
                except PolicyError as error:
                    self._fail(request, step, error)
        except BaseException:
            self._roll_back(step)
            raise
        return self._commit(step)

    def _next(self, step: Step) -> Request | None:
        """Whose turn it is."""
        head = self.waiting.peek() if step.blocked is None else None
        if step.position < len(self.running):
            request = self.running[step.position]
            if head is None or request.service_class <= head.service_class:
                step.position += 1
                return request
        return head

    def _advance(self, request: Request, step: Step) -> None:
        """Give a running request its tokens, taking blocks from its juniors if need be.

        The most junior one takes from nobody: it keeps what it has and waits. That holds up no senior, who may take it away.
        """
        count = min(request.num_uncomputed_tokens, step.budget)
        if count > 0 and not is_decode(request):
            count = step.plan.prefill_tokens(request.num_computed_tokens, count, step.budget)
        if count <= 0:
            return  # all its tokens are in flight, or the step holds enough prefill
        while (growth := self.kv.allocate_slots(request, count)) is None:
            if step.position == len(self.running):
                step.hold(WaitReason.BLOCKS)
                if not step.ends and len(self.running) == 1:
                    self._give_up(request)
                return
            self._preempt(step, self.kv.blocks_wanted(request, request.num_computed_tokens + count))
        step.advance(request, count, growth)

    def _start(self, request: Request, step: Step) -> None:
        """Let the head of the queue start, or resume, if it can: with a seat, its whole prefill's blocks, and tokens of the budget."""
        if request.in_flight:
            return step.hold(WaitReason.IN_FLIGHT)  # preempted a moment ago: what its last steps sampled is not known yet
        if not (self._has_seat(step) or step.position < len(self.running)):
            return step.hold(WaitReason.SEATS)
        hit = self.kv.get_computed_blocks(request)
        if hit is None:
            return step.hold(WaitReason.DISK)
        count = request.num_tokens - hit.num_tokens
        if count > step.budget:
            if not self.config.enable_chunked_prefill:
                return step.hold(WaitReason.TOKENS)
            count = step.budget
        while not step.plan.may_start(request) and step.position < len(self.running):
            self._preempt(step, 0)
        count = step.plan.prefill_tokens(hit.num_tokens, count, step.budget) if step.plan.may_start(request) else 0
        if not count:
            return step.hold(WaitReason.PACE)
        if not self._make_room(request, hit, step):
            return step.hold(self._shortage(request, step))
        growth = self.kv.allocate_slots(request, count, hit)
        if growth is None:
            return step.hold(self._shortage(request, step))
        self.waiting.pop()
        step.start(request, count, hit, growth)

    def _shortage(self, request: Request, step: Step) -> WaitReason:
        """What the head of the queue lacks, when there is no room for it."""
        if not self._has_seat(step):
            return WaitReason.SEATS
        return WaitReason.RUN if self.kv.lacks_run(request) else WaitReason.BLOCKS

    def _fail(self, request: Request, step: Step, error: PolicyError) -> None:
        """End the request that a plugin failed to serve; the step goes on without it."""
        if request.status is RequestStatus.RUNNING:
            step.position -= 1
        self._outbox.append(self._end(request, Stop(FinishReason.ERROR), error=str(error)))
        self.kv.recover(error)

    def _has_seat(self, step: Step) -> bool:
        return len(self.running) + len(step.starts) < self.config.max_num_seqs

    def _make_room(self, request: Request, hit: PrefixHit, step: Step) -> bool:
        """Whether there are a seat and blocks for the head of the queue, after preempting running requests if that helps.

        Those that have not had their turn when the head has its own are all of a class served later: see _next.
        """
        later = self.running[step.position :]
        if later and not self.kv.can_start(request, hit, without=later):
            return False
        while not (self._has_seat(step) and self.kv.can_start(request, hit)):
            if step.position == len(self.running):
                return False
            self._preempt(step, self.kv.blocks_wanted(request, request.num_tokens, hit) if self._has_seat(step) else 0)
        return True

    def _preempt(self, step: Step, needed: int) -> None:
        """Take all blocks from one of the running that have not had their turn, for a request that needs ``needed`` more.

        What it has computed is kept in the swap space, if there is room, and else computed again when it resumes.
        """
        request = self._victims.choose(self.running[step.position :], needed)
        before = self.kv.usage().as_dict()["held_of_total"]
        step.plan.leave(request)
        self._leave(request)
        kept = self.kv.preempt(request)
        self._log.preempted(request.request_id, request.num_computed_tokens, kept, before, self.kv.usage().as_dict()["held_of_total"])
        request.status = RequestStatus.PREEMPTED
        request.num_preemptions += 1
        request.num_tokens_before_preemption = max(request.num_tokens_before_preemption, request.num_computed_tokens)
        request.num_computed_tokens = 0
        request.waiting_since = self._clock()
        self.waiting.add(request)
        self._removed.append(request.request_id)
        self.totals.stats.preemptions += 1

    def _roll_back(self, step: Step) -> None:
        step.roll_back_growths()
        for request, _ in step.starts:
            self.waiting.add(request)

    def _commit(self, step: Step) -> SchedulerOutput:
        """Make the step real: requests and queues learn of it."""
        step.commit_growths()
        self._blocked = step.blocked or (WaitReason.TOKENS if len(self.waiting) else None)
        for request, hit in step.starts:
            self._enter(request, hit)
        for request, end in step.ends:
            self.totals.planned(request, end)
            request.num_computed_tokens = end
            request.in_flight.append(end)
            if end == request.num_tokens + request.num_output_placeholders:
                request.num_output_placeholders += 1
        output = step.output
        output.removed_request_ids, self._removed = self._removed, []
        self._compact(step)
        output.transfers = self.kv.take_transfers()
        output.work = step.plan.work
        self._steps_in_flight.append((output.step_id, step.ends))
        return output

    def _compact(self, step: Step) -> None:
        """Where the head of the queue lacks a run, move blocks towards one: after all that the step takes, so it moves what it has now."""
        head = self.waiting.peek() if step.blocked is WaitReason.RUN else None
        for group, move in self.kv.compact(head):
            step.output.moved.append(MovedBlocks(move.owner, group, move.first, move.dst))
            self.totals.stats.kv_moved_blocks += len(move.dst)

    def _enter(self, request: Request, hit: PrefixHit) -> None:
        """A request joins the running; the first time, what it found in the cache counts as a hit."""
        if not request.seniority:
            self._num_started += 1
            request.seniority = self._num_started
            request.scheduled_time = self._clock()
            self.totals.started(request, hit.num_tokens, self.kv.caches)
        self.kv.started(request, hit)
        request.status = RequestStatus.RUNNING
        request.num_computed_tokens = hit.num_tokens
        bisect.insort(self.running, request, key=_rank)

    # What the step brought

    def update_from_output(self, scheduled: SchedulerOutput, output: RunnerOutput) -> list[EngineCoreOutput]:
        """Take in the oldest step in flight: new tokens, stops, errors. What was scheduled for a request that has ended is dropped.

        Raises:
            ValueError: if another step's turn it is.
        """
        step_id, ends = self._steps_in_flight[0] if self._steps_in_flight else (0, [])
        if not step_id == scheduled.step_id == output.step_id:
            raise ValueError(f"step {output.step_id} came back as {scheduled.step_id}, but step {step_id} is next")
        self._steps_in_flight.popleft()
        outputs, self._outbox = self._outbox, []
        for request, end in ends:
            if request.status is not RequestStatus.FINISHED:
                result = self._apply(request, end, output)
                if result is not None:
                    outputs.append(result)
        totals = self.totals.stats
        totals.steps += 1
        totals.native_seconds += output.native_seconds
        return outputs

    def _apply(self, request: Request, end: int, output: RunnerOutput) -> EngineCoreOutput | None:
        """One request's share of a step; ``end`` is its num_computed_tokens after the step."""
        request_id = request.request_id
        request.in_flight.popleft()
        if output.errors and (error := output.errors.get(request_id)) is not None:
            return self._end(request, Stop(FinishReason.ERROR), error=error)
        token_ids = output.sampled.get(request_id, [])
        if bool(token_ids) != (end == request.num_tokens):
            error = f"the runner returned {len(token_ids)} tokens at {end} of {request.num_tokens} tokens computed"
            return self._end(request, Stop(FinishReason.ERROR), error=error)
        if request.status is RequestStatus.RUNNING:
            try:
                self.kv.mark_computed(request, end)
            except PolicyError as policy_error:
                result = self._end(request, Stop(FinishReason.ERROR), error=str(policy_error))
                self.kv.recover(policy_error)
                return result
        if request.num_prompt_tokens_done < request.num_prompt_tokens:
            self.totals.prompt(request, end)
        prompt_logprobs = output.prompt_logprobs.get(request_id) if output.prompt_logprobs else None
        if prompt_logprobs:
            request.num_prompt_logprobs_sent += len(prompt_logprobs)
        if not token_ids and not prompt_logprobs:
            return None
        kept, stop = self._append(request, token_ids) if token_ids else (0, None)
        result = EngineCoreOutput(
            request_id, token_ids[:kept], new_prompt_logprobs=prompt_logprobs, num_cached_tokens=request.num_cached_tokens
        )
        if output.logprobs and (logprobs := output.logprobs.get(request_id)) is not None:
            result.new_logprobs = logprobs[:kept]
        return result if stop is None else self._end(request, stop, result)

    def _append(self, request: Request, token_ids: list[int]) -> tuple[int, Stop | None]:
        """Add sampled ids up to the first stop: how many were kept, and the stop."""
        for token_id in token_ids:
            request.append_output(token_id)
        kept, stop = stop_after(request, len(token_ids))
        self.totals.stats.generation_tokens += kept
        if request.first_token_time is None:
            request.first_token_time = self._clock()
        if len(token_ids) > 1:
            request.recount_placeholders()
        else:
            request.num_output_placeholders -= 1
        return kept, stop

    def _expire(self) -> None:
        """End the requests whose deadline has passed."""
        for request in self._deadlines.pass_by(self._clock()):
            self._outbox.append(self._end(request, Stop(FinishReason.TIMEOUT)))

    def _give_up(self, request: Request) -> None:
        """Even alone it gets no blocks, which no placement that keeps its contract brings about: it fails rather than wait for ever."""
        error = f"the KV pool refused blocks to the only running request, which holds {request.num_computed_tokens} tokens"
        self._outbox.append(self._end(request, Stop(FinishReason.ERROR), error=error))

    def _end(self, request: Request, stop: Stop, result: EngineCoreOutput | None = None, error: str | None = None) -> EngineCoreOutput:
        """Take the request out and give its blocks back; ``result`` (or a new one) becomes its last message."""
        if request.status is RequestStatus.RUNNING:
            self._leave(request)
            self._removed.append(request.request_id)
            self._wait.ended(self._clock(), busy=len(self.waiting) > 0)
        else:
            self.waiting.remove(request)
        self.kv.free(request)
        if stop.reason in (FinishReason.STOP, FinishReason.LENGTH):
            self.kv.finished(request)
        del self.requests[request.request_id]
        request.status = RequestStatus.FINISHED
        request.finish_reason, request.stop_reason = stop
        return tell_end(request, stop, result, error, self._clock())

    def _leave(self, request: Request) -> None:
        del self.running[bisect.bisect_left(self.running, request.rank, key=_rank)]

    # What is going on

    @property
    def waiting_reason(self) -> str:
        """Of EngineStats."""
        return self._blocked if self._blocked and len(self.waiting) else ""

    def stats(self) -> EngineStats:
        """Gauges as they stand, and totals since the start; all but step_seconds, which only the engine knows."""
        longest = self.waiting.longest_waiting()
        return msgspec.structs.replace(
            self.totals.stats,
            running=len(self.running),
            waiting=len(self.waiting),
            oldest_waiting_s=max(self._clock() - longest.waiting_since, 0.0) if longest else 0.0,
            waiting_reason=self.waiting_reason,
            kv=self.kv.usage(self.waiting.peek()).as_dict(),
            **self.kv.swap.stats(),
            **(self.kv.disk.stats() if self.kv.disk else {}),
            **self.pacer.stats(),
            **(self._wait.stats(self.waiting, self.running, self._blocked) if self.config.ttft_limit else {}),
        )

    def check_integrity(self) -> None:
        """Recount everything, the KV pools included. Raises AssertionError if anything differs."""
        check_books(self.config, self.kv, self.requests, self.waiting, self.running)


def _rank(request: Request) -> tuple[int, int]:
    return request.rank
