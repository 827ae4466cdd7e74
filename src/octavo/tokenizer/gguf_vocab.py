"""Tokenizers from GGUF metadata: the kinds "gpt2" (byte-level BPE) and "llama" (SentencePiece with scores).

What the keys mean is in the GGUF specification; where it is silent, llama.cpp's behaviour decides: which texts end a turn,
how special tokens are found, what a missing flag means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol

import tokenizers
from tokenizers import models, pre_tokenizers

from octavo.errors import ModelFileError
from octavo.tokenizer.library import encode
from octavo.tokenizer.pieces import SPACE_MARK, byte_level_bytes, byte_token
from octavo.tokenizer.pretokenizers import PRE_TOKENIZERS, PreTokenizer
from octavo.tokenizer.special import SpecialSplitter
from octavo.tokenizer.spm import ScoreMerger
from octavo.tokenizer.tokenizer import Tokenizer, TokenizerInfo

_PREFIX = "tokenizer.ggml."


class TokenType(IntEnum):
    """``tokenizer.ggml.token_type``."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


_END_OF_GENERATION = frozenset({
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>",
    "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<｜end▁of▁sentence｜>",
})  # fmt: skip
"""Tokens after which llama.cpp ends a generation, whatever the file's eos id and their type."""
_MARKUP = "</s>"
"""Ends one only where it is a control token: among Gemma's user-defined tokens it is HTML, and llama.cpp stops there wrongly."""
_FILL_IN_THE_MIDDLE = {
    "fim_pad_token_id": "<|fim_pad|> <fim-pad> <fim_pad> <PAD> [PAD]",
    "fim_rep_token_id": "<|fim_repo|> <|repo_name|> <fim-repo> <REPO> <reponame>",
    "fim_sep_token_id": "<|file_sep|>",
}
"""Tokens that end a generation too (padding, and where another repository or file begins): key, and texts where the key is missing."""


class TextEncoder(Protocol):
    """How a kind of vocabulary tokenizes text without special tokens, and writes it."""

    def encode(self, text: str, after_special: bool) -> list[int]:
        """``after_special``: the text is the first, or follows a special token."""

    def token_bytes(self, token: str) -> bytes:
        """The bytes of a normal token."""


class GGUFVocabulary:
    """Special tokens around a text encoder. Implements ``Vocabulary``."""

    def __init__(self, tokens: list[str], ids: dict[str, int], types: list[int], encoder: TextEncoder) -> None:
        self._tokens = tokens
        self._ids = ids
        self._types = types
        self._encoder = encoder
        found = (TokenType.CONTROL, TokenType.USER_DEFINED, TokenType.UNKNOWN)
        self._splitter = SpecialSplitter({token: token_id for token_id, token in enumerate(tokens) if types[token_id] in found})
        self.prefix: list[int] = []
        """Ids around a text with special tokens: BOS and EOS, where the model wants them."""
        self.suffix: list[int] = []

    @property
    def size(self) -> int:
        return len(self._tokens)

    def id_to_token(self, token_id: int) -> str | None:
        return self._tokens[token_id] if 0 <= token_id < len(self._tokens) else None

    def token_to_id(self, token: str) -> int | None:
        return self._ids.get(token)

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        ids: list[int] = []
        after_special = True
        for part in self._splitter.split(text):
            if isinstance(part, int):
                ids.append(part)
            else:
                ids += self._encoder.encode(part, after_special)
            after_special = isinstance(part, int)
        return self.prefix + ids + self.suffix if add_special_tokens else ids

    def token_bytes(self, token_id: int) -> bytes:
        token = self.id_to_token(token_id)
        if token is None:
            return b""
        match self._types[token_id]:
            case TokenType.NORMAL:
                return self._encoder.token_bytes(token)
            case TokenType.BYTE:
                return byte_token(token) or token.encode()
            case TokenType.CONTROL | TokenType.USER_DEFINED | TokenType.UNKNOWN:
                return token.encode()
        return b""


class ByteLevelEncoder:
    """Byte-level BPE, on the tokenizers library."""

    def __init__(self, ids: dict[str, int], merges: list[str], pre: PreTokenizer) -> None:
        """Raises ValueError where a merge names a token that the vocabulary does not have."""
        pairs = []
        for merge in merges:
            cut = merge.find(" ", 1)
            pairs.append((merge[:cut], merge[cut + 1 :]))
        try:
            self._bpe = tokenizers.Tokenizer(models.BPE(vocab=ids, merges=pairs, ignore_merges=pre.ignore_merges))
        except Exception as error:  # The library raises plain Exception.
            raise ValueError(str(error)) from error
        splits = [pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated") for pattern in pre.patterns]
        self._bpe.pre_tokenizer = pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])

    def encode(self, text: str, after_special: bool) -> list[int]:
        return encode(self._bpe, text, add_special_tokens=False)

    def token_bytes(self, token: str) -> bytes:
        return byte_level_bytes(token)


class ScoredEncoder:
    """SentencePiece with scores; spaces are part of the tokens."""

    def __init__(self, ids: dict[str, int], scores: Sequence[float], add_space_prefix: bool) -> None:
        self._merger = ScoreMerger(ids, scores)
        self._add_space_prefix = add_space_prefix

    def encode(self, text: str, after_special: bool) -> list[int]:
        prefix = SPACE_MARK if self._add_space_prefix and after_special else ""
        return self._merger.encode(prefix + text.replace(" ", SPACE_MARK))

    def token_bytes(self, token: str) -> bytes:
        return token.replace(SPACE_MARK, " ").encode()


@dataclass(frozen=True)
class _Keys:
    """The keys ``tokenizer.ggml.*`` of one file, checked as they are read."""

    metadata: Mapping[str, Any]
    path: str

    def error(self, key: str, problem: str) -> ModelFileError:
        return ModelFileError(f"{self.path}: {_PREFIX}{key}: {problem}")

    def flag(self, key: str, default: bool) -> bool:
        return bool(self.metadata.get(_PREFIX + key, default))

    def token_id(self, key: str, default: int | None, size: int) -> int | None:
        value = self.metadata.get(_PREFIX + key, default)
        return value if isinstance(value, int) and 0 <= value < size else None

    def array(self, key: str, kind: type | tuple[type, ...], size: int | None = None) -> list[Any] | None:
        """A list of ``kind``, of at least ``size`` items; None if the file has no such key."""
        value = self.metadata.get(_PREFIX + key)
        if value is None:
            return None
        if not isinstance(value, list) or (value and not isinstance(value[0], kind)):
            raise self.error(key, "it is not an array of the expected type")
        if size is not None and len(value) < size:
            raise self.error(key, f"it has {len(value)} items for {size} tokens")
        return value


def tokenizer_from_metadata(metadata: Mapping[str, Any], path: str) -> Tokenizer:
    """The tokenizer that a GGUF file's metadata describes; ``path`` is for messages.

    Raises:
        ModelFileError: naming the key that is missing, malformed or of a kind that Octavo does not know.
    """
    keys = _Keys(metadata, path)
    model = metadata.get(_PREFIX + "model")
    if model not in ("gpt2", "llama"):
        raise keys.error("model", f"{model!r} is not supported; gpt2 (byte-level BPE) and llama (SentencePiece) are")
    tokens, ids = _read_tokens(keys)
    types = keys.array("token_type", int, len(tokens)) or [int(TokenType.NORMAL)] * len(tokens)
    types = _mark_turn_ends(types, ids)
    if model == "llama":
        return _assemble(keys, tokens, ids, types, _scored_encoder(keys, ids, len(tokens)), add_bos=True, defaults=(1, 2))
    pre = _pre_tokenizer(keys)
    return _assemble(keys, tokens, ids, types, _byte_level_encoder(keys, ids, pre), add_bos=pre.add_bos, defaults=(None, None))


def _read_tokens(keys: _Keys) -> tuple[list[str], dict[str, int]]:
    tokens = keys.array("tokens", str)
    if not tokens:
        raise keys.error("tokens", "it is missing or empty")
    if "" in tokens:
        tokens = [token or f"[EMPTY_{token_id}]" for token_id, token in enumerate(tokens)]
    ids = dict(zip(tokens, range(len(tokens)), strict=True))
    if len(ids) < len(tokens):
        twice = next(token for token_id, token in enumerate(tokens) if ids[token] != token_id)
        raise keys.error("tokens", f"token {twice!r} occurs twice")
    return tokens, ids


def _mark_turn_ends(types: list[int], ids: Mapping[str, int]) -> list[int]:
    """Types in which every token that ends a turn is a control token: some files call them normal."""
    types = list(types)
    for text in _END_OF_GENERATION - {_MARKUP}:
        if text in ids:
            types[ids[text]] = TokenType.CONTROL
    return types


def _pre_tokenizer(keys: _Keys) -> PreTokenizer:
    name = keys.metadata.get(_PREFIX + "pre", "default")
    if not isinstance(name, str) or name not in PRE_TOKENIZERS:
        raise keys.error("pre", f"the pre-tokenizer {name!r} is not known (known are: {', '.join(sorted(PRE_TOKENIZERS))})")
    return PRE_TOKENIZERS[name]


def _byte_level_encoder(keys: _Keys, ids: dict[str, int], pre: PreTokenizer) -> ByteLevelEncoder:
    merges = keys.array("merges", str)
    if merges is None:
        raise keys.error("merges", "it is missing")
    try:
        return ByteLevelEncoder(ids, merges, pre)
    except ValueError as error:
        raise keys.error("merges", str(error)) from error


def _scored_encoder(keys: _Keys, ids: dict[str, int], size: int) -> ScoredEncoder:
    scores = keys.array("scores", (int, float), size)
    return ScoredEncoder(ids, scores[:size] if scores else [0.0] * size, keys.flag("add_space_prefix", True))


def _assemble(
    keys: _Keys,
    tokens: list[str],
    ids: dict[str, int],
    types: list[int],
    encoder: TextEncoder,
    add_bos: bool,
    defaults: tuple[int | None, int | None],
) -> Tokenizer:
    """``defaults``: bos and eos ids where the file names none."""
    vocabulary = GGUFVocabulary(tokens, ids, types, encoder)
    bos = keys.token_id("bos_token_id", defaults[0], len(tokens))
    eos = keys.token_id("eos_token_id", defaults[1], len(tokens))
    add_bos = keys.flag("add_bos_token", add_bos) and bos is not None
    if add_bos and bos is not None:
        vocabulary.prefix = [bos]
    if keys.flag("add_eos_token", False) and eos is not None:
        vocabulary.suffix = [eos]
    hidden = (TokenType.CONTROL, TokenType.UNKNOWN)
    template = keys.metadata.get("tokenizer.chat_template")
    info = TokenizerInfo(
        bos_token_id=bos,
        eos_token_ids=_end_ids(keys, ids, types, eos),
        special_ids=frozenset(token_id for token_id in range(len(tokens)) if types[token_id] in hidden),
        add_bos=add_bos,
        start_strip=1 if isinstance(encoder, ScoredEncoder) and keys.flag("add_space_prefix", True) else 0,
        chat_template=template if isinstance(template, str) else None,
    )
    return Tokenizer(vocabulary, info)


def _end_ids(keys: _Keys, ids: Mapping[str, int], types: Sequence[int], eos: int | None) -> tuple[int, ...]:
    """Ids that end a generation: the file's eos first, then the others by id."""
    ends = {keys.token_id(key, None, len(types)) for key in ("eot_token_id", "eom_token_id")}
    ends |= {ids[text] for text in _END_OF_GENERATION if text in ids and (text != _MARKUP or types[ids[text]] == TokenType.CONTROL)}
    for key, texts in _FILL_IN_THE_MIDDLE.items():
        named = keys.token_id(key, None, len(types))
        ends |= {ids[text] for text in texts.split() if text in ids} if named is None else {named}
    others = sorted(token_id for token_id in ends if token_id is not None and token_id != eos)
    return tuple(others) if eos is None else (eos, *others)
