"""Errors as a client sees them: {"error": {"message", "type", "param", "code"}}, as OpenAI shapes them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException

from octavo.errors import EngineDeadError, EngineTimeoutError, InvalidRequestError, OctavoError, RequestFailedError
from octavo.server.responses import JsonResponse

logger = logging.getLogger(__name__)

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    429: "overloaded_error",
    503: "overloaded_error",
}


class ApiError(Exception):
    """An answer with an HTTP status of 400 or more."""

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = headers

    def body(self) -> dict[str, Any]:
        """The JSON of the answer, or of the event that ends a stream."""
        kind = _TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


def to_api_error(error: Exception) -> ApiError:
    """What the client is told of ``error``; the details of an unexpected one go to the log alone."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, InvalidRequestError):
        return ApiError(400, str(error), param=error.field, code=error.code)
    if isinstance(error, EngineDeadError):
        return ApiError(503, "the engine is not running", code="engine_dead")
    if isinstance(error, EngineTimeoutError):
        return ApiError(504, str(error), code="engine_timeout")
    if isinstance(error, RequestFailedError):
        logger.error("%s", error)
        return ApiError(500, str(error), code="request_failed")
    logger.error("a request failed", exc_info=error)
    return ApiError(500, "internal error; the server's log has the details", code="internal_error")


def install(app: FastAPI) -> None:
    """Answer every error of ``app`` in this shape."""

    async def answer(_request: Request, error: Exception) -> JsonResponse:
        if isinstance(error, HTTPException):  # the router's own: no such route, wrong method
            return JsonResponse(ApiError(error.status_code, str(error.detail)).body(), error.status_code)
        api_error = to_api_error(error)
        return JsonResponse(api_error.body(), api_error.status, api_error.headers)

    for kind in (ApiError, OctavoError, HTTPException, Exception):
        app.add_exception_handler(kind, answer)
