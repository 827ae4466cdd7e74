"""What the scripted servers of the tests say, by seed; and the tokenizer that spells it."""

from __future__ import annotations

from support.toy_tokenizer import byte_level

EMOJI_HALVES = ("😊".encode()[:2], "😊".encode()[2:])
TOKENIZER, IDS = byte_level(["ABC", "DEF", "G", "HI", "J", "Hello", " world", "\n", " has", *EMOJI_HALVES])
END_OF_TEXT, IM_START, IM_END = 0, 1, 2


def byte_ids(text: str | bytes) -> list[int]:
    """Ids of the tokens that stand for single bytes."""
    return [3 + byte for byte in (text.encode() if isinstance(text, str) else text)]


OUTPUTS = {
    "letters": [IDS[piece] for piece in ("ABC", "DEF", "G", "HI", "J")],
    "emoji": byte_ids("a😊b"),
    "accents": byte_ids("ďábelské 夢"),
    "cut": byte_ids(b"a" + "😊".encode()[:2]),
    "special": [IDS["Hello"], IM_END, IDS[" world"]],
    "long": [IDS["G"]] * 1500,
    "spaces": byte_ids("  two  spaces .\n\n has"),
    "halves": [*byte_ids("a"), *(IDS[half] for half in EMOJI_HALVES), *byte_ids("b")],
}
"""What a request gets whose seed is the place of the name here."""

SEEDS = {name: seed for seed, name in enumerate(OUTPUTS)}
