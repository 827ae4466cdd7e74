"""The tokens of a benchmark's prompts: which ids may be drawn at random, and the tokenizer, where there is one, that counts text."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from octavo.errors import InvalidRequestError, ModelFetchError
from octavo.tokenizer.load import load_tokenizer
from octavo.tokenizer.tokenizer import Tokenizer
from octavo.weights import hub
from octavo.weights.aliases import ALIASES

SAFE_IDS = range(1000, 30_000)
"""Ordinary tokens of every vocabulary in common use: the smallest, Llama 2's, has 32,000, and special ones lie below, or at the end."""


class Tokens:
    """What prompts can be made of."""

    def __init__(self, ordinary: npt.NDArray[np.int64], tokenizer: Tokenizer | None = None) -> None:
        """``ordinary``: the ids that random prompts draw from."""
        self.ordinary = ordinary
        self._tokenizer = tokenizer

    @classmethod
    def of_size(cls, vocab_size: int) -> Tokens:
        """All ids under ``vocab_size``: for an engine that reads ids and is not asked what they say."""
        return cls(np.arange(vocab_size))

    @classmethod
    def of(cls, tokenizer: Tokenizer, vocab_size: int | None = None) -> Tokens:
        """The tokenizer's ids that stand for text, special ones left out; those of the model alone where ``vocab_size`` is given."""
        size = tokenizer.vocab_size if vocab_size is None else min(vocab_size, tokenizer.vocab_size)
        ids = [i for i in range(size) if i not in tokenizer.special_ids and tokenizer.token_bytes(i)]
        return cls(np.array(ids), tokenizer)

    @classmethod
    def safe(cls) -> Tokens:
        """Of a vocabulary that is not known: SAFE_IDS."""
        return cls(np.array(SAFE_IDS))

    @property
    def known(self) -> Tokenizer | None:
        """The tokenizer, where there is one."""
        return self._tokenizer

    @property
    def tokenizer(self) -> Tokenizer:
        """Raises InvalidRequestError where there is none."""
        if self._tokenizer is None:
            raise InvalidRequestError(
                "tokenizer is not given: prompts of text are counted by the model's tokenizer; name its folder, tokenizer.json or GGUF "
                "file, or a model that Octavo knows",
                field="tokenizer",
            )
        return self._tokenizer

    @cached_property
    def words(self) -> npt.NDArray[np.int64]:
        """Of the ordinary ids those that are a space and letters: text made of them is cut into them again, or nearly so.

        A vocabulary without such tokens gives all that are printable text.
        """
        texts = {int(i): self.tokenizer.token_bytes(int(i)).decode("utf-8", "replace") for i in self.ordinary}
        words = [i for i, text in texts.items() if text.startswith(" ") and text[1:].isalpha()]
        return np.array(words or [i for i, text in texts.items() if text.isprintable() and "\ufffd" not in text])


def find_tokens(tokenizer: str | None, model: str | None = None) -> Tokens:
    """What --tokenizer names (a folder, a tokenizer.json, a GGUF file, an alias or a Hugging Face id), else what MODEL does if it is here.

    A server's model name need not be a model on this machine: without --tokenizer nothing is fetched for it, and where nothing is found
    random ids are SAFE_IDS.

    Raises:
        InvalidRequestError, ModelFetchError: there is no such tokenizer.
        ModelFileError: it is malformed.
    """
    if tokenizer is not None:
        try:
            return Tokens.of(load_tokenizer(_place(tokenizer)))
        except InvalidRequestError as error:
            raise InvalidRequestError(str(error).replace("model", "tokenizer", 1), field="tokenizer") from error
    if model is None or not (model in ALIASES or Path(model).expanduser().exists()):
        return Tokens.safe()
    try:
        return Tokens.of(load_tokenizer(hub.resolve(model, download=False)))
    except ModelFetchError:
        return Tokens.safe()


def _place(tokenizer: str) -> Path:
    path = Path(tokenizer).expanduser()
    return path.parent if path.name == "tokenizer.json" and path.is_file() else hub.resolve(tokenizer)
