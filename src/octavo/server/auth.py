"""API keys: every path asks for one, but for the liveness probes; so a new route is guarded by default."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

from starlette.types import ASGIApp, Receive, Scope, Send

from octavo.server.errors import ApiError
from octavo.server.responses import JsonResponse

PUBLIC_PATHS = frozenset({"/health", "/ping"})
"""Exactly these, for load balancers."""


class ApiKeyMiddleware:
    """Answers 401 unless the request carries ``Authorization: Bearer KEY`` with one of the keys.

    Keys are kept and compared as SHA-256 digests, in a time that does not depend on where they differ.
    """

    def __init__(self, app: ASGIApp, api_keys: Iterable[str]) -> None:
        self.app = app
        self._digests = [_digest(key.encode()) for key in api_keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        guarded = scope["type"] in ("http", "websocket") and scope["path"] not in PUBLIC_PATHS
        if not guarded or self._authorized(scope):
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            error = ApiError(401, "a valid API key is needed: Authorization: Bearer KEY", code="invalid_api_key")
            response = JsonResponse(error.body(), 401, headers={"WWW-Authenticate": "Bearer"})
            await response(scope, receive, send)

    def _authorized(self, scope: Scope) -> bool:
        given = b""
        for name, value in scope["headers"]:
            if name == b"authorization":
                scheme, _, token = value.partition(b" ")
                given = token.strip() if scheme.lower() == b"bearer" else b""
        digest = _digest(given)
        return sum(hmac.compare_digest(digest, key) for key in self._digests) > 0


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
