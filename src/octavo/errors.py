"""Errors a caller can act on. Each names the field, the value and the limit, and reaches the caller before the step loop."""

from __future__ import annotations


class OctavoError(Exception):
    """Base of every error Octavo raises on purpose."""


class InvalidRequestError(OctavoError, ValueError):
    """A request or a setting that cannot be served as it stands.

    ``field`` is the name the user wrote (an API parameter or a config field), so that a server can
    answer 400 with ``param``; ``code`` is a stable word for programs, e.g. ``context_length_exceeded``.
    """

    def __init__(self, message: str, *, field: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.field = field
        self.code = code


class ModelFileError(OctavoError):
    """A model file that is malformed, truncated or of a kind Octavo does not support.

    The message names the file and, where they exist, the tensor and the offset.
    """


class ModelFetchError(OctavoError):
    """A model that is not on this machine and cannot be fetched: no network, no room, or other content than was promised."""


class RequestFailedError(OctavoError):
    """A request that failed by itself while it ran; the engine goes on."""


class EngineDeadError(OctavoError):
    """The engine process ended while requests were running."""


class EngineTimeoutError(OctavoError):
    """The engine has not answered in time; it may be stuck in a step, or busy with a long one."""
