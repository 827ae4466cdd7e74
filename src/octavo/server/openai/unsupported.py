"""Fields that are not declared in the protocol: refused where ignoring them would change the answer, else warned of."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from octavo.errors import InvalidRequestError
from octavo.server.openai.protocol import GenerationRequest

logger = logging.getLogger(__name__)

WARNING_HEADER = "X-Octavo-Warning"
_MOST_NAMED = 10
_LONGEST_NAME = 64


def _empty(value: Any) -> bool:
    return value in (None, False, "", 0) or value == [] or value == {}


def _is(*values: Any) -> Callable[[Any], bool]:
    return lambda value: value is None or value in values


def _text_format(value: Any) -> bool:
    return value is None or (isinstance(value, dict) and value.get("type") == "text")


REFUSED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "best_of": (_is(1), "only 1 is supported; use n for several completions"),
    "suffix": (_empty, "insertion is not supported"),
    "use_beam_search": (_empty, "beam search is not supported"),
    "tools": (_empty, "tool calls are not supported"),
    "tool_choice": (_is("none", "auto"), "tool calls are not supported"),
    "functions": (_empty, "tool calls are not supported"),
    "function_call": (_is("none", "auto"), "tool calls are not supported"),
    "response_format": (_text_format, 'only {"type": "text"} is supported'),
    "structured_outputs": (_empty, "structured output is not supported"),
    "guided_json": (_empty, "structured output is not supported"),
    "guided_regex": (_empty, "structured output is not supported"),
    "guided_choice": (_empty, "structured output is not supported"),
    "guided_grammar": (_empty, "structured output is not supported"),
    "grammar": (_empty, "structured output is not supported"),
    "json_schema": (_empty, "structured output is not supported"),
    "modalities": (_is(["text"]), 'only ["text"] is supported'),
    "audio": (_empty, "this server speaks text only"),
    "prompt_embeds": (_empty, "prompts are text or token ids"),
    "truncate_prompt_tokens": (_empty, "prompts are never cut; shorten it"),
    "echo": (_empty, "chat completions do not repeat the conversation"),
    "add_special_tokens": (_empty, "the chat template writes the special tokens itself"),
    "documents": (_empty, "documents are not supported; put them into a message"),
    "chat_template": (_empty, "a request cannot bring a template; start the server with --chat-template"),
}
"""Undeclared fields that would change the answer: what of them is harmless, and why the rest is refused."""

WITHOUT_EFFECT = frozenset(
    {"metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "parallel_tool_calls", "request_id"}
)
"""Fields of OpenAI's own book-keeping: accepted in silence, as they change nothing in the answer."""


def check_extra_fields(request: GenerationRequest) -> dict[str, str]:
    """Response headers that warn of the fields nobody knows; also logged.

    Raises:
        InvalidRequestError: for a field in REFUSED with a value that is not harmless.
    """
    extra = request.model_extra or {}
    unknown = []
    for name, value in extra.items():
        if name in REFUSED:
            harmless, reason = REFUSED[name]
            if not harmless(value):
                raise InvalidRequestError(f"{name}: {reason}", field=name, code="unsupported_parameter")
        elif name not in WITHOUT_EFFECT:
            unknown.append(name)
    if not unknown:
        return {}
    named = ", ".join(_printable(name) for name in unknown[:_MOST_NAMED])
    warning = f"ignored unknown fields: {named}" + (" …" if len(unknown) > _MOST_NAMED else "")
    logger.warning("%s", warning)
    return {WARNING_HEADER: warning.encode("ascii", "replace").decode()}


def _printable(name: str) -> str:
    """Part of a header and of a log line: no line ends, no endless names."""
    return "".join(char if char.isprintable() else "?" for char in name[:_LONGEST_NAME])
