"""What the routes share: the engine, its name to the outside, and one way to run a request."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Protocol

from octavo.config import EngineArgs
from octavo.engine.client import EngineState, Health
from octavo.engine.info import EngineInfo
from octavo.engine.processor import PreparedRequest, Prompt
from octavo.errors import EngineDeadError, InvalidRequestError, OctavoError
from octavo.metrics.requests import RequestMetrics
from octavo.outputs import EngineStats, FinishReason, RequestOutput
from octavo.sampling_params import SamplingParams
from octavo.server.admission import Gate
from octavo.server.errors import ApiError
from octavo.server.settings import ServerSettings
from octavo.tokenizer.chat_template import ChatTemplate
from octavo.tokenizer.tokenizer import Tokenizer


class ServedEngine(Protocol):
    """What the server needs of octavo.engine.async_llm.AsyncLLMEngine."""

    tokenizer: Tokenizer

    @property
    def stats(self) -> EngineStats: ...

    @property
    def unseen(self) -> Sequence[int]: ...

    @property
    def args(self) -> EngineArgs: ...

    @property
    def info(self) -> EngineInfo: ...

    def check_text(self, text: str) -> None: ...

    async def prepare(
        self, prompt: Prompt, sampling_params: SamplingParams, request_id: str, *, priority: int, cache_salt: str | None
    ) -> PreparedRequest: ...

    def stream(self, prepared: PreparedRequest) -> AsyncGenerator[RequestOutput, None]: ...

    def health(self) -> Health: ...

    async def kv_usage(self) -> dict[str, Any]: ...

    async def steps(self, after: int | None) -> dict[str, Any]: ...

    def peak_memory(self) -> int | None: ...

    async def reset_prefix_cache(self) -> int: ...


class Serving:
    """One engine, offered under some names."""

    def __init__(self, engine: ServedEngine, settings: ServerSettings, metrics: RequestMetrics) -> None:
        self.engine = engine
        self.settings = settings
        self.metrics = metrics
        self.template = ChatTemplate.of(engine.tokenizer, settings.chat_template)
        self._gate = Gate(engine.args, lambda: engine.stats, lambda: engine.unseen)
        self.in_flight: set[str] = set()
        """Ids of the requests that the engine has."""
        self.started = int(time.time())

    def model_name(self, asked: str | None) -> str:
        """The name to answer with. Raises ApiError (404) for a model that is not served here."""
        names = self.settings.served_model_names
        if asked is None:
            return names[0]
        if asked not in names:
            raise ApiError(404, f"model = {asked:.100}: this server has {', '.join(names)}", param="model", code="model_not_found")
        return asked

    async def prepare(
        self,
        prompt: Prompt,
        params: SamplingParams,
        request_id: str,
        *,
        priority: int | None,
        cache_salt: str | None,
        timeout: float | None,
    ) -> PreparedRequest:
        """Check and tokenize one prompt, off the event loop. ``timeout``: seconds that it may take, if the client states any.

        Raises:
            InvalidRequestError: a prompt or parameters that the model cannot serve.
            EngineDeadError: there is nobody to serve it.
        """
        health = self.engine.health()
        if health.state == EngineState.DEAD:
            raise EngineDeadError(health.reason)
        if priority and self.engine.args.scheduling_policy != "priority":
            raise InvalidRequestError(
                f"priority = {priority}: this server takes requests in turn; --scheduling-policy priority makes it count", field="priority"
            )
        prepared = await self.engine.prepare(prompt, params, request_id, priority=priority or 0, cache_salt=cache_salt)
        limits = [seconds for seconds in (timeout, self.settings.request_timeout) if seconds is not None]
        for child in prepared.children if limits else ():
            child.deadline = child.arrival_time + min(limits)
        return prepared

    def admit(self, prepared: Sequence[PreparedRequest]) -> None:
        """Let a request's prompts in, all or none. Raises ApiError (429) when there is no room for them in time."""
        try:
            self._gate.admit(prepared)
        except ApiError as error:
            self.metrics.refused(str(error.code))
            raise

    async def stream(self, prepared: PreparedRequest, arrival: float, *, alone: bool = True) -> AsyncGenerator[RequestOutput, None]:
        """What is new, step by step, measured; ``arrival`` is a time of time.monotonic. Closing it aborts the request.

        ``alone``: there is no other prompt in the request; if its deadline passes before it has begun, that is an error.
        """
        timer = self.metrics.start(arrival, len(prepared.prompt_token_ids), prepared.params.n)
        stream = self.engine.stream(prepared)
        self.in_flight.add(prepared.request_id)
        try:
            async for output in stream:
                now = time.monotonic()
                for choice in output.outputs:
                    timer.tokens(now, choice.index, len(choice.token_ids))
                    if choice.finish_reason is not None:
                        timer.ended(choice.index, choice.finish_reason)
                if output.finished:
                    timer.finished(now, output.metrics)
                if alone and timer.expired_unanswered:
                    raise ApiError(504, "the request's deadline passed before its first token", code="deadline_exceeded")
                yield output
        except (OctavoError, ApiError):
            timer.close(FinishReason.ERROR)
            raise
        finally:
            timer.close()
            self.in_flight.discard(prepared.request_id)
            await stream.aclose()
