"""Score-ordered merging, against the rule written down plainly."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.tokenizer.spm import ScoreMerger

LETTERS = "ab▁é日"
vocabularies = st.dictionaries(st.text(LETTERS, min_size=1, max_size=4), st.integers(-3, 3), max_size=25)


def plainly(text: str, score: dict[str, float]) -> list[str]:
    """Merge the best neighbours, the leftmost of equals, until no two make a token."""
    symbols = list(text)
    while True:
        pairs = [(-score[a + b], i) for i, (a, b) in enumerate(pairwise(symbols)) if a + b in score]
        if not pairs:
            return symbols
        _, i = min(pairs)
        symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]


@settings(deadline=None, max_examples=300)
@given(scores=vocabularies, text=st.text(LETTERS, max_size=30))
def test_merges_are_the_rules(scores: dict[str, int], text: str) -> None:
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    tokens = [*byte_tokens, *scores]
    ids = {token: i for i, token in enumerate(tokens)}
    score = dict.fromkeys(byte_tokens, 0.0) | {token: float(s) for token, s in scores.items()}
    expected: list[int] = []
    for symbol in plainly(text, score):
        expected += [ids[symbol]] if symbol in ids else [ids[f"<0x{byte:02X}>"] for byte in symbol.encode()]
    merger = ScoreMerger(ids, [score[token] for token in tokens])
    assert merger.encode(text) == expected
    assert merger.encode(text) == expected  # From the cache.


def test_a_byte_without_a_byte_token_is_its_character_or_nothing() -> None:
    """As llama.cpp looks bytes up: "<0x7A>", else "z"; a byte that is neither is left out."""
    merger = ScoreMerger({"z": 0, "<0xC3>": 1}, [0.0, 0.0])
    assert merger.encode("zé!") == [0, 1]
