"""The operator's routes: what the engine is, what its steps did, what KV memory holds. An API key guards them as it does the others."""

from __future__ import annotations

import dataclasses

from starlette.requests import Request
from starlette.responses import Response

from octavo import __version__
from octavo.engine.memory import peak_memory
from octavo.errors import InvalidRequestError
from octavo.server.responses import JsonResponse
from octavo.server.serving import ServedEngine


class Admin:
    """GET /admin/engine, /admin/steps and /admin/kv; POST /admin/kv/reset."""

    def __init__(self, engine: ServedEngine) -> None:
        self._engine = engine

    async def show_engine(self) -> Response:
        """Facts that hold for the engine's whole life, its settings, and the most memory that its two processes have taken."""
        peaks = {"engine": self._engine.peak_memory(), "server": peak_memory()}
        settings = dataclasses.asdict(self._engine.args)
        return JsonResponse({"version": __version__, "info": self._engine.info, "settings": settings, "peak_memory_bytes": peaks})

    async def show_steps(self, request: Request) -> Response:
        """?after=N: the steps after number N (octavo.engine.step_log, StepRecord); without it the last step's number alone."""
        return JsonResponse(await self._engine.steps(_step_number(request.query_params.get("after"))))

    async def show_kv(self) -> Response:
        """The KV pool as it stands: accounting, the owner of each block, the last steps (octavo.engine.kv_report)."""
        return JsonResponse(await self._engine.kv_usage())

    async def reset_kv(self) -> Response:
        """Forget every cached prefix; requests that run keep their blocks."""
        return JsonResponse({"forgotten_blocks": await self._engine.reset_prefix_cache()})


def _step_number(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise InvalidRequestError(f"after = {text!r:.40}: it is the number of a step, 0 or more, of at most 18 digits", field="after")
    return int(text)
