"""AsyncLLMEngine: many requests at once from asyncio, on an engine in a process of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Any

from octavo.config import EngineArgs
from octavo.engine.client import STALL_SECONDS, EngineState, Health
from octavo.engine.info import EngineInfo
from octavo.engine.kv_report import with_lists
from octavo.engine.logs import show_logs
from octavo.engine.memory import peak_memory
from octavo.engine.output_processor import OutputKind, OutputProcessor, RequestState
from octavo.engine.processor import InputProcessor, PreparedRequest, Prompt, load_model_tokenizer
from octavo.engine.remote import EngineProcess
from octavo.errors import EngineDeadError, OctavoError, RequestFailedError
from octavo.outputs import EngineStats, RequestOutput
from octavo.sampling_params import SamplingParams
from octavo.tokenizer.tokenizer import Tokenizer
from octavo.weights import hub

logger = logging.getLogger(__name__)


class AsyncLLMEngine:
    """Serves requests concurrently. All its methods belong to one event loop, the one that first generates."""

    def __init__(self, process: EngineProcess, tokenizer: Tokenizer | None = None) -> None:
        """Take over a launched engine; blocks until it is ready.

        A server launches the process first, imports and loads what it needs meanwhile, and then comes here.

        Raises:
            InvalidRequestError, ModelFileError, EngineDeadError: see EngineProcess.wait_ready.
        """
        self._process = process
        try:
            self.tokenizer = tokenizer if tokenizer is not None else load_model_tokenizer(process.args)
        except OctavoError:
            process.shutdown()
            raise
        info = process.wait_ready()
        show_logs()
        for line in info.describe():
            logger.info(line)
        self._inputs = InputProcessor(self.tokenizer, info, process.args.seed)
        self._outputs = OutputProcessor(self.tokenizer)
        self._changed: dict[str, asyncio.Event] = {}
        self._pump: asyncio.Task[None] | None = None
        self._dead: EngineDeadError | None = None

    @classmethod
    def from_engine_args(cls, args: EngineArgs) -> AsyncLLMEngine:
        """Fetch the model if need be, start an engine process and wait until it is ready."""
        hub.resolve(args.model)
        return cls(EngineProcess.launch(args))

    @property
    def args(self) -> EngineArgs:
        return self._process.args

    @property
    def info(self) -> EngineInfo:
        """Facts about the model and the KV pool."""
        return self._process.info

    @property
    def stats(self) -> EngineStats:
        """The engine after its last step, or answer."""
        return self._process.stats

    @property
    def unseen(self) -> Sequence[int]:
        """Prompt tokens of each sequence sent that ``stats`` does not know of yet."""
        return self._process.unseen

    def get_tokenizer(self) -> Tokenizer:
        return self.tokenizer

    async def generate(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        request_id: str = "",
        *,
        priority: int = 0,
        cache_salt: str | None = None,
        output_kind: OutputKind | str = OutputKind.CUMULATIVE,
    ) -> AsyncGenerator[RequestOutput, None]:
        """Generate for one prompt; ``prepare`` and then ``stream``.

        Args:
            prompt: a text, token ids, {"prompt": text} or {"prompt_token_ids": ids}.
            request_id: unique among the requests in flight; empty: one is made up.
            priority: lower is served first, under scheduling_policy="priority".
            cache_salt: prefix-cache blocks are shared only between requests of the same salt.
            output_kind: "cumulative": each output holds everything so far (as vLLM's); "delta": only what is new, and only the
                completions that have something new; "final": one output at the end.

        A consumer that is slow gets several steps' news in one output. Closing or cancelling the generator aborts the request
        within a step.

        Raises:
            InvalidRequestError: before anything is generated; see InputProcessor.prepare. Also if request_id is in flight.
            EngineDeadError: the engine ended.
            RequestFailedError: this request failed; the engine goes on.
        """
        prepared = await self.prepare(prompt, sampling_params, request_id, priority=priority, cache_salt=cache_salt)
        stream = self.stream(prepared, output_kind)
        try:
            async for output in stream:
                yield output
        finally:
            await stream.aclose()

    def check_text(self, text: str) -> None:
        """Refuse a prompt that is sure to be too long before it is tokenized. Raises InvalidRequestError."""
        self._inputs.check_text(text)

    async def prepare(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        request_id: str = "",
        *,
        priority: int = 0,
        cache_salt: str | None = None,
    ) -> PreparedRequest:
        """Tokenize (off the event loop) and check a request; nothing reaches the engine. Raises InvalidRequestError."""
        return await asyncio.to_thread(self._inputs.prepare, request_id, prompt, sampling_params, priority=priority, cache_salt=cache_salt)

    async def stream(
        self, prepared: PreparedRequest, output_kind: OutputKind | str = OutputKind.DELTA
    ) -> AsyncGenerator[RequestOutput, None]:
        """Serve a prepared request, once; see ``generate``.

        Of n completions each has its own finish_reason; the stream ends with the last.
        """
        kind = OutputKind(output_kind)
        self._start_pump()
        state = self._outputs.add(prepared)
        changed = self._changed[prepared.request_id] = asyncio.Event()
        try:
            for child in prepared.children:
                self._process.add(child)
            finished = False
            while not finished:
                await changed.wait()
                changed.clear()
                failure, finished = self._failure(state), state.finished
                output = state.take(kind)
                if output is not None and (failure is None or any(part.token_ids for part in output.outputs)):
                    yield output
                if failure is not None:
                    raise failure
        finally:
            self._changed.pop(prepared.request_id, None)
            if left := self._outputs.remove(state):
                self._process.abort(left)

    async def abort(self, request_id: str | Iterable[str]) -> None:
        """End requests with what they have: their streams get a last output with finish_reason "abort". Unknown ids are ignored."""
        states, to_abort = self._outputs.abort([request_id] if isinstance(request_id, str) else request_id)
        if to_abort:
            self._process.abort(to_abort)
        self._wake(states)

    async def kv_usage(self) -> dict[str, Any]:
        """The KV pool as it stands: what its slots hold, who has which block, and the last steps (octavo.engine.kv_report).

        Raises:
            EngineDeadError, EngineTimeoutError: see EngineProcess.ask.
        """
        self._start_pump()
        return with_lists(await self._process.ask("kv_usage"))

    async def steps(self, after: int | None = None) -> dict[str, Any]:
        """What each step did, of those after number ``after``, oldest first; None: none, but the last one's number (EngineCore.steps).

        Raises as ``kv_usage``.
        """
        self._start_pump()
        found: dict[str, Any] = await self._process.ask("steps", after)
        return found

    def peak_memory(self) -> int | None:
        """Bytes of the engine process's largest resident set; None where the system does not say."""
        return peak_memory(self._process.pid)

    async def reset_prefix_cache(self) -> int:
        """Forget all cached prefixes; returns how many blocks held them. Raises as ``kv_usage``."""
        self._start_pump()
        num_blocks: int = await self._process.ask("reset_prefix_cache")
        return num_blocks

    def health(self, stall_seconds: float = STALL_SECONDS) -> Health:
        """Dead, stuck, busy or idle, and how long ago the last step ended."""
        return self._process.health(stall_seconds)

    async def check_health(self) -> None:
        """Raise EngineDeadError if the engine is dead."""
        health = self.health()
        if health.state == EngineState.DEAD:
            raise EngineDeadError(health.reason)

    def shutdown(self) -> None:
        """End the engine process; requests in flight get EngineDeadError. Idempotent."""
        self._process.shutdown()
        self._die(EngineDeadError("the engine was shut down"))
        if self._pump is not None:
            self._pump.cancel()

    def _start_pump(self) -> None:
        if self._dead is not None:
            raise EngineDeadError(str(self._dead))
        if self._pump is None:
            self._pump = asyncio.get_running_loop().create_task(self._receive_steps(), name="engine-outputs")

    async def _receive_steps(self) -> None:
        try:
            while True:
                outputs = await self._process.receive()
                states, to_abort = self._outputs.process(outputs)
                if to_abort:
                    self._process.abort(to_abort)
                self._wake(states)
        except EngineDeadError as error:
            self._die(error)
        except Exception as error:
            logger.exception("the engine's outputs cannot be read")
            self._die(EngineDeadError(f"the engine's outputs cannot be read: {error}"))

    def _wake(self, states: Iterable[RequestState]) -> None:
        for state in states:
            if (changed := self._changed.get(state.prepared.request_id)) is not None:
                changed.set()

    def _die(self, error: EngineDeadError) -> None:
        self._dead = self._dead or error
        self._wake(self._outputs.states())

    def _failure(self, state: RequestState) -> OctavoError | None:
        if self._dead is not None and not state.finished:
            return EngineDeadError(str(self._dead))
        if state.error is not None:
            return RequestFailedError(f"request {state.prepared.request_id} failed: {state.error}")
        return None
