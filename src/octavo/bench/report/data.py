"""A document as JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from octavo.bench.report.document import Document

SCHEMA = "octavo.bench.report/1"
"""Of report.json: schemas/report.json in this package says what is in it. Another number would mean that a reader of this one may fail."""


def as_data(document: Document) -> dict[str, Any]:
    """What report.json holds: result and facts, and the sections with all their points."""
    plain = dataclasses.asdict(document)
    data: dict[str, Any] = json_ready({"schema": SCHEMA, **plain})
    return data


def json_ready(value: Any) -> Any:
    """``value`` with lists for sequences and None for numbers that JSON has not: NaN and the infinities."""
    if isinstance(value, dict):
        return {str(key): json_ready(each) for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [json_ready(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if hasattr(value, "tolist"):  # numpy's arrays and numbers
        return json_ready(value.tolist())
    return value
