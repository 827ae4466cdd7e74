"""Log-probabilities in OpenAI's two shapes, and in vLLM's for prompts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from octavo.outputs import Logprob

FLOOR = -9999.0
"""Stands for minus infinity, which JSON cannot say."""

Position = dict[int, Logprob]
"""Token id → log-probability at one position: of the chosen token, and of the likeliest."""


def completion_logprobs(
    texts: Sequence[str], token_ids: Sequence[int], positions: Sequence[Position | None], top: int, offset: int
) -> dict[str, Any]:
    """The completions shape: parallel lists over tokens, whose ``texts`` joined are the text from character ``offset`` on.

    ``top_logprobs`` holds the ``top`` likeliest and the chosen token. A position of None, a prompt's first, has no scores.
    """
    offsets = []
    for text in texts:
        offsets.append(offset)
        offset += len(text)
    return {
        "tokens": list(texts),
        "token_logprobs": [p and _finite(p[token].logprob) for token, p in zip(token_ids, positions, strict=True)],
        "top_logprobs": [p and _by_text(p, token, top) for token, p in zip(token_ids, positions, strict=True)],
        "text_offset": offsets,
    }


def chat_logprobs(token_ids: Sequence[int], positions: Sequence[Position], top: int) -> dict[str, Any]:
    """The chat shape: one entry a token, each with exactly its ``top`` likeliest."""
    content = []
    for token, position in zip(token_ids, positions, strict=True):
        likeliest = [_entry(logprob) for _, logprob in _ranked(position) if _rank(logprob) <= top]
        content.append(_entry(position[token]) | {"top_logprobs": likeliest})
    return {"content": content}


def prompt_logprobs(positions: Sequence[Position | None]) -> list[dict[str, Any] | None]:
    """vLLM's shape: for each prompt token the scores by token id; null for the first."""
    return [None if p is None else {str(token): _scores(logprob) for token, logprob in p.items()} for p in positions]


def _by_text(position: Position, chosen: int, top: int) -> dict[str, float]:
    """Of two tokens with the same text the likelier one counts."""
    kept = [logprob for token, logprob in _ranked(position) if token == chosen or _rank(logprob) <= top]
    return {_text(logprob): _finite(logprob.logprob) for logprob in reversed(kept)}


def _ranked(position: Position) -> list[tuple[int, Logprob]]:
    return sorted(position.items(), key=lambda item: _rank(item[1]))


def _rank(logprob: Logprob) -> int:
    return logprob.rank or 0


def _text(logprob: Logprob) -> str:
    return logprob.decoded_token or ""


def _entry(logprob: Logprob) -> dict[str, Any]:
    text = _text(logprob)
    return {"token": text, "logprob": _finite(logprob.logprob), "bytes": list(text.encode())}


def _scores(logprob: Logprob) -> dict[str, Any]:
    return {"logprob": _finite(logprob.logprob), "rank": logprob.rank, "decoded_token": logprob.decoded_token}


def _finite(logprob: float) -> float:
    return max(logprob, FLOOR)
