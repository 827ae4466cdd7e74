"""A megabyte of anything is tokenized in time that grows with its length, not with its square."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from octavo.tokenizer.load import load_tokenizer
from octavo.tokenizer.tokenizer import Tokenizer

INPUTS = {
    "prose": "The quick brown fox jumps over 13 lazy dogs.\n",
    "letter": "a",
    "capital": "A",
    "mark": "\u0301",
    "space": " ",
    "newline": "\n",
    "digit": "1",
    "angle": "<",
    "almost special": "<unused",
    "no spaces": "今日はいい天気ですね",
}
MEGABYTE = 1_000_000
SECONDS = 20.0
"""Each takes under 2 s on a quiet machine; a quadratic tokenizer takes hours."""


@pytest.fixture(scope="module")
def real(smollm2_path: Path, gemma3_path: Path) -> dict[str, Tokenizer]:
    return {"smollm2": load_tokenizer(smollm2_path), "gemma3": load_tokenizer(gemma3_path)}


def measure(tokenizer: Tokenizer, unit: str, nbytes: int) -> float:
    """Seconds of CPU time (others may use the machine too) for ``unit`` repeated to ``nbytes``; the ids must spell it."""
    text = unit * (nbytes // len(unit.encode()))
    start = time.process_time()
    ids = tokenizer.encode(text)
    seconds = time.process_time() - start
    assert tokenizer.decode(ids) == text
    return seconds


@pytest.mark.parametrize("unit", INPUTS.values(), ids=INPUTS.keys())
@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_a_long_text_is_near_linear(name: str, unit: str, real: dict[str, Tokenizer]) -> None:
    """Eight times the text takes at most sixteen times as long (and 0.1 s), where a square would take 64 times."""
    short = min(measure(real[name], unit, MEGABYTE // 80) for _ in range(2))
    assert min(measure(real[name], unit, MEGABYTE // 10) for _ in range(2)) < 16 * short + 0.1


@pytest.mark.slow
@pytest.mark.parametrize("unit", INPUTS.values(), ids=INPUTS.keys())
@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_a_megabyte_takes_seconds(name: str, unit: str, real: dict[str, Tokenizer]) -> None:
    assert measure(real[name], unit, MEGABYTE) < SECONDS


@pytest.mark.slow
@pytest.mark.parametrize("unit", INPUTS.values(), ids=INPUTS.keys())
def test_a_megabyte_takes_seconds_in_every_kind_of_vocabulary(unit: str, tokenizer: Tokenizer) -> None:
    text = unit * (MEGABYTE // len(unit.encode()))
    start = time.process_time()
    tokenizer.encode(text)
    assert time.process_time() - start < SECONDS


@pytest.mark.parametrize("unit", INPUTS.values(), ids=INPUTS.keys())
def test_only_texts_that_are_too_long_are_called_so(unit: str, tokenizer: Tokenizer) -> None:
    text = unit * 1000
    count = len(tokenizer.encode(text))
    assert not tokenizer.surely_exceeds(text, count)
    assert tokenizer.surely_exceeds(text, len(text) // tokenizer.longest_token - 1)
