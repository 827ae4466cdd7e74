"""What a report must not say: who ran it, where their files are, what opens their doors."""

from __future__ import annotations

import dataclasses
import getpass
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

Report = TypeVar("Report")

_HOMES = re.compile(r"(?:/home|/Users|/var/home)/[^/\s'\":,]+|/root(?=/|$|[\s'\":,])")
_SECRET_FLAGS = re.compile(r"^--?[\w-]*(?:key|token|secret|password|auth)$", re.IGNORECASE)
_HEADER = re.compile(r"\b(authorization|x-api-key|cookie)\b(\s*[:=]\s*).*", re.IGNORECASE)
_CREDENTIALS = re.compile(r"(\w+://)[^/@\s]+@")
HIDDEN = "…"
_PLAIN = re.compile(rf"[\w@%+=:,./~{HIDDEN}-]+")


def without_private(text: str) -> str:
    """``text`` with ~ for home folders, and without the user's name as part of a path, and credentials in URLs."""
    text = _CREDENTIALS.sub(r"\1", text)
    home = str(Path.home())
    if home != "/":
        text = re.sub(re.escape(home) + r"(?=/|$|[\s'\":,])", "~", text)
    text = _HOMES.sub("~", text)
    return re.sub(rf"(?<=/){re.escape(_user())}(?=/|$)", "user", text)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # an id without a name
        return "root"


def command_line(argv: Sequence[str] | None = None) -> str:
    """This process's command as a shell takes it, without what is private: values of flags for keys and tokens are left out too."""
    given = list(sys.argv if argv is None else argv)
    words = [Path(given[0]).name if given else ""]
    if words[0] in ("__main__.py", "main.py"):
        words = ["octavo"]
    secret = False
    for word in given[1:]:
        name, joined, _ = word.partition("=")
        if secret:
            word = HIDDEN
        elif joined and _SECRET_FLAGS.match(name):
            word = f"{name}={HIDDEN}"
        secret = not secret and not joined and bool(_SECRET_FLAGS.match(word))
        words.append(_HEADER.sub(rf"\1\2{HIDDEN}", without_private(word)))
    return " ".join(word if _PLAIN.fullmatch(word) else shlex.quote(word) for word in words)


def clean(facts: Any) -> Any:
    """``facts`` with every text in them cleaned, and the values of keys for secrets left out."""
    return _cleaned(facts, hide=True)


def cleaned(report: Report) -> Report:
    """A Document, or a result, with every text in it cleaned."""
    found: Report = _cleaned(report, hide=False)
    return found


def _cleaned(value: Any, hide: bool) -> Any:
    """Lists for tuples; dataclasses stay what they are. ``hide``: what keys for secrets name is left out."""
    if isinstance(value, str):
        return without_private(value)
    if isinstance(value, Mapping):
        return {key: HIDDEN if hide and _is_secret(str(key)) and each else _cleaned(each, hide) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [each if isinstance(each, int | float) else _cleaned(each, hide) for each in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(value, **{f.name: _cleaned(getattr(value, f.name), hide) for f in dataclasses.fields(value)})
    return without_private(str(value)) if isinstance(value, Path) else value


def _is_secret(name: str) -> bool:
    return bool(re.search(r"(?:^|[_-])(?:key|keys|secret|password|authorization)$", name, re.IGNORECASE))
