"""GET /v1/models"""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from octavo.server.responses import JsonResponse
from octavo.server.serving import Serving


class Models:
    """The routes: which names this server answers to."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    def list(self) -> Response:
        """All names."""
        names = self._serving.settings.served_model_names
        return JsonResponse({"object": "list", "data": [self._card(name) for name in names]})

    def get(self, model: str) -> Response:
        """One name; 404 for one that is not served."""
        return JsonResponse(self._card(self._serving.model_name(model)))

    def _card(self, name: str) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": self._serving.started,
            "owned_by": "octavo",
            "root": self._serving.settings.served_model_names[0],
            "parent": None,
            "max_model_len": self._serving.engine.info.max_model_len,
        }
