"""Reading a TOML table strictly: what is unknown, of the wrong type or out of range is refused, by file, table, key, value and limit."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from octavo.errors import InvalidRequestError

T = TypeVar("T")


def read_toml(path: Path, field: str) -> dict[str, Any]:
    """The tables of a TOML file. Raises InvalidRequestError, about ``field``, if there is no such file or it is not TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = error.strerror or str(error)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = f"it is not TOML ({error})"
    raise InvalidRequestError(f"{field} = {path}: {reason}", field=field) from None


class StrictTable:
    """One table. Read every key that it may have, then ``close`` it: keys that nobody asked for are refused.

    Every method raises InvalidRequestError.
    """

    def __init__(self, source: str, name: str, values: Mapping[str, Any]) -> None:
        """``source`` is the file, ``name`` the table's ("" at the top); both are for messages only."""
        self._source = source
        self._name = name
        self._values = values
        self._known: list[str] = []

    def holds(self, key: str) -> bool:
        """Whether ``key``, which may be left out, is there."""
        self._known.append(key)
        return key in self._values

    def holds_table(self, key: str) -> bool:
        """Whether there is a table under ``key``."""
        return isinstance(self._values.get(key), Mapping)

    def integer(self, key: str, low: int, high: int, default: int | None = None) -> int:
        """``default`` None: the key must be there; so in all of these."""
        value = self._get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            self.refuse(key, value, f"it must be an integer from {low} to {high}")
        return value

    def number(self, key: str, low: float, high: float, default: float | None = None) -> float:
        value = self._get(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:  # nan is in no range
            self.refuse(key, value, f"it must be a number from {low:g} to {high:g}")
        return float(value)

    def text(self, key: str, default: str | None = None) -> str:
        value = self._get(key, default)
        if not isinstance(value, str) or not (value or value == default):
            self.refuse(key, value, "it must be a string that is not empty")
        return value

    def boolean(self, key: str, default: bool | None = None) -> bool:
        value = self._get(key, default)
        if not isinstance(value, bool):
            self.refuse(key, value, "it must be true or false")
        return value

    def choice(self, key: str, choices: Sequence[str], default: str | None = None) -> str:
        value = self._get(key, default)
        if not isinstance(value, str) or value not in choices:
            self.refuse(key, value, f"choose one of {', '.join(choices)}")
        return value

    def array(self, key: str, kinds: type[T] | tuple[type[T], ...], said: str, default: list[T] | None = None) -> list[T]:
        """A list of values of some types, which ``said`` names."""
        value = self._get(key, default)
        if not isinstance(value, list) or not all(isinstance(each, kinds) and not isinstance(each, bool) for each in value):
            self.refuse(key, value, f"it must be a list of {said}")
        return value

    def strings(self, key: str) -> dict[str, str]:
        """A table of strings under names of any kind; none if it is not there."""
        value = self._get(key, {})
        if not isinstance(value, Mapping) or not all(isinstance(each, str) for each in value.values()):
            self.refuse(key, value, "it must be a table of strings")
        return dict(value)

    def names(self) -> list[str]:
        """Of its keys, where they are names of any kind."""
        return list(self._values)

    def table(self, key: str) -> StrictTable:
        value = self._get(key, None)
        if not isinstance(value, Mapping):
            self.refuse(key, value, "it must be a table")
        return StrictTable(self._source, self._path(key), value)

    def tables(self, key: str, default: list[Mapping[str, Any]] | None = None) -> list[StrictTable]:
        """An array of tables, [[key]]."""
        value = self._get(key, default)
        if not isinstance(value, list) or not all(isinstance(each, Mapping) for each in value):
            self.refuse(key, value, f"it must be an array of tables, [[{self._path(key)}]]")
        return [StrictTable(self._source, f"{self._path(key)} {i}", each) for i, each in enumerate(value, 1)]

    def close(self) -> None:
        """Refuse keys that are unknown."""
        for key, value in self._values.items():
            if key not in self._known:
                self.refuse(key, value, f"there is no such key here; there are {', '.join(dict.fromkeys(self._known))}")

    def refuse_doubles(self, key: str, names: Sequence[str]) -> None:
        """``names``: those of the tables under ``key``."""
        if len(set(names)) < len(names):
            self.refuse(key, names, "each needs a name of its own")

    def refuse(self, key: str, value: object, limit: str) -> NoReturn:
        """Say what is wrong with the value of ``key``."""
        place = f"[{self._name}] " if self._name else ""
        raise InvalidRequestError(f"{self._source}: {place}{key} = {value!r}: {limit}", field="workload")

    def _get(self, key: str, default: Any) -> Any:
        self._known.append(key)
        if key in self._values:
            return self._values[key]
        if default is None:
            place = f"[{self._name}] " if self._name else ""
            raise InvalidRequestError(f"{self._source}: {place}{key} is missing", field="workload")
        return default

    def _path(self, key: str) -> str:
        return f"{self._name}.{key}" if self._name else key
