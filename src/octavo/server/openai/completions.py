"""POST /v1/completions"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from fastapi import Request
from starlette.responses import Response

from octavo.engine.processor import PreparedRequest, Prompt
from octavo.errors import InvalidRequestError
from octavo.outputs import CompletionOutput, FinishReason, RequestOutput
from octavo.sampling_params import SamplingParams
from octavo.server.auth import cache_salt
from octavo.server.body import parse_body
from octavo.server.openai import sse
from octavo.server.openai.logprobs import completion_logprobs, prompt_logprobs
from octavo.server.openai.merge import merge
from octavo.server.openai.prompts import parse_prompts
from octavo.server.openai.protocol import CompletionRequest, sampling_params
from octavo.server.openai.token_texts import OutputTexts, prompt_texts
from octavo.server.openai.unsupported import check_extra_fields
from octavo.server.openai.usage import Usage
from octavo.server.responses import EventStream, JsonResponse, WhileConnected
from octavo.server.serving import Serving
from octavo.tokenizer.tokenizer import Tokenizer

MAX_CHOICES = 2048
"""Choices of one request: its prompts times n."""


class Completions:
    """The route: checks a request, then streams or collects its choices."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def create(self, request: Request) -> Response:
        """Complete one prompt or several."""
        arrival = time.monotonic()
        body = await parse_body(request, CompletionRequest)
        body.cache_salt = cache_salt(request.scope, body.cache_salt)
        warnings = check_extra_fields(body)
        return WhileConnected(lambda: self._answer(body, arrival, warnings))

    async def _answer(self, body: CompletionRequest, arrival: float, headers: Mapping[str, str]) -> Response:
        model = self._serving.model_name(body.model)
        answer_id = f"cmpl-{uuid.uuid4().hex}"
        prepared = await self._prepare(body, answer_id)
        self._serving.admit(prepared)
        frame = {"id": answer_id, "object": "text_completion", "created": int(time.time()), "model": model}
        run = _Run(self._serving, body, prepared, arrival)
        if body.stream:
            return EventStream(sse.events(run.chunks(frame)), headers)
        return JsonResponse(await run.collect(frame), headers=headers)

    async def _prepare(self, body: CompletionRequest, answer_id: str) -> list[PreparedRequest]:
        params, prompts = _params(body), parse_prompts(body.prompt)
        if len(prompts) * params.n > MAX_CHOICES:
            raise InvalidRequestError(f"n = {params.n}: with {len(prompts)} prompts, at most {MAX_CHOICES // len(prompts)}", field="n")
        return [
            await self._serving.prepare(
                await self._prompt(body, prompt),
                params,
                f"{answer_id}-{number}",
                priority=body.priority,
                cache_salt=body.cache_salt,
                timeout=body.timeout_s,
            )
            for number, prompt in enumerate(prompts)
        ]

    async def _prompt(self, body: CompletionRequest, prompt: str | list[int]) -> Prompt:
        if isinstance(prompt, list) or body.add_special_tokens in (None, True):
            return prompt
        engine = self._serving.engine

        def tokenized() -> list[int]:
            engine.check_text(prompt)
            return engine.tokenizer.encode(prompt, False)

        return {"prompt": prompt, "prompt_token_ids": await asyncio.to_thread(tokenized)}


def _params(body: CompletionRequest) -> SamplingParams:
    """max_tokens 0 asks for the prompt's scores: the engine generates one token, which is dropped."""
    changes: dict[str, Any] = {}
    if body.max_tokens == 0:
        changes["max_tokens"] = 1
    if body.logprobs is not None:
        changes["logprobs"] = body.logprobs
        if body.echo:
            changes["prompt_logprobs"] = max(body.logprobs, body.prompt_logprobs or 0)
    return sampling_params(body, **changes)


class _Run:
    """All prompts of one request, run at once; choice number = prompt number * n + completion."""

    def __init__(self, serving: Serving, body: CompletionRequest, prepared: Sequence[PreparedRequest], arrival: float) -> None:
        self._body = body
        self._streams = [serving.stream(prompt, arrival, alone=len(prepared) == 1) for prompt in prepared]
        self._usage = Usage(prepared, body.stream_options)
        self._n = prepared[0].params.n
        self._held: list[list[RequestOutput]] = [[] for _ in prepared]
        tokenizer = serving.engine.tokenizer
        self._choices = [Choice(body, prompt, tokenizer, k * self._n + i) for k, prompt in enumerate(prepared) for i in range(self._n)]

    async def chunks(self, frame: Mapping[str, Any]) -> AsyncGenerator[list[sse.Chunk], None]:
        """What each step brings, as chunks; at last the usage, if asked."""
        async with contextlib.aclosing(self._steps()) as steps:
            async for parts in steps:
                yield [{**frame, "choices": [part], **self._usage.so_far()} for part in parts]
        yield [{**frame, **last} for last in self._usage.at_end()]

    async def collect(self, frame: Mapping[str, Any]) -> dict[str, Any]:
        """The whole answer."""
        parts: list[list[dict[str, Any]]] = [[] for _ in self._choices]
        async with contextlib.aclosing(self._steps()) as steps:
            async for step in steps:
                for part in step:
                    parts[part["index"]].append(part)
        return {**frame, "choices": [join_parts(mine) for mine in parts], "usage": self._usage.body()}

    async def _steps(self) -> AsyncGenerator[list[dict[str, Any]], None]:
        async with contextlib.aclosing(merge(self._streams)) as merged:
            async for number, output in merged:
                if self._body.max_tokens == 0:
                    output = _without_tokens(output)
                self._usage.add(number, output)
                yield [
                    self._choices[number * self._n + delta.index].part(delta, ready)
                    for ready in self._ready(number, output)
                    for delta in ready.outputs
                ]

    def _ready(self, number: int, output: RequestOutput) -> list[RequestOutput]:
        """Outputs that can be told: all, or none until the scores of the prompt that stand before them are there."""
        held = self._held[number]
        held.append(output)
        scores = output.prompt_logprobs
        if scores is not None and len(scores) < len(output.prompt_token_ids) and not output.finished:
            return []
        self._held[number] = []
        return held


class Choice:
    """One choice as it grows, in parts of OpenAI's shape: the chunks of a stream, or what a whole answer is joined from."""

    def __init__(self, body: CompletionRequest, prepared: PreparedRequest, tokenizer: Tokenizer, index: int) -> None:
        self._body = body
        self._prepared = prepared
        self._tokenizer = tokenizer
        self._index = index
        self._begun = False
        self._offset = 0
        self._texts = OutputTexts(tokenizer, prepared.params, prepared.prompt_token_ids)

    def part(self, delta: CompletionOutput, output: RequestOutput) -> dict[str, Any]:
        """``delta`` as a part; the first one brings what is told of the prompt."""
        head = {} if self._begun else self._head(output)
        self._begun = True
        part: dict[str, Any] = {
            "index": self._index,
            "text": delta.text,
            "logprobs": self._logprobs(delta),
            "finish_reason": delta.finish_reason,
            "stop_reason": delta.stop_reason,
        }
        if self._body.return_token_ids:
            part["token_ids"] = delta.token_ids
        return join_parts([head, part]) if head else part

    def _head(self, output: RequestOutput) -> dict[str, Any]:
        """The echoed prompt and its scores, as a part; empty if nothing of it was asked for."""
        ids = self._prepared.prompt_token_ids
        scores = output.prompt_logprobs
        head: dict[str, Any] = {}
        if self._body.echo:
            texts = prompt_texts(self._tokenizer, ids)
            head = {"text": "".join(texts), "logprobs": None}
            self._offset = len(head["text"])
            if self._body.logprobs is not None and scores is not None:
                head["logprobs"] = completion_logprobs(texts, ids, scores, self._body.logprobs, 0)
        if self._body.return_token_ids:
            head |= {"prompt_token_ids": ids}
        if self._body.prompt_logprobs is not None and scores is not None:
            head |= {"prompt_logprobs": prompt_logprobs(scores)}
        return head

    def _logprobs(self, delta: CompletionOutput) -> dict[str, Any] | None:
        if self._body.logprobs is None or delta.logprobs is None:
            return None
        texts = self._texts.cut(delta)
        scores = completion_logprobs(texts, delta.token_ids, delta.logprobs, self._body.logprobs, self._offset)
        self._offset += sum(map(len, texts))
        return scores


def join_parts(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Parts of one choice as one: text and lists joined, the rest as the last one says."""
    whole = {"index": parts[-1]["index"]}
    for part in parts:
        whole |= part
    whole["text"] = "".join(part.get("text", "") for part in parts)
    scored = [part["logprobs"] for part in parts if part.get("logprobs")]
    if scored:
        whole["logprobs"] = {key: [item for scores in scored for item in scores[key]] for key in scored[0]}
    if "token_ids" in whole:
        whole["token_ids"] = [token for part in parts for token in part.get("token_ids", ())]
    return whole


def _without_tokens(output: RequestOutput) -> RequestOutput:
    """For max_tokens 0: the one token that the engine generated is not part of the answer."""
    outputs = [
        CompletionOutput(delta.index, "", [], logprobs=None if delta.logprobs is None else [], finish_reason=FinishReason.LENGTH)
        for delta in output.outputs
    ]
    return dataclasses.replace(output, outputs=outputs)
