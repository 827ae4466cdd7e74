"""How the vocabularies of this field write bytes as text."""

from __future__ import annotations

import re

SPACE_MARK = "▁"
"""U+2581: how SentencePiece vocabularies write a space."""

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_alphabet() -> list[str]:
    """GPT-2's: byte b is written as the character [b]; the printable ones of Latin-1 as themselves, the others from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [b for b in range(256) if b not in printable]
    return [chr(b) if b in printable else chr(0x100 + others.index(b)) for b in range(256)]


BYTE_ALPHABET = _byte_alphabet()
_BYTE_OF = {ord(char): byte for byte, char in enumerate(BYTE_ALPHABET)}


def byte_level_bytes(token: str) -> bytes:
    """The bytes of a token in GPT-2's alphabet; a token with any other character stands for its own text."""
    try:
        return bytes([_BYTE_OF[ord(char)] for char in token])
    except KeyError:
        return token.encode("utf-8", "replace")


def byte_token(token: str) -> bytes | None:
    """The byte of a token such as "<0xE5>"; None for any other token."""
    match = _BYTE_TOKEN.fullmatch(token)
    return bytes([int(match[1], 16)]) if match else None
