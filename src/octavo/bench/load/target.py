"""The server that is measured, and how it is spoken to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from octavo.bench.workload.requests import DrawnRequest
from octavo.errors import InvalidRequestError
from octavo.tokenizer.tokenizer import Tokenizer

CHAT = "/chat/completions"


class Address(NamedTuple):
    """Where a URL leads."""

    tls: bool
    host: str
    port: int
    path: str
    """Before every endpoint; "" or /…, without a / at its end."""

    @property
    def local(self) -> bool:
        """Whether it is this machine, by its loopback."""
        return self.host == "localhost" or self.host.startswith("127.") or self.host == "::1"

    @property
    def shown(self) -> str:
        """For a Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


@dataclass(frozen=True)
class Target:
    """An OpenAI-compatible server, and what is asked of it."""

    url: str
    """http:// or https://, with or without /v1."""
    model: str
    endpoint: str = "/v1/completions"
    """This or /v1/chat/completions."""
    api_key: str | None = None
    tokenizer: Tokenizer | None = None
    """Of the model: counts tokens where the server does not."""
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of every request; they win over those the client sets."""
    stream_options: tuple[str, ...] = ("include_usage", "continuous_usage_stats")
    """What is asked of the stream: octavo.bench.load.probe drops what the server refuses."""
    ignore_eos: bool = True
    """Ask for exactly as many tokens as planned."""
    cache_salt: str | None = None
    """Prompts are found in a prefix cache only by requests of the same salt; where tenants are, each has its own beside it."""
    salts: bool = True
    """Whether the server may be told of salts."""

    @cached_property
    def address(self) -> Address:
        """Raises InvalidRequestError for what is no URL of a server."""
        try:
            parts = urlsplit(self.url)
            port = parts.port
        except ValueError as error:
            raise InvalidRequestError(f"url = {self.url}: {error}", field="url") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidRequestError(f"url = {self.url}: it must begin with http:// or https:// and name a host", field="url")
        if not (self.url.isascii() and self.url.isprintable()) or " " in self.url:
            raise InvalidRequestError(
                f"url = {self.url!r}: it must be ASCII without spaces; write others as %XX, or a host as xn--…", field="url"
            )
        tls = parts.scheme == "https"
        path = parts.path.rstrip("/")
        return Address(tls, parts.hostname, port or (443 if tls else 80), path.removesuffix("/v1"))

    @property
    def chat(self) -> bool:
        return self.endpoint.endswith(CHAT)

    @property
    def authorization(self) -> dict[str, str]:
        """The header that carries the key. Raises InvalidRequestError for a key that no header can carry."""
        if self.api_key is None:
            return {}
        if not (self.api_key.isascii() and self.api_key.isprintable()):
            raise InvalidRequestError("api_key: it must be of printable ASCII characters", field="api_key")
        return {"Authorization": f"Bearer {self.api_key}"}

    def message(self, request: DrawnRequest) -> bytes:
        """The HTTP request, whole."""
        return self.http("POST", self.endpoint, msgspec.json.encode(self.body(request)))

    def body(self, request: DrawnRequest) -> dict[str, Any]:
        """What is posted. Greedy, ``output_tokens`` long."""
        body: dict[str, Any] = {"model": self.model, **self._prompt(request)}
        body |= {"max_tokens": request.output_tokens, "temperature": 0, "stream": True}
        body |= self._sender(request)
        if self.stream_options:
            body["stream_options"] = dict.fromkeys(self.stream_options, True)
        if self.ignore_eos:
            body["ignore_eos"] = True
        return body | dict(self.extra_body)

    def http(self, method: str, path: str, body: bytes = b"") -> bytes:
        """An HTTP/1.1 request for a path below the URL's."""
        address = self.address
        lines = [f"{method} {address.path}{path} HTTP/1.1", f"Host: {address.shown}", "User-Agent: octavo-bench", "Accept: */*"]
        lines += [f"{name}: {value}" for name, value in self.authorization.items()]
        if body:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + body

    def _prompt(self, request: DrawnRequest) -> dict[str, Any]:
        """Ids, which are exact and cost the server no tokenization, unless the request was drawn as text."""
        if not self.chat:
            return {"prompt": request.prompt_token_ids if request.prompt_text is None else request.prompt_text}
        if request.prompt_text is None:
            raise ValueError(f"request {request.index} was not drawn as text, and a chat is text")
        return {"messages": [{"role": "user", "content": request.prompt_text}]}

    def _sender(self, request: DrawnRequest) -> dict[str, Any]:
        """Who asks, and whom it shares cached prefixes with."""
        user = {} if request.tenant is None else {"user": request.tenant}
        salt = " ".join(part for part in (self.cache_salt, request.tenant) if part is not None)
        return user | ({"cache_salt": salt} if salt and self.salts else {})
