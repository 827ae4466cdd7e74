"""Tokenizers from Hugging Face folders: tokenizer.json, and the files beside it that say which tokens are special."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers

from octavo.errors import ModelFileError
from octavo.tokenizer.library import encode
from octavo.tokenizer.pieces import byte_level_bytes, byte_token
from octavo.tokenizer.tokenizer import Tokenizer, TokenizerInfo

_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_NAMED_LISTS = ("additional_special_tokens", "extra_special_tokens")
_ALL_SPACES = 1 << 30


class HuggingFaceVocabulary:
    """A tokenizer.json in the tokenizers library. Implements ``Vocabulary``."""

    def __init__(self, tokenizer: tokenizers.Tokenizer, to_bytes: Callable[[str], bytes]) -> None:
        self._tokenizer = tokenizer
        self._to_bytes = to_bytes
        ids = tokenizer.get_added_tokens_decoder()
        self.size = max(tokenizer.get_vocab_size(with_added_tokens=True), max(ids, default=-1) + 1)

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        return encode(self._tokenizer, text, add_special_tokens)

    def id_to_token(self, token_id: int) -> str | None:
        token: str | None = self._tokenizer.id_to_token(token_id) if 0 <= token_id < self.size else None
        return token

    def token_to_id(self, token: str) -> int | None:
        token_id: int | None = self._tokenizer.token_to_id(token)
        return token_id

    def token_bytes(self, token_id: int) -> bytes:
        token = self.id_to_token(token_id)
        return b"" if token is None else self._to_bytes(token)


@dataclass(frozen=True)
class _Decoder:
    """A tokenizer.json's decoder, as what it makes of one token and of the first."""

    byte_level: bool = False
    byte_fallback: bool = False
    replacements: tuple[tuple[str, str], ...] = ()
    start_strip: int = 0

    def to_bytes(self, token: str) -> bytes:
        if self.byte_fallback and (byte := byte_token(token)) is not None:
            return byte
        for old, new in self.replacements:
            token = token.replace(old, new)
        return byte_level_bytes(token) if self.byte_level else token.encode("utf-8", "replace")


def load_folder(folder: Path) -> Tokenizer:
    """The tokenizer of a Hugging Face folder.

    Raises:
        ModelFileError: tokenizer.json is missing, malformed, or has a decoder that Octavo does not know.
    """
    path = folder / "tokenizer.json"
    if not path.exists():
        raise ModelFileError(f"{folder}: it has no tokenizer.json")
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # The library raises plain Exception.
        raise ModelFileError(f"{path}: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    decoder = _read_decoder(tokenizer, path)
    try:
        info = _read_info(folder, tokenizer, decoder.start_strip)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ModelFileError(f"{folder}: the configuration beside tokenizer.json is malformed: {type(error).__name__}: {error}") from error
    return Tokenizer(HuggingFaceVocabulary(tokenizer, decoder.to_bytes), info)


def _read_info(folder: Path, tokenizer: tokenizers.Tokenizer, start_strip: int) -> TokenizerInfo:
    """What the files beside tokenizer.json say; adds the special tokens that they name to ``tokenizer``."""
    config: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        config |= {key: value for key, value in _read_json(folder / name).items() if value is not None}
    _add_special_tokens(tokenizer, config)
    bos = _token_id(tokenizer, config.get("bos_token"))
    first = tokenizer.encode("", add_special_tokens=True).ids[:1]
    return TokenizerInfo(
        bos_token_id=bos,
        eos_token_ids=tuple(dict.fromkeys(_end_ids(tokenizer, config, folder))),
        special_ids=frozenset(i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special),
        add_bos=bos is not None and first == [bos],
        start_strip=start_strip,
        chat_template=_chat_template(folder, config),
    )


def _read_json(path: Path) -> dict[str, Any]:
    """A JSON object; empty if there is no such file."""
    if not path.exists():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelFileError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelFileError(f"{path}: it holds no JSON object")
    return value


def _content(token: Any) -> str | None:
    """The text of a token, which a config gives as a string or as a serialized AddedToken."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def _token_id(tokenizer: tokenizers.Tokenizer, token: Any) -> int | None:
    text = _content(token)
    token_id: int | None = None if text is None else tokenizer.token_to_id(text)
    return token_id


def _special_names(config: dict[str, Any]) -> Iterator[str]:
    for name in _NAMED:
        if text := _content(config.get(name)):
            yield text
    for name in _NAMED_LISTS:
        tokens = config.get(name) or ()
        yield from filter(None, map(_content, tokens.values() if isinstance(tokens, dict) else tokens))


def _add_special_tokens(tokenizer: tokenizers.Tokenizer, config: dict[str, Any]) -> None:
    """Make special what the configuration names and tokenizer.json does not list, as transformers does."""
    added = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    listed = config.get("added_tokens_decoder")
    for _, token in sorted((listed or {}).items(), key=lambda item: int(item[0])):
        if token["content"] not in added:
            tokenizer.add_tokens([tokenizers.AddedToken(**{key: token[key] for key in token if key != "__type"})])
            added.add(token["content"])
    missing = [text for text in dict.fromkeys(_special_names(config)) if text not in added]
    tokenizer.add_special_tokens([tokenizers.AddedToken(text, special=True) for text in missing])


def _end_ids(tokenizer: tokenizers.Tokenizer, config: dict[str, Any], folder: Path) -> Iterator[int]:
    """The tokenizer's end token, then those of generation_config.json or, if it names none, of config.json."""
    eos = _token_id(tokenizer, config.get("eos_token"))
    if eos is not None:
        yield eos
    for name in ("generation_config.json", "config.json"):
        ids = _read_json(folder / name).get("eos_token_id")
        if ids is not None:
            yield from map(int, ids if isinstance(ids, list) else [ids])
            return


def _chat_template(folder: Path, config: dict[str, Any]) -> str | None:
    """chat_template.jinja comes before the configuration's template, of which there may be several by name."""
    file = folder / "chat_template.jinja"
    if file.exists():
        return file.read_text(encoding="utf-8")
    template = config.get("chat_template") or _read_json(folder / "chat_template.json").get("chat_template")
    if isinstance(template, list):
        template = {item["name"]: item["template"] for item in template}.get("default")
    return template if isinstance(template, str) else None


def _read_decoder(tokenizer: tokenizers.Tokenizer, path: Path) -> _Decoder:
    if tokenizer.decoder is None:
        raise ModelFileError(f"{path}: decoder: it is missing")
    spec = json.loads(tokenizer.decoder.__getstate__())
    steps = spec["decoders"] if spec["type"] == "Sequence" else [spec]
    byte_level = byte_fallback = False
    replacements: list[tuple[str, str]] = []
    start_strip = 0
    for step in steps:
        match step:
            case {"type": "ByteLevel"}:
                byte_level = True
            case {"type": "ByteFallback"}:
                byte_fallback = True
            case {"type": "Fuse"}:
                pass
            case {"type": "Replace", "pattern": {"String": old}, "content": new}:
                replacements.append((old, new))
            case {"type": "Strip", "content": " ", "start": start, "stop": 0}:
                start_strip = start
            case {"type": "Metaspace", "replacement": mark, "prepend_scheme": scheme}:
                replacements.append((mark, " "))
                start_strip = 0 if scheme == "never" else _ALL_SPACES
            case _:
                raise ModelFileError(f"{path}: decoder: {json.dumps(step)} is not supported")
    return _Decoder(byte_level, byte_fallback, tuple(replacements), start_strip)
