"""Small tokenizers with known ids, saved as the folders that models come in."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from support.scripted import Script

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
"""Ids 0, 1, 2."""


def _byte_characters() -> list[str]:
    """The character that stands for each byte in byte-level vocabularies (Radford et al. 2019, GPT-2)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return [chr(b) if b in plain else chr(256 + others.index(b)) for b in range(256)]


def byte_level(extra: Sequence[str | bytes] = ()) -> tuple[dict, dict[Any, int]]:
    """A tokenizer.json whose tokens are the special ones, the 256 bytes, and ``extra`` texts or bytes, which encoding never uses."""
    characters = _byte_characters()
    names = {text: "".join(characters[b] for b in (text.encode() if isinstance(text, str) else text)) for text in extra}
    vocab = {name: i for i, name in enumerate(dict.fromkeys([*SPECIALS, *characters, *names.values()]))}
    ids = {text: vocab[name] for text, name in names.items()}
    byte_level_step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return _document(vocab, byte_level_step, byte_level_step), ids


def sentence_piece(pieces: Sequence[str]) -> tuple[dict, dict[str, int]]:
    """A tokenizer.json in SentencePiece's manner: "▁" for a space, <0xNN> for bytes, one leading space stripped on decoding."""
    names = [*SPECIALS, *(f"<0x{b:02X}>" for b in range(256)), *pieces]
    vocab = {name: i for i, name in enumerate(dict.fromkeys(names))}
    decoder = {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ],
    }
    return _document(vocab, None, decoder, byte_fallback=True), {piece: vocab[piece] for piece in pieces}


def _document(vocab: dict[str, int], pre_tokenizer: dict | None, decoder: dict, byte_fallback: bool = False) -> dict:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": vocab[name], "content": name, **flags} for name in SPECIALS],
        "normalizer": None,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": decoder,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": byte_fallback,
            "vocab": vocab,
            "merges": [],
        },
    }


CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_model(folder: Path, script: Script, tokenizer: dict | None = None) -> str:
    """A folder that stands for a scripted model; returns its path, for EngineArgs.model."""
    folder.mkdir(parents=True, exist_ok=True)
    document = tokenizer if tokenizer is not None else byte_level()[0]
    write_tokenizer(folder, document)
    (folder / "model.safetensors").write_bytes(b"")  # what makes a folder a model's
    script.save(folder)
    return str(folder)


def write_tokenizer(folder: Path, document: dict) -> None:
    """A tokenizer's files, with CHAT_TEMPLATE."""
    (folder / "tokenizer.json").write_text(json.dumps(document))
    config = {"eos_token": SPECIALS[0], "chat_template": CHAT_TEMPLATE, "tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
