"""From a model's files to its tokenizer."""

from __future__ import annotations

from pathlib import Path

from octavo.errors import ModelFileError
from octavo.tokenizer.gguf_vocab import tokenizer_from_metadata
from octavo.tokenizer.hf import load_folder
from octavo.tokenizer.tokenizer import Tokenizer
from octavo.weights.gguf import read_gguf


def load_tokenizer(path: str | Path) -> Tokenizer:
    """The tokenizer of a model: a ``.gguf`` file (of a split model, its first part) or a folder with a ``tokenizer.json``.

    Raises:
        ModelFileError: there is no tokenizer, or it is malformed or of a kind that Octavo does not know.
    """
    path = Path(path)
    if path.is_dir():
        return load_folder(path)
    if path.suffix == ".gguf":
        return tokenizer_from_metadata(read_gguf(path).metadata, str(path))
    raise ModelFileError(f"{path}: no tokenizer here; a .gguf file or a folder with tokenizer.json has one")
