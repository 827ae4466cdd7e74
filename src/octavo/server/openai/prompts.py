"""The forms a completion's prompt may take, told apart and checked."""

from __future__ import annotations

from typing import Any

from octavo.errors import InvalidRequestError

MAX_PROMPTS = 1024
"""Prompts in one request."""


def parse_prompts(prompt: Any) -> list[str | list[int]]:
    """A string, a list of strings, a list of token ids or a list of such lists, as a list of prompts.

    Raises:
        InvalidRequestError: naming the place in ``prompt`` that fits none of these.
    """
    if isinstance(prompt, str):
        return [prompt]
    if not isinstance(prompt, list):
        raise _bad("prompt", prompt, "it must be a string, a list of strings, a list of token ids, or a list of such lists")
    if not prompt:
        raise _bad("prompt", prompt, "it must not be empty")
    if _is_token(prompt[0]):
        return [_token_ids("prompt", prompt)]
    if len(prompt) > MAX_PROMPTS:
        raise _bad("prompt", f"{len(prompt)} prompts", f"at most {MAX_PROMPTS} in one request")
    if isinstance(prompt[0], str):
        for index, item in enumerate(prompt):
            if not isinstance(item, str):
                raise _bad(f"prompt[{index}]", item, "it must be a string, as the items before it")
        return list(prompt)
    return [_token_ids(f"prompt[{index}]", item) for index, item in enumerate(prompt)]


def _token_ids(where: str, value: Any) -> list[int]:
    """Whether the ids are the model's is for the engine's processor to say."""
    if not isinstance(value, list):
        raise _bad(where, value, "it must be a list of token ids")
    if not value:
        raise _bad(where, value, "it must hold at least one token id")
    if not set(map(type, value)) <= {int}:
        index, token = next((index, token) for index, token in enumerate(value) if not _is_token(token))
        raise _bad(f"{where}[{index}]", token, "a token id is an integer")
    return value


def _is_token(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _bad(field: str, value: Any, limit: str) -> InvalidRequestError:
    return InvalidRequestError(f"{field} = {str(value)[:80]}: {limit}", field=field)
