"""Calls of the tokenizers library."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import tokenizers

from octavo.tokenizer.library import encode
from octavo.tokenizer.load import load_tokenizer
from support.toy_tokenizer import byte_level


def test_ids_are_those_of_the_plain_call() -> None:
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(byte_level()[0]))
    for text in ("", "hello  world", "<|im_start|>héllo 😀", "\n\n  1234"):
        for special in (False, True):
            assert encode(tokenizer, text, special) == tokenizer.encode(text, add_special_tokens=special).ids


def test_other_threads_go_on_while_a_long_text_is_tokenized(smollm2_path: Path) -> None:
    """Digits are the slowest: 300,000 of them take most of a second, in which another thread must get its turns."""
    tokenizer = load_tokenizer(smollm2_path)
    worker = threading.Thread(target=tokenizer.encode, args=("1" * 300_000,))
    turns = 0
    worker.start()
    while worker.is_alive():
        worker.join(0.001)
        turns += 1
    assert turns > 20
