"""Warnings among the sentences of a summary."""

from __future__ import annotations

WARNING = "WARNING: "


def warning(sentence: str) -> str:
    """``sentence``, marked as something that the reader must know before believing a number."""
    return WARNING + sentence


def is_warning(sentence: str) -> bool:
    return sentence.startswith(WARNING)
