"""Settings of the HTTP server; the engine has its own (octavo.config.EngineArgs)."""

from __future__ import annotations

from dataclasses import dataclass, field

from octavo.errors import InvalidRequestError

MAX_BODY_BYTES = 16 * 2**20
"""Largest request body; a prompt of 128k token ids takes about 1 MiB."""

BODY_TIMEOUT_S = 60.0
"""How long a client may take to send a body."""


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """How the engine is offered over HTTP."""

    host: str = "127.0.0.1"
    port: int = 8000
    served_model_names: tuple[str, ...]
    """Names a request may use; the first one is shown."""
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    """If any, every route but the liveness ones asks for one of them."""
    chat_template: str | None = None
    """A Jinja template that replaces the model's own."""
    request_timeout: float | None = None
    """Seconds after which a request that has not ended ends; a request may state fewer (timeout_s)."""
    shutdown_timeout: float = 5.0
    """Seconds that running requests get to finish after SIGTERM or SIGINT; then they are aborted."""

    def __post_init__(self) -> None:
        if not self.served_model_names or not all(self.served_model_names):
            raise InvalidRequestError("served_model_name is empty: it needs at least one character", field="served_model_name")
        if not all(self.api_keys):
            raise InvalidRequestError("api_key is empty: anybody would have it", field="api_key")
