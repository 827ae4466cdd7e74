"""Recorded loads: JSONL or CSV files of one request a line, with its time and its lengths.

The names and units are those of public traces: Mooncake's (JSONL, ``timestamp`` in milliseconds, ``hash_ids`` of 512-token blocks),
BurstGPT's (CSV, ``Timestamp`` in seconds) and the Azure LLM inference traces' (CSV, ``TIMESTAMP`` a date). Other columns are not read.
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn, TypeGuard

from octavo.bench.strict_table import StrictTable
from octavo.bench.workload.bounds import MAX_REQUESTS, MAX_SECONDS, MAX_TOKENS
from octavo.bench.workload.text import PromptText, read_prompt
from octavo.errors import InvalidRequestError

UNITS = {"ms": 0.001, "s": 1.0}
TIMES = {"timestamp": "ms", "Timestamp": "s", "TIMESTAMP": "date", "arrival": "s"}
"""Names of the time, and the unit of each where ``time_unit`` does not say otherwise."""
INPUTS = ("input_length", "input_tokens", "prompt_tokens", "Request tokens", "ContextTokens")
OUTPUTS = ("output_length", "output_tokens", "completion_tokens", "Response tokens", "GeneratedTokens")
KINDS = ("kind", "type", "Log Type")
TENANTS = ("tenant", "user")
MAX_SPEEDUP = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRow:
    """One request of a trace."""

    time: float
    """Seconds after the replay's start, at the trace's own speed."""
    input_tokens: int
    output_tokens: int
    max_tokens: int
    kind: str
    tenant: str | None
    blocks: tuple[int, ...]
    """Its prompt's blocks, from the first: the same number, the same tokens. Empty: it shares none."""


@dataclass(frozen=True, kw_only=True)
class Trace:
    """Requests as they were recorded."""

    file: str
    """As it was named."""
    rows: tuple[TraceRow, ...] = field(repr=False)
    """In order of time."""
    speedup: float = 1.0
    """Replays so many seconds of the trace in one."""
    start: float = 0.0
    """Seconds of the trace, after its first request, that are left out."""
    duration: float | None = None
    """Seconds of the trace that are replayed; None: to its end."""
    time_unit: str | None = None
    """ms, s or date; None: what the time's name says."""
    block_size: int = 512
    """Tokens of a block that ``hash_ids`` count."""
    prompt: PromptText | None = None
    """What prompts are made of; None: random tokens."""

    @property
    def max_model_len(self) -> int:
        """The context that its longest request may need."""
        return max(row.input_tokens + row.max_tokens for row in self.rows)

    def as_toml(self) -> dict[str, Any]:
        values = {"file": self.file, "speedup": self.speedup, "start": self.start, "block_size": self.block_size}
        optional = {"duration": self.duration, "time_unit": self.time_unit, "prompt": self.prompt and self.prompt.as_toml()}
        return values | {key: value for key, value in optional.items() if value is not None}


def read_trace(table: StrictTable, folder: Path) -> Trace:
    """The trace that a workload file's [trace] names; its path starts at ``folder``.

    Raises:
        InvalidRequestError: for the table, or for a line of the trace, by file, line, key, value and limit.
    """
    file = table.text("file")
    speedup = table.number("speedup", 1e-6, MAX_SPEEDUP, 1.0)
    start = table.number("start", 0, MAX_SECONDS, 0.0)
    duration = table.number("duration", 1e-3, MAX_SECONDS) if table.holds("duration") else None
    time_unit = table.choice("time_unit", (*UNITS, "date")) if table.holds("time_unit") else None
    block_size = table.integer("block_size", 1, MAX_TOKENS, 512)
    prompt = read_prompt(table, "prompt", folder)
    table.close()
    rows = _read_rows(folder / Path(file).expanduser(), time_unit, block_size, start, duration)
    return Trace(
        file=file,
        rows=rows,
        speedup=speedup,
        start=start,
        duration=duration,
        time_unit=time_unit,
        block_size=block_size,
        prompt=prompt,
    )


def _read_rows(path: Path, time_unit: str | None, block_size: int, start: float, duration: float | None) -> tuple[TraceRow, ...]:
    """All requests from ``start`` on, for ``duration``; their times count from ``start``."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InvalidRequestError(f"file = {path}: {reason}", field="workload") from None
    lines = _csv_lines(text, path) if path.suffix.lower() == ".csv" else _json_lines(text, path)
    read = [_Line(path, number, values).row(time_unit, block_size) for number, values in lines]
    if not read:
        raise InvalidRequestError(f"{path}: it has no requests", field="workload")
    if len(read) > MAX_REQUESTS:
        raise InvalidRequestError(f"{path}: it has {len(read)} requests: at most {MAX_REQUESTS}", field="workload")
    read.sort(key=lambda row: row.time)  # stable: requests of one time stay in the file's order
    origin = read[0].time + start
    end = math.inf if duration is None else origin + duration
    rows = tuple(dataclasses.replace(row, time=row.time - origin) for row in read if origin <= row.time < end)
    if not rows:
        length = read[-1].time - read[0].time
        raise InvalidRequestError(f"{path}: start = {start:g}: it has no request from there on; it lasts {length:g} s", field="workload")
    return rows


def _json_lines(text: str, path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise InvalidRequestError(f"{path}: line {number}: it is not JSON ({error})", field="workload") from None
            if not isinstance(value, dict):
                raise InvalidRequestError(f"{path}: line {number}: {str(value)[:50]}: it must be a JSON object", field="workload")
            yield number, value


def _csv_lines(text: str, path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Numbers and dates are strings here: ``_Line`` takes both."""
    reader = csv.DictReader(io.StringIO(text, newline=""))
    try:
        for values in reader:
            yield reader.line_num, {key: value for key, value in values.items() if isinstance(key, str) and value is not None}
    except csv.Error as error:
        raise InvalidRequestError(f"{path}: line {reader.line_num}: it is not CSV ({error})", field="workload") from None


class _Line:
    """One line. Its methods raise InvalidRequestError, by file, line, key, value and limit."""

    def __init__(self, path: Path, number: int, values: Mapping[str, Any]) -> None:
        self._place = f"{path}: line {number}"
        self._values = values

    def row(self, time_unit: str | None, block_size: int) -> TraceRow:
        input_tokens, output_tokens = self._tokens(INPUTS), self._tokens(OUTPUTS)
        return TraceRow(
            time=self._time(time_unit),
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            max_tokens=self._tokens(("max_tokens",), low=output_tokens) if "max_tokens" in self._values else output_tokens,
            kind=self._text(KINDS) or "trace",
            tenant=self._text(TENANTS),
            blocks=self._blocks(-(-input_tokens // block_size), block_size),
        )

    def _time(self, time_unit: str | None) -> float:
        """Seconds; since when does not matter."""
        key = self._key(TIMES)
        unit, value = time_unit or TIMES[key], self._values[key]
        if unit == "date":
            return self._date(key, value)
        seconds = _number(value) * UNITS[unit]
        if not 0 <= seconds <= MAX_SECONDS * 10:
            self._refuse(key, value, f"it must be a number from 0, in {unit} ([trace] time_unit says otherwise)")
        return seconds

    def _date(self, key: str, value: object) -> float:
        """Without a time zone it is UTC."""
        try:
            date = datetime.fromisoformat(value if isinstance(value, str) else "")
        except ValueError:
            self._refuse(key, value, "it must be a date and time, such as 2026-01-31 12:00:00.25")
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()

    def _tokens(self, names: Sequence[str], low: int = 1) -> int:
        key = self._key(names)
        tokens = _number(self._values[key])
        if not (low <= tokens <= MAX_TOKENS and tokens == int(tokens)):
            self._refuse(key, self._values[key], f"it must be an integer from {low} to {MAX_TOKENS}")
        return int(tokens)

    def _text(self, names: Sequence[str]) -> str | None:
        """Of a key that may be left out, or null, or empty."""
        key = next((name for name in names if name in self._values), None)
        value = None if key is None else self._values[key]
        if key is not None and value is not None and not isinstance(value, str):
            self._refuse(key, value, "it must be a string")
        return value or None

    def _blocks(self, most: int, block_size: int) -> tuple[int, ...]:
        value = self._values.get("hash_ids")
        if value is None or value == "":
            return ()
        if not isinstance(value, list) or not all(isinstance(each, str) or (_whole(each) and 0 <= each < 2**64) for each in value):
            self._refuse("hash_ids", value, "it must be a list of integers from 0 to 2^64 - 1, or of strings")
        if len(value) > most:
            self._refuse("hash_ids", value, f"the prompt has {most} blocks of {block_size} tokens at most ([trace] block_size)")
        return tuple(each if isinstance(each, int) else _digest(each) for each in value)

    def _key(self, names: Iterable[str]) -> str:
        for name in names:
            if name in self._values:
                return name
        raise InvalidRequestError(f"{self._place}: one of {', '.join(names)} is missing", field="workload")

    def _refuse(self, key: str, value: object, limit: str) -> NoReturn:
        shown = repr(value)
        raise InvalidRequestError(f"{self._place}: {key} = {shown[:60]}{'…' * (len(shown) > 60)}: {limit}", field="workload")


def _whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: object) -> float:
    """Of JSON a number, of CSV its digits; nan, which is in no range, for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return math.nan
    try:
        return float(value)
    except (ValueError, OverflowError):
        return math.nan


def _digest(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()[:8], "big")
