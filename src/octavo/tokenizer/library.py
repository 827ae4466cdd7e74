"""The tokenizers library, called so that other threads go on meanwhile."""

from __future__ import annotations

import tokenizers


def encode(tokenizer: tokenizers.Tokenizer, text: str, add_special_tokens: bool) -> list[int]:
    """Ids of one text. The library's ``encode`` keeps the GIL, for seconds on a long text; its batch call lets go of it."""
    ids: list[int] = tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0].ids
    return ids
