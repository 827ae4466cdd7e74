"""Cutting a text at special tokens."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.tokenizer.special import SpecialSplitter


def plainly(text: str, tokens: list[str]) -> list[str | int]:
    """Each token in turn, the longest in bytes first and the earlier of equals, cuts whatever text is left."""
    parts: list[str | int] = [text]
    for token in sorted(tokens, key=lambda t: -len(t.encode())):
        cut: list[str | int] = []
        for part in parts:
            while isinstance(part, str) and (at := part.find(token)) >= 0:
                cut += [part[:at], tokens.index(token)]
                part = part[at + len(token) :]
            cut.append(part)
        parts = cut
    return [part for part in parts if part != ""]


@settings(deadline=None, max_examples=300)
@given(tokens=st.lists(st.text("<ab>é", min_size=1, max_size=4), unique=True, max_size=12), text=st.text("<ab>é", max_size=30))
def test_splits_are_the_rules(tokens: list[str], text: str) -> None:
    splitter = SpecialSplitter({token: i for i, token in enumerate(tokens)})
    assert splitter.split(text) == plainly(text, tokens)


def test_a_large_family_of_tokens_is_found_too() -> None:
    tokens = [f"<unused{i}>" for i in range(500)]
    splitter = SpecialSplitter({token: i for i, token in enumerate(tokens)})
    assert splitter.split("<unused1><unused12>x<unused499><unused500> <unused") == [1, 12, "x", 499, "<unused500> <unused"]
