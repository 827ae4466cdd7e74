"""The HTTP application: which route is answered by what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from starlette.responses import Response

from octavo import __version__
from octavo.server import errors, health
from octavo.server.admin import Admin
from octavo.server.auth import ApiKeyMiddleware
from octavo.server.metrics import MetricsRoute
from octavo.server.openai.chat import ChatCompletions
from octavo.server.openai.completions import Completions
from octavo.server.openai.models import Models
from octavo.server.openai.protocol import ChatCompletionRequest, CompletionRequest
from octavo.server.request_id import RequestIdMiddleware
from octavo.server.serving import ServedEngine, Serving
from octavo.server.settings import ServerSettings
from octavo.server.tokenize import DetokenizeRequest, Tokenization, TokenizeTextRequest


def create_app(engine: ServedEngine, settings: ServerSettings, phases: Mapping[str, float] | None = None) -> FastAPI:
    """The application that serves ``engine``, which is ready.

    ``phases`` are the seconds of starting that /metrics shows, by default the engine's; they may grow until the start is over.
    """
    metrics = MetricsRoute(engine, settings.served_model_names[0], engine.info.phases if phases is None else phases)
    serving = Serving(engine, settings, metrics.requests)
    models, tokenization, admin = Models(serving), Tokenization(serving), Admin(engine)
    app = FastAPI(title="Octavo", version=__version__, redirect_slashes=False)
    app.state.serving = serving

    def get(path: str, endpoint: Any) -> None:
        app.add_api_route(path, endpoint, methods=["GET"], response_class=Response)

    def post(path: str, endpoint: Any, body: type[BaseModel] | None = None) -> None:
        extra: dict[str, Any] = {}
        if body is not None:
            schema = body.model_json_schema(ref_template="#/components/schemas/{model}")
            extra = {"requestBody": {"content": {"application/json": {"schema": schema}}, "required": True}}
        app.add_api_route(path, endpoint, methods=["POST"], response_class=Response, openapi_extra=extra)

    get("/v1/models", models.list)
    get("/v1/models/{model:path}", models.get)
    post("/v1/completions", Completions(serving).create, CompletionRequest)
    post("/v1/chat/completions", ChatCompletions(serving).create, ChatCompletionRequest)
    post("/tokenize", tokenization.tokenize, TokenizeTextRequest)
    post("/detokenize", tokenization.detokenize, DetokenizeRequest)
    get("/health", lambda: health.health(engine))
    get("/ping", health.ping)
    get("/version", health.version)
    get("/metrics", metrics.show)
    get("/admin/engine", admin.show_engine)
    get("/admin/steps", admin.show_steps)
    get("/admin/kv", admin.show_kv)
    post("/admin/kv/reset", admin.reset_kv)

    errors.install(app)
    if settings.api_keys:
        app.add_middleware(ApiKeyMiddleware, api_keys=settings.api_keys)
    app.add_middleware(RequestIdMiddleware)
    return app
