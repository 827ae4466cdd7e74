"""Each token's share of a text, so that the shares joined are the text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

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

    A token that ends inside a character has no text; the one that completes the character has it all. Of a token that a stop
    string cut, only what is left counts; text that was held back goes to the token that released it.
    """

    def __init__(self, tokenizer: Tokenizer, params: SamplingParams, prompt_token_ids: Sequence[int]) -> None:
        self._detokenizer = IncrementalDetokenizer(tokenizer, params.skip_special_tokens, params.spaces_between_special_tokens)
        self._detokenizer.prime(prompt_token_ids)
        self._decoded = 0
        """Characters of all tokens so far, of which ``_shown`` have been shown."""
        self._shown = 0

    def cut(self, delta: CompletionOutput) -> list[str]:
        """The shares of the delta's tokens in its text."""
        text = delta.text
        ends = []
        for token in delta.token_ids:
            self._decoded += len(self._detokenizer.append([token]))
            ends.append(min(max(self._decoded - self._shown, 0), len(text)))
        ends[-1:] = [len(text)] if ends else []
        self._shown += len(text)
        return [text[start:end] for start, end in pairwise([0, *ends])]
