"""Liveness and facts: /health, /ping, /version."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from octavo import __version__
from octavo.engine.client import EngineState
from octavo.server.responses import JsonResponse
from octavo.server.serving import ServedEngine

_UNHEALTHY = (EngineState.DEAD, EngineState.STUCK)


def health(engine: ServedEngine) -> Response:
    """200 while the engine is idle or at work, 503 when it is dead or stuck; the body says which, and since when."""
    found = engine.health()
    body: dict[str, Any] = {
        "status": "unhealthy" if found.state in _UNHEALTHY else "ok",
        "engine": found.state,
        "seconds_since_last_step": round(found.seconds_since_step, 3),
    }
    return JsonResponse(body, 503 if found.state in _UNHEALTHY else 200)


def ping() -> Response:
    """The HTTP server is there."""
    return JsonResponse({"status": "ok"})


def version() -> Response:
    """Octavo's version."""
    return JsonResponse({"version": __version__})
