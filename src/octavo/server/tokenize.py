"""POST /tokenize and /detokenize, as vLLM shapes them."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import Request
from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from octavo.errors import InvalidRequestError
from octavo.server.body import decode, read, validate
from octavo.server.openai.chat import rendered
from octavo.server.openai.protocol import ChatPrompt
from octavo.server.responses import JsonResponse
from octavo.server.serving import Serving


class TokenizeTextRequest(BaseModel):
    """A text to cut into tokens."""

    model_config = ConfigDict(strict=True)

    model: str | None = None
    prompt: str
    add_special_tokens: bool = True
    return_token_strs: bool = False


class TokenizeChatRequest(ChatPrompt):
    """A conversation to render and cut into tokens."""

    model: str | None = None
    return_token_strs: bool = False


class DetokenizeRequest(BaseModel):
    """Token ids to put together."""

    model_config = ConfigDict(strict=True)

    model: str | None = None
    tokens: list[int]


class Tokenization:
    """The routes."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def tokenize(self, request: Request) -> Response:
        """Token ids of a text, or of a conversation as the model's template puts it."""
        value = decode(await read(request))
        tokenizer = self._serving.engine.tokenizer
        if isinstance(value, dict) and "messages" in value:
            chat = validate(value, TokenizeChatRequest)
            self._serving.model_name(chat.model)
            return self._answer(await rendered(self._serving, chat), chat.return_token_strs)
        text = validate(value, TokenizeTextRequest)
        self._serving.model_name(text.model)
        return self._answer(await asyncio.to_thread(tokenizer.encode, text.prompt, text.add_special_tokens), text.return_token_strs)

    async def detokenize(self, request: Request) -> Response:
        """The text of token ids, special tokens included."""
        body = validate(decode(await read(request)), DetokenizeRequest)
        self._serving.model_name(body.model)
        tokenizer = self._serving.engine.tokenizer
        most = self._serving.engine.info.vocab_size - 1
        for token in (min(body.tokens, default=0), max(body.tokens, default=0)):
            if not 0 <= token <= most:
                raise InvalidRequestError(f"tokens[{body.tokens.index(token)}] = {token}: token ids are 0 to {most}", field="tokens")
        return JsonResponse({"prompt": await asyncio.to_thread(tokenizer.decode, body.tokens, False)})

    def _answer(self, tokens: list[int], with_strings: bool) -> Response:
        tokenizer = self._serving.engine.tokenizer
        body: dict[str, Any] = {"count": len(tokens), "max_model_len": self._serving.engine.info.max_model_len, "tokens": tokens}
        body["token_strs"] = [tokenizer.id_to_token(token) for token in tokens] if with_strings else None
        return JsonResponse(body)
