"""The text that is scored: two licences, word for word, plain English of about ten thousand tokens; or a file of the user's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from octavo.errors import InvalidRequestError
from octavo.tokenizer.tokenizer import Tokenizer

TEXTS = ("GPL-3.txt", "Apache-2.0.txt")
"""In this order. Anyone may copy and distribute them verbatim; they are read here, and license nothing."""
DEFAULT_TOKENS = 8192
LEAST_TOKENS = 2
"""One position, and the token that follows it."""


def read_text(path: Path | None) -> str:
    """The file's text, or the built-in one. Raises InvalidRequestError when it cannot be read."""
    if path is None:
        return "".join((Path(__file__).parent / "texts" / name).read_text(encoding="utf-8") for name in TEXTS)
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InvalidRequestError(f"text = {path}: {reason}", field="text") from None


def text_ids(tokenizer: Tokenizer, text: str, tokens: int | None, max_model_len: int) -> npt.NDArray[np.int32]:
    """The first ``tokens`` ids of ``text``; by default DEFAULT_TOKENS, or as many as the text has and the context allows.

    Raises:
        InvalidRequestError: the text is too short, or the model's context.
    """
    ids = tokenizer.encode(text)
    if len(ids) < LEAST_TOKENS:
        raise InvalidRequestError(f"text: it has {len(ids)} tokens: it must have at least {LEAST_TOKENS}", field="text")
    if tokens is None:
        tokens = min(DEFAULT_TOKENS, len(ids), max_model_len)
    if tokens > max_model_len:
        raise InvalidRequestError(f"tokens = {tokens}: a sequence of this model has at most {max_model_len} tokens", field="tokens")
    if tokens > len(ids):
        raise InvalidRequestError(f"tokens = {tokens}: the text has {len(ids)} tokens", field="tokens")
    return np.array(ids[:tokens], np.int32)
