"""How a server is started and what it serves: read from a description, a TOML file. The format: benchmarks/peers/README.md."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from octavo.bench.strict_table import StrictTable, read_toml

ENDPOINTS = ("/v1/completions", "/v1/chat/completions")
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, kw_only=True)
class Places:
    """What a description's placeholders stand for on this machine."""

    peers: Path
    """{peers}: the folder in which peers are installed."""
    model: str
    """{model}: the stem of the weights' files and folders, and the name they are served under."""
    cpus: Sequence[int]
    """{threads}, {cpus}: how many, and which, by commas."""
    python: str
    """{python}: the interpreter that runs Octavo."""


@dataclass(frozen=True, kw_only=True)
class ServerDescription:
    """One server, all placeholders filled in."""

    name: str
    variant: str
    """"": the plain one."""
    tested: bool
    """Whether anybody has seen it run as described."""
    command: tuple[str, ...]
    env: Mapping[str, str]
    shown_command: tuple[str, ...]
    """For a report: with names for the places of this machine."""
    shown_env: Mapping[str, str]
    url: str
    ready_url: str
    version_command: tuple[str, ...]
    """Prints the version; empty: there is none."""
    release: str
    """What was installed, where the version says too little."""
    served_model: str
    endpoint: str
    prompts: Literal["tokens", "text"]
    """How it is prompted: not every server takes ids."""
    weights: str
    """What it runs, for people: format, how it was made."""
    notes: str
    startup_seconds: float
    """What a start may take, for the plan."""
    weights_file: str = ""
    """The file or folder that it reads its weights from; "": nobody says."""
    shown_weights_file: str = ""


def load_description(path: Path, variant: str, places: Places) -> ServerDescription:
    """The server that a file describes, in one of its variants.

    Raises:
        InvalidRequestError: for what is not there, unknown, of the wrong type or out of range; it names file, table, key, value and limit.
    """
    return parse_description(read_toml(path, "description"), str(path), variant, places, path.parent)


def parse_description(tables: Mapping[str, Any], source: str, variant: str, places: Places, here: Path) -> ServerDescription:
    """The same from tables already read; ``here`` is the file's folder, {here}."""
    top = StrictTable(source, "", tables)
    port = top.integer("port", 1, 65535)
    own = _read_variant(top, variant)
    standing = {
        "peers": str(places.peers),
        "model": places.model,
        "threads": str(len(places.cpus)),
        "cpus": ",".join(map(str, places.cpus)),
        "python": places.python,
        "here": str(here.resolve()),
        "port": str(port),
    }
    fill = _Filler(top, standing | top.strings("values") | own.values)
    show = _Filler(top, fill.values | {"peers": "$OCTAVO_PEERS", "python": "python", "here": str(Path(source).parent)})
    command = [*top.array("command", str, "strings"), *own.args]
    env = top.strings("env") | own.env
    if not command:
        top.refuse("command", [], "at least the program to run")
    weights = top.text("weights")  # a file says what its plain variant runs, whichever is asked for
    weights_file = top.text("weights_file", "")
    found = ServerDescription(
        name=top.text("name"),
        variant=variant,
        tested=top.boolean("tested", True),
        command=tuple(fill.all("command", command)),
        env={key: fill.one("env", value) for key, value in env.items()},
        shown_command=tuple(show.all("command", command)),
        shown_env={key: show.one("env", value) for key, value in env.items()},
        url=f"http://127.0.0.1:{port}",
        ready_url=f"http://127.0.0.1:{port}{_path(top, 'ready', '/health')}",
        version_command=tuple(fill.all("version_command", top.array("version_command", str, "strings", []))),
        release=top.text("release", ""),
        served_model=fill.one("served_model", top.text("served_model", "{model}")),
        endpoint=top.choice("endpoint", ENDPOINTS, ENDPOINTS[0]),
        prompts="text" if top.choice("prompts", ("tokens", "text"), "tokens") == "text" else "tokens",
        weights=own.weights or weights,
        notes=" ".join(note for note in (top.text("notes", ""), own.notes) if note),
        startup_seconds=top.number("startup_seconds", 0, 3600, 5.0),
        weights_file=fill.one("weights_file", weights_file),
        shown_weights_file=show.one("weights_file", weights_file),
    )
    top.close()
    return found


@dataclass(frozen=True, kw_only=True)
class _Variant:
    """What a variant changes."""

    values: dict[str, str]
    args: Sequence[str]
    env: dict[str, str]
    weights: str
    notes: str


def _read_variant(top: StrictTable, variant: str) -> _Variant:
    names = list(top.table("variants").names()) if top.holds("variants") else []
    if not variant:
        return _Variant(values={}, args=[], env={}, weights="", notes="")
    if variant not in names:
        top.refuse("variants", names, f"there is no {variant!r}")
    table = top.table("variants").table(variant)
    found = _Variant(
        values=table.strings("values"),
        args=table.array("args", str, "strings", []),
        env=table.strings("env"),
        weights=table.text("weights", ""),
        notes=table.text("notes", ""),
    )
    table.close()
    return found


class _Filler:
    """Fills placeholders in."""

    def __init__(self, table: StrictTable, values: Mapping[str, str]) -> None:
        self.values = dict(values)
        self._table = table

    def one(self, key: str, text: str) -> str:
        def value(match: re.Match[str]) -> str:
            if match[1] not in self.values:
                self._table.refuse(key, text, f"no such placeholder, {match[0]}; there are {', '.join(self.values)}")
            return self.values[match[1]]

        return _PLACEHOLDER.sub(value, text)

    def all(self, key: str, texts: Sequence[str]) -> list[str]:
        return [self.one(key, text) for text in texts]


def _path(table: StrictTable, key: str, default: str) -> str:
    path = table.text(key, default)
    if not path.startswith("/"):
        table.refuse(key, path, "it must be a path of the server, from /")
    return path
