"""POST /v1/chat/completions"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from fastapi import Request
from starlette.responses import Response

from octavo.engine.processor import PreparedRequest
from octavo.errors import InvalidRequestError
from octavo.outputs import CompletionOutput, RequestOutput
from octavo.sampling_params import SamplingParams
from octavo.server.auth import cache_salt
from octavo.server.body import parse_body
from octavo.server.openai import sse
from octavo.server.openai.logprobs import chat_logprobs, prompt_logprobs
from octavo.server.openai.messages import normalize
from octavo.server.openai.protocol import ChatCompletionRequest, ChatPrompt, sampling_params
from octavo.server.openai.unsupported import check_extra_fields
from octavo.server.openai.usage import Usage
from octavo.server.responses import EventStream, JsonResponse, WhileConnected
from octavo.server.serving import Serving


class ChatCompletions:
    """The route: renders the conversation, then streams or collects its choices."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def create(self, request: Request) -> Response:
        """Answer a conversation."""
        arrival = time.monotonic()
        body = await parse_body(request, ChatCompletionRequest)
        body.cache_salt = cache_salt(request.scope, body.cache_salt)
        warnings = check_extra_fields(body)
        return WhileConnected(lambda: self._answer(body, arrival, warnings))

    async def _answer(self, body: ChatCompletionRequest, arrival: float, headers: Mapping[str, str]) -> Response:
        model = self._serving.model_name(body.model)
        answer_id = f"chatcmpl-{uuid.uuid4().hex}"
        prepared = await self._prepare(body, answer_id)
        self._serving.admit([prepared])
        kind = "chat.completion.chunk" if body.stream else "chat.completion"
        frame = {"id": answer_id, "object": kind, "created": int(time.time()), "model": model}
        run = _Run(self._serving, body, prepared, arrival)
        if body.stream:
            return EventStream(sse.events(run.chunks(frame)), headers)
        return JsonResponse(await run.collect(frame), headers=headers)

    async def _prepare(self, body: ChatCompletionRequest, answer_id: str) -> PreparedRequest:
        try:
            params = _params(body)
            prompt = await rendered(self._serving, body)
            return await self._serving.prepare(
                prompt, params, answer_id, priority=body.priority, cache_salt=body.cache_salt, timeout=body.timeout_s
            )
        except InvalidRequestError as error:
            raise _as_written(error, body) from None


_NOT_VARIABLES = frozenset(
    {"messages", "tools", "add_generation_prompt", "continue_final_message", "tokenizer", "template", "self", "chat_template", "tokenize"}
)
"""Names that a request cannot give to the template: they have fields of their own, or are no variables."""


async def rendered(serving: Serving, body: ChatPrompt) -> list[int]:
    """The conversation as the model's template puts it, tokenized; off the event loop.

    Raises:
        InvalidRequestError: the messages are malformed, the template refuses them, the model has none, or they are far too long.
    """
    continues = bool(body.continue_final_message)
    if continues and body.add_generation_prompt:
        raise InvalidRequestError(
            "continue_final_message = true: it opens no new message, so add_generation_prompt must be false", field="continue_final_message"
        )
    variables = body.chat_template_kwargs or {}
    for name in variables:
        if name in _NOT_VARIABLES:
            raise InvalidRequestError(f"chat_template_kwargs.{name}: it cannot be set here", field="chat_template_kwargs")
    opens = not continues if body.add_generation_prompt is None else body.add_generation_prompt

    def tokenized() -> list[int]:
        messages = normalize(body.messages)
        text = serving.template.render(messages, add_generation_prompt=opens, continue_final_message=continues, **variables)
        serving.engine.check_text(text)
        return serving.engine.tokenizer.encode_rendered(text)

    return await asyncio.to_thread(tokenized)


def _params(body: ChatCompletionRequest) -> SamplingParams:
    """Sampling of an answer: as long as the context allows, unless a limit is given."""
    if body.top_logprobs is not None and not body.logprobs:
        raise InvalidRequestError(f"top_logprobs = {body.top_logprobs}: it needs logprobs = true", field="top_logprobs")
    if body.prompt_logprobs is not None and body.stream:
        raise InvalidRequestError(f"prompt_logprobs = {body.prompt_logprobs}: it cannot be streamed here", field="prompt_logprobs")
    limit = body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens
    return sampling_params(body, max_tokens=limit, logprobs=(body.top_logprobs or 0) if body.logprobs else None)


def _as_written(error: InvalidRequestError, body: ChatCompletionRequest) -> InvalidRequestError:
    """The error under the name that the client used for the field."""
    written = {"logprobs": "top_logprobs"} | ({"max_tokens": "max_completion_tokens"} if body.max_completion_tokens is not None else {})
    if error.field not in written:
        return error
    name = written[error.field]
    return InvalidRequestError(name + str(error).removeprefix(error.field), field=name, code=error.code)


class _Run:
    """One conversation, and its n answers."""

    def __init__(self, serving: Serving, body: ChatCompletionRequest, prepared: PreparedRequest, arrival: float) -> None:
        self._body = body
        self._prepared = prepared
        self._usage = Usage([prepared], body.stream_options)
        self._stream = serving.stream(prepared, arrival)

    async def chunks(self, frame: Mapping[str, Any]) -> AsyncGenerator[list[sse.Chunk], None]:
        """A chunk that says the role of each answer, then what each step brings; at last the usage, if asked."""
        opening = {"delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
        head = {"prompt_token_ids": self._prepared.prompt_token_ids} if self._body.return_token_ids else {}
        yield [{**frame, **head, "choices": [{"index": i, **opening}], **self._usage.so_far()} for i in range(self._prepared.params.n)]
        async with contextlib.aclosing(self._stream) as outputs:
            async for output in outputs:
                self._usage.add(0, output)
                yield [{**frame, "choices": [self._part(delta)], **self._usage.so_far()} for delta in output.outputs]
        yield [{**frame, **last} for last in self._usage.at_end()]

    def _part(self, delta: CompletionOutput) -> dict[str, Any]:
        part: dict[str, Any] = {
            "index": delta.index,
            "delta": {"content": delta.text} if delta.text else {},
            "logprobs": self._logprobs(delta),
            "finish_reason": delta.finish_reason,
        }
        return part | self._extras(delta)

    async def collect(self, frame: Mapping[str, Any]) -> dict[str, Any]:
        """The whole answer."""
        deltas: list[list[CompletionOutput]] = [[] for _ in range(self._prepared.params.n)]
        output: RequestOutput | None = None
        async with contextlib.aclosing(self._stream) as outputs:
            async for output in outputs:
                self._usage.add(0, output)
                for delta in output.outputs:
                    deltas[delta.index].append(delta)
        answer = {**frame, "choices": [self._choice(_joined(parts)) for parts in deltas], "usage": self._usage.body()}
        if self._body.return_token_ids:
            answer["prompt_token_ids"] = self._prepared.prompt_token_ids
        if self._body.prompt_logprobs is not None and output is not None and output.prompt_logprobs is not None:
            answer["prompt_logprobs"] = prompt_logprobs(output.prompt_logprobs)
        return answer

    def _choice(self, whole: CompletionOutput) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": whole.index,
            "message": {"role": "assistant", "content": whole.text},
            "logprobs": self._logprobs(whole),
            "finish_reason": whole.finish_reason,
        }
        return choice | self._extras(whole)

    def _logprobs(self, output: CompletionOutput) -> dict[str, Any] | None:
        if output.logprobs is None:
            return None
        return chat_logprobs(output.token_ids, output.logprobs, self._body.top_logprobs or 0)

    def _extras(self, output: CompletionOutput) -> dict[str, Any]:
        """vLLM's additions to a choice."""
        ids = {"token_ids": output.token_ids} if self._body.return_token_ids else {}
        return {"stop_reason": output.stop_reason} | ids


def _joined(deltas: list[CompletionOutput]) -> CompletionOutput:
    """The deltas of one choice as a whole."""
    last = deltas[-1]
    return CompletionOutput(
        index=last.index,
        text="".join(delta.text for delta in deltas),
        token_ids=[token for delta in deltas for token in delta.token_ids],
        logprobs=None if last.logprobs is None else [entry for delta in deltas for entry in delta.logprobs or ()],
        finish_reason=last.finish_reason,
        stop_reason=last.stop_reason,
    )
