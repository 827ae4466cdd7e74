"""Each token's share of a text, so that the shares joined are the text."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.outputs import CompletionOutput
from octavo.sampling_params import SamplingParams
from octavo.tokenizer.detokenizer import IncrementalDetokenizer
from octavo.tokenizer.tokenizer import Tokenizer


def prompt_texts(tokenizer: Tokenizer, token_ids: Sequence[int]) -> list[str]:
    """The prompt token by token. Special tokens show, but not the BOS that the tokenizer puts before every text."""
    detokenizer = IncrementalDetokenizer(tokenizer, skip_special_tokens=False)
    added = 1 if tokenizer.add_bos and token_ids[0] == tokenizer.bos_token_id else 0
    texts = [""] * added + [detokenizer.append([token]) for token in token_ids[added:]]
    texts[-1] += detokenizer.flush()
    return texts


class OutputTexts:
    """Cuts one choice's text by token as it streams.

    A token that ends inside a character has no text; the one that completes the character has it all. At the end the shares
    are trimmed to what a stop string left, and what only the end released goes to the last token.
    """

    def __init__(self, tokenizer: Tokenizer, params: SamplingParams, prompt_token_ids: Sequence[int]) -> None:
        self._detokenizer = IncrementalDetokenizer(tokenizer, params.skip_special_tokens, params.spaces_between_special_tokens)
        self._detokenizer.prime(prompt_token_ids)
        self._shared = 0
        self._shown = 0

    def cut(self, delta: CompletionOutput) -> list[str]:
        """The shares of the delta's tokens, in characters of the choice's whole text."""
        texts = [self._detokenizer.append([token]) for token in delta.token_ids]
        self._shared += sum(map(len, texts))
        self._shown += len(delta.text)
        if delta.finished() and texts:
            missing = self._shown - self._shared
            texts[-1] += delta.text[len(delta.text) - missing :] if missing > 0 else ""
            _trim(texts, -missing)
        return texts


def _trim(texts: list[str], excess: int) -> None:
    """Take ``excess`` characters off the end."""
    for index in reversed(range(len(texts))):
        if excess <= 0:
            return
        cut = min(excess, len(texts[index]))
        texts[index] = texts[index][: len(texts[index]) - cut]
        excess -= cut
