"""A model on disk, GGUF file or Hugging Face folder, behind one interface."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Protocol

from octavo.errors import ModelFileError
from octavo.weights.digest import combined_digest
from octavo.weights.formats import Weight
from octavo.weights.gguf import read_gguf
from octavo.weights.safetensors import read_json, read_safetensors
from octavo.weights.tensor import MappedFile, TensorInfo


class WeightSource(Protocol):
    """Names, facts and bytes of a model's tensors, and its settings. Reading is lazy: tensor data stays in mapped files."""

    kind: Literal["gguf", "hf"]
    path: Path
    """The file, or the folder."""
    metadata: dict[str, Any]
    """GGUF's keys to numbers, booleans, strings or lists of one of these; {} for a folder."""
    config: dict[str, Any]
    """config.json, with the content of generation_config.json, where there is one, as "generation_config"; {} for GGUF."""

    def names(self) -> list[str]:
        """All tensors that can be read, by the file's names and in its order."""

    def info(self, file_name: str) -> TensorInfo:
        """Format, shape and place of a tensor. Raises ModelFileError if it is absent or of a type Octavo does not run."""

    def weight(self, file_name: str, canonical_name: str) -> Weight:
        """A tensor as stored (a vector may be F16 or BF16 here); its data is a read-only view, valid beyond ``close``."""

    def digest(self) -> str:
        """Hex SHA-256 of the content: of a single file that of the file itself."""

    def close(self) -> None:
        """Let go of the files; they are unmapped when the last view of them is gone."""


def open_source(path: Path | str) -> WeightSource:
    """Open a ``.gguf`` file (any part of a split one) or a folder with config.json and safetensors.

    Raises:
        ModelFileError: there is no model, or it is malformed; see read_gguf and read_safetensors.
    """
    path = Path(path)
    if path.is_dir():
        if not (path / "config.json").exists() and any(path.glob("*.gguf")):
            raise ModelFileError(f"{path}: a folder of GGUF files; give one of them")
        return _FolderSource(path)
    if path.suffix == ".safetensors":
        raise ModelFileError(f"{path}: give the folder that holds it, with its config.json")
    return _GGUFSource(path)


class _TensorSource:
    """What both kinds share: tensors by name in mapped files."""

    def __init__(self, path: Path, tensors: dict[str, TensorInfo], files: list[MappedFile], content: list[Path]) -> None:
        self.path = path
        self._tensors = tensors
        self._files = files
        self._content = content
        self._unsupported: dict[str, str] = {}

    def names(self) -> list[str]:
        return list(self._tensors)

    def info(self, file_name: str) -> TensorInfo:
        if (info := self._tensors.get(file_name)) is not None:
            return info
        if (dtype := self._unsupported.get(file_name)) is not None:
            raise ModelFileError(f"{self.path}: tensor {file_name!r}: its type {dtype} is not supported (F32, F16 and BF16 are)")
        raise ModelFileError(f"{self.path}: there is no tensor {file_name!r}")

    def weight(self, file_name: str, canonical_name: str) -> Weight:
        return self.info(file_name).weight(canonical_name)

    def digest(self) -> str:
        return combined_digest(self._content)

    def close(self) -> None:
        self._tensors = {}
        self._files.clear()


class _GGUFSource(_TensorSource):
    kind: Literal["gguf", "hf"] = "gguf"

    def __init__(self, path: Path) -> None:
        model = read_gguf(path)
        super().__init__(path, model.tensors, model.files, model.paths)
        self.metadata = model.metadata
        self.config: dict[str, Any] = {}


class _FolderSource(_TensorSource):
    kind: Literal["gguf", "hf"] = "hf"

    def __init__(self, path: Path) -> None:
        self.metadata: dict[str, Any] = {}
        self.config = read_json(path / "config.json")
        if (generation := path / "generation_config.json").exists():
            self.config["generation_config"] = read_json(generation)
        model = read_safetensors(path)
        super().__init__(path, model.tensors, model.files, [*model.paths, path / "config.json"])
        self._unsupported = model.unsupported
