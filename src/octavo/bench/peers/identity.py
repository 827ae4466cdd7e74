"""What a comparison may say of this machine's files: what they contain, and not where they are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

import octavo
from octavo.weights.digest import combined_digest


class WeightsFiles(msgspec.Struct, kw_only=True):
    """What an engine reads its weights from."""

    name: str
    """With names for the places of this machine."""
    files: int
    bytes: int
    sha256: str
    """Of the file; of several, of their names and digests."""


def weights_files(path: str, shown: str) -> WeightsFiles | None:
    """Of a file, or of all in a folder; None: there is none.

    Raises:
        ModelFileError: one of them cannot be read.
    """
    place = Path(path)
    files = [place] if place.is_file() else sorted(file for file in place.rglob("*") if file.is_file()) if path else []
    if not files:
        return None
    return WeightsFiles(name=shown, files=len(files), bytes=sum(file.stat().st_size for file in files), sha256=combined_digest(files))


class Names:
    """Names for folders of this machine, wherever a text has them."""

    def __init__(self, folders: Mapping[Path, str]) -> None:
        """What lies inside another folder is found before it."""
        self._names = {str(folder): name for folder, name in folders.items() if folder != Path(folder.root)}
        longest_first = sorted(map(re.escape, self._names), key=len, reverse=True)
        self._pattern = re.compile(rf"(?<![\w.-])(?:{'|'.join(longest_first)})(?![\w-]|\.\w)") if longest_first else None

    def put_into(self, value: Any) -> Any:
        """``value`` with names in all its texts, however deep."""
        if isinstance(value, Mapping):
            return {key: self.put_into(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.put_into(each) for each in value]
        if not isinstance(value, str) or self._pattern is None:
            return value
        return self._pattern.sub(lambda match: self._names[match[0]], value)


def names_for(peers: Path, file: Path, python: str) -> Names:
    """For a comparison: where the peers are, the checkouts of the comparison's file and of this code, the interpreter's environment."""
    folders = {folder: "$CHECKOUT" for code in (file, Path(octavo.__file__)) if (folder := _above(code, ".git")) is not None}
    if (environment := _above(Path(python), "pyvenv.cfg")) is not None:
        folders[environment] = "$VENV"
    folders[peers] = "$OCTAVO_PEERS"
    return Names({spelt: name for folder, name in folders.items() for spelt in (folder, folder.resolve())})


def _above(file: Path, mark: str) -> Path | None:
    """The nearest folder above ``file`` that holds ``mark``."""
    return next((folder for folder in file.absolute().parents if (folder / mark).exists()), None)
