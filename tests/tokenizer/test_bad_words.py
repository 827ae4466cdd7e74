"""Bad words as token sequences."""

from __future__ import annotations

from octavo.tokenizer.tokenizer import Tokenizer, bad_word_token_ids


def test_both_forms_of_a_word(vocabularies: dict[str, Tokenizer]) -> None:
    """The word at the start of a text and within one are other tokens, and both are barred."""
    tokenizer = vocabularies["gguf_bpe"]
    bare, spaced = tokenizer.encode("the", False), tokenizer.encode(" the", False)
    assert bare != spaced
    for word in ("the", " the"):
        assert bad_word_token_ids([word], tokenizer) == [bare, spaced]


def test_every_sequence_spells_its_word(tokenizer: Tokenizer) -> None:
    for word in ("fox", "the", "Café", "日本", "😊"):
        sequences = bad_word_token_ids([word], tokenizer)
        assert sequences
        assert {tokenizer.decode(ids).strip() for ids in sequences} == {word}


def test_a_form_that_the_other_ends_is_left_out(vocabularies: dict[str, Tokenizer]) -> None:
    """Where a space is a token of its own, the word after it is barred with the word."""
    tokenizer = vocabularies["gguf_bpe"]
    space = tokenizer.encode(" ", False)
    ids = tokenizer.encode("ů", False)
    assert tokenizer.encode(" ů", False) == space + ids
    assert bad_word_token_ids(["ů"], tokenizer) == [ids]


def test_white_space_is_a_word(vocabularies: dict[str, Tokenizer]) -> None:
    tokenizer = vocabularies["gguf_bpe"]
    assert bad_word_token_ids(["\n"], tokenizer)[0] == tokenizer.encode("\n", False)
    assert bad_word_token_ids([" "], tokenizer) == [tokenizer.encode(" ", False)]
