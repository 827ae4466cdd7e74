"""The operator's routes: what KV memory holds, and how it forgets. An API key guards them as it does the others."""

from __future__ import annotations

from starlette.responses import Response

from octavo.server.responses import JsonResponse
from octavo.server.serving import ServedEngine


class Admin:
    """GET /admin/kv and POST /admin/kv/reset."""

    def __init__(self, engine: ServedEngine) -> None:
        self._engine = engine

    async def show_kv(self) -> Response:
        """The KV pool as it stands: accounting, the owner of each block, the last steps (octavo.engine.kv_report)."""
        return JsonResponse(await self._engine.kv_usage())

    async def reset_kv(self) -> Response:
        """Forget every cached prefix; requests that run keep their blocks."""
        return JsonResponse({"forgotten_blocks": await self._engine.reset_prefix_cache()})
