"""Request bodies: read within a size and a time limit, decoded strictly, checked against a model of the request."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import msgspec
from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from octavo.server.errors import ApiError
from octavo.server.settings import BODY_TIMEOUT_S, MAX_BODY_BYTES

Model = TypeVar("Model", bound=BaseModel)


async def parse_body(request: Request, model: type[Model]) -> Model:
    """The body as a ``model``.

    Raises:
        ApiError: 400 for anything that is not such a request, 408 or 413 for one too slow or too large.
    """
    return validate(decode(await read(request)), model)


async def read(request: Request) -> bytes:
    """The whole body, at most MAX_BODY_BYTES within BODY_TIMEOUT_S."""
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > MAX_BODY_BYTES:
        raise _too_large(int(declared))
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for chunk in request.stream():
                size += len(chunk)
                if size > MAX_BODY_BYTES:
                    raise _too_large(size)
                chunks.append(chunk)
    except ClientDisconnect:
        raise ApiError(400, "the client left before its body was complete", code="incomplete_body") from None
    except TimeoutError:
        raise ApiError(408, f"the body did not arrive within {BODY_TIMEOUT_S:g} s", code="body_timeout") from None
    return b"".join(chunks)


def decode(body: bytes) -> Any:
    """JSON by the letter: no NaN, no number beyond a double, no lone surrogate, no bottomless nesting."""
    try:
        return msgspec.json.decode(body)
    except msgspec.MsgspecError as error:
        raise ApiError(400, f"the body is not valid JSON: {error}", code="invalid_json") from None
    except RecursionError:
        raise ApiError(400, "the body is nested too deeply", code="invalid_json") from None


def validate(value: Any, model: type[Model]) -> Model:
    """``value`` as a ``model``; the error names the first field that is wrong."""
    if not isinstance(value, dict):
        raise ApiError(400, f"the body is a JSON {_kind(value)}: it must be an object")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        if first["type"] == "missing":
            raise ApiError(400, f"{field} is missing: it is required", param=field) from None
        reason = str(first["msg"]).removeprefix("Value error, ")
        raise ApiError(400, f"{field} = {_shown(first['input'])}: {reason[0].lower()}{reason[1:]}", param=field) from None


def _too_large(size: int) -> ApiError:
    return ApiError(413, f"the body has {size} bytes: at most {MAX_BODY_BYTES}", code="body_too_large")


def _kind(value: Any) -> str:
    names = {dict: "object", list: "array", str: "string", int: "number", float: "number", bool: "boolean", type(None): "null"}
    return names[type(value)]


def _shown(value: Any) -> str:
    text = f"a JSON {_kind(value)}" if isinstance(value, dict | list) else msgspec.json.encode(value).decode()
    return text if len(text) <= 80 else text[:80] + "…"
