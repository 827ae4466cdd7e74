"""JSON Schemas of what benchmarks write: report.json, and the result in it (which --output writes too), by benchmark.

They are in this package's schemas/, for readers in any language; that of bench kv, whose result has no types, is written by hand.
``python -m octavo.bench.report.schema`` writes the others again.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from octavo.bench.peers.result import json_schema as compare_schema
from octavo.bench.report.data import SCHEMA
from octavo.bench.report.document import Document
from octavo.bench.report.outputs import ServeOutput, SweepOutput

FOLDER = "schemas"


def schemas() -> dict[str, dict[str, Any]]:
    """By file name, made from the types that the results are made of."""
    results = {"serve": msgspec.json.schema(ServeOutput), "sweep": msgspec.json.schema(SweepOutput), "compare": compare_schema()}
    found = {f"{name}.json": _titled(schema, f"Result of octavo bench {name}") for name, schema in results.items()}
    return {"report.json": report_schema(), **found}


def report_schema() -> dict[str, Any]:
    """Of report.json: a Document, and the schema's own name."""
    schema = msgspec.json.schema(Document)
    document = schema["$defs"]["Document"]
    document["properties"] = {"schema": {"const": SCHEMA}, **document["properties"]}
    document["required"] = ["schema", *document["required"]]
    return _titled(schema, "Report of octavo bench")


def stored_schema(name: str) -> dict[str, Any]:
    """That of a benchmark's result, or "report", as this package carries it."""
    schema: dict[str, Any] = json.loads((resources.files(__package__) / FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return schema


def _titled(schema: dict[str, Any], title: str) -> dict[str, Any]:
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **schema}


def main() -> None:
    """Write them into this package."""
    for name, schema in schemas().items():
        path = Path(__file__).parent / FOLDER / name
        path.write_text(json.dumps(schema, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
