"""Chat messages, checked as far as the chat template does not check them itself (octavo.tokenizer.chat_template)."""

from __future__ import annotations

from typing import Any

from octavo.errors import InvalidRequestError

MAX_MESSAGES = 10_000
"""Messages in one conversation."""


def normalize(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages, each with a role and some content; "developer" is OpenAI's newer word for "system".

    Raises:
        InvalidRequestError: no messages, too many, or one without a role.
    """
    if not messages:
        raise InvalidRequestError("messages = []: it must hold at least one message", field="messages")
    if len(messages) > MAX_MESSAGES:
        raise InvalidRequestError(f"messages = {len(messages)} of them: at most {MAX_MESSAGES}", field="messages")
    return [_message(f"messages[{index}]", message) for index, message in enumerate(messages)]


def _message(where: str, message: dict[str, Any]) -> dict[str, Any]:
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise InvalidRequestError(f"{where}.role = {role!r:.80}: it must be a role's name, such as user", field=f"{where}.role")
    content = message.get("content")  # null in an assistant's message that holds tool calls only
    return {**message, "role": "system" if role == "developer" else role, "content": "" if content is None else content}
