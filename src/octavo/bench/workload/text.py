"""Real text for prompts: the built-in one, or a file of the user's."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.bench.kv_report.text import read_text
from octavo.bench.strict_table import StrictTable
from octavo.errors import InvalidRequestError

RANDOM, BUILT_IN = "random", "text"
MAX_CHARACTERS = 50_000_000
"""Of a file, lest a wrong one takes all memory."""


@dataclass(frozen=True, kw_only=True)
class PromptText:
    """Text that prompts are cut from."""

    file: str | None = None
    """As it was named; None: the built-in text, two licences word for word."""
    field: str | None = None
    """Of a JSONL file: the key whose strings are the text."""
    text: str = dataclasses.field(repr=False)

    def as_toml(self) -> str | dict[str, Any]:
        """As it stands in a workload file under ``prompt``."""
        if self.file is None:
            return BUILT_IN
        return {"file": self.file} | ({} if self.field is None else {"field": self.field})


def built_in() -> PromptText:
    """The GPL and the Apache licence: plain English, about ten thousand tokens, which anyone may copy and distribute verbatim."""
    return PromptText(text=read_text(None))


def read_prompt(table: StrictTable, key: str, folder: Path) -> PromptText | None:
    """What ``key`` says prompts are made of; None for random tokens, which is the default. A file's path starts at ``folder``."""
    if not table.holds_table(key):
        return None if table.choice(key, (RANDOM, BUILT_IN), RANDOM) == RANDOM else built_in()
    inner = table.table(key)
    file = inner.text("file")
    name = inner.text("field") if inner.holds("field") else None
    inner.close()
    return read_prompt_file(file, name, folder)


def read_prompt_file(file: str, name: str | None = None, folder: Path = Path()) -> PromptText:
    """A plain text file, or, where ``name`` is given, the strings under that key of a JSONL file, a blank line between them.

    Raises:
        InvalidRequestError: it cannot be read, is not UTF-8 or JSONL, is too long, or has no text.
    """
    path = folder / Path(file).expanduser()
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise _refusal(path, error.strerror if isinstance(error, OSError) else "it is not UTF-8 text") from None
    if len(text) > MAX_CHARACTERS:
        raise _refusal(path, f"it has {len(text)} characters: at most {MAX_CHARACTERS}")
    if name is not None:
        text = "\n\n".join(_field(path, number, line, name) for number, line in enumerate(text.split("\n"), 1) if line.strip())
    if not text.strip():
        raise _refusal(path, "it has no text")
    return PromptText(file=file, field=name, text=text)


def _field(path: Path, number: int, line: str, name: str) -> str:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise _refusal(path, f"line {number}: it is not JSON") from None
    text = value.get(name) if isinstance(value, dict) else None
    if not isinstance(text, str):
        raise _refusal(path, f"line {number}: {name} = {text!r:.60}: it must be a string")
    return text


def _refusal(path: Path, limit: str | None) -> InvalidRequestError:
    return InvalidRequestError(f"{path}: {limit}", field="workload")
