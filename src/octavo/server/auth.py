"""API keys: every path asks for one, but for the liveness probes; so a new route is guarded by default.

Each key is a tenant of its own to the prefix cache.
"""

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

    Keys are kept and compared as SHA-256 digests, in a time that does not depend on where they differ. The scope's state says whose key it
    was, see ``cache_salt``.
    """

    def __init__(self, app: ASGIApp, api_keys: Iterable[str]) -> None:
        self.app = app
        self._digests = [_digest(key.encode()) for key in api_keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        guarded = scope["type"] in ("http", "websocket") and scope["path"] not in PUBLIC_PATHS
        if not guarded:
            await self.app(scope, receive, send)
        elif self._authorized(token := _token(scope)):
            scope.setdefault("state", {})["tenant"] = _digest(b"octavo tenant" + token).hex()
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            error = ApiError(401, "a valid API key is needed: Authorization: Bearer KEY", code="invalid_api_key")
            response = JsonResponse(error.body(), 401, headers={"WWW-Authenticate": "Bearer"})
            await response(scope, receive, send)

    def _authorized(self, token: bytes) -> bool:
        digest = _digest(token)
        return sum(hmac.compare_digest(digest, key) for key in self._digests) > 0


def cache_salt(scope: Scope, asked: str | None) -> str | None:
    """The salt of a request's prefix-cache keys: its API key's, if it needed one, and within that what it asks for.

    So no key's requests find, or learn by the time they take, what another's have computed, whatever salt they send.
    """
    tenant: str | None = scope.get("state", {}).get("tenant")
    if tenant is None:
        return asked
    return tenant if asked is None else f"{tenant} {asked}"


def _token(scope: Scope) -> bytes:
    given = b""
    for name, value in scope["headers"]:
        if name == b"authorization":
            scheme, _, token = value.partition(b" ")
            given = token.strip() if scheme.lower() == b"bearer" else b""
    return given


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
