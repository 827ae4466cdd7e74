"""From a model argument to files on this disk: an alias, a ``.gguf`` file, a folder, or a Hugging Face id."""

from __future__ import annotations

import fnmatch
import os
import re
from pathlib import Path
from typing import Any

from octavo import envs
from octavo.errors import InvalidRequestError, ModelFetchError
from octavo.weights import aliases
from octavo.weights.aliases import ALIASES, Progress
from octavo.weights.digest import file_digest
from octavo.weights.safetensors import has_safetensors

_HF_ID = re.compile(r"[\w.-]+/[\w.-]+")
_HF_WANTED = ["*.safetensors", "*.json", "*.jinja", "tokenizer.model"]
_HF_UNWANTED = ["*/*", "consolidated*"]
_HF_FILES: dict[str, Any] = {"allow_patterns": _HF_WANTED, "ignore_patterns": _HF_UNWANTED}


def resolve(model: str, *, download: bool = True, progress: Progress | None = None) -> Path:
    """The file or folder of a model; what is already here is used without asking the network.

    An alias comes first, then what lies at the path ``model``, then a Hugging Face id (kept in OCTAVO_HOME/huggingface).
    ``progress`` is called from a thread with (bytes fetched, bytes in all).

    Raises:
        InvalidRequestError: ``model`` is none of these.
        ModelFetchError: it is not here, and ``download`` is False, or fetching failed.
    """
    here = _fetched_alias(model) if model in ALIASES else _local(model)
    if here is not None:
        return here
    if not download:
        raise ModelFetchError(f"model {model} is not on this machine: octavo pull {model} fetches it")
    return pull(model, progress)


def pull(model: str, progress: Progress | None = None) -> Path:
    """Fetch an alias or a Hugging Face id (its newest revision), with its checksums verified; returns where it lies.

    Raises:
        InvalidRequestError: ``model`` is neither.
        ModelFetchError: no network, no such model, no room, or a checksum that does not match.
    """
    if model in ALIASES:
        return aliases.fetch(model, progress)
    _check_hf_id(model)
    return _fetch_snapshot(model, progress)


def _fetched_alias(name: str) -> Path | None:
    alias = ALIASES[name]
    return alias.path(name) if alias.present(name) else None


def _local(model: str) -> Path | None:
    """A file or folder at the path ``model``, or the snapshot of a Hugging Face id that an earlier pull left."""
    path = os.path.expanduser(model)
    if os.path.exists(path):  # Unlike Path.exists, False for a name that no file can have.
        return Path(path)
    _check_hf_id(model)
    return _snapshot(model)


def _check_hf_id(model: str) -> None:
    if model.endswith((".gguf", ".safetensors")) or model.startswith(("/", "./", "../", "~")):
        raise InvalidRequestError(f"model = {model!r}: there is no such file or folder", field="model")
    if not _HF_ID.fullmatch(model):
        known = ", ".join(ALIASES)
        raise InvalidRequestError(
            f"model = {model!r}: neither an alias (there are {known}), nor a file or folder, nor a Hugging Face id (org/name)",
            field="model",
        )


def _hf_cache() -> Path:
    return envs.home() / "huggingface"


def _snapshot(model: str) -> Path | None:
    """A complete snapshot on this disk, ours or in the cache that other programs use."""
    from huggingface_hub import snapshot_download  # Slow to import; not needed for local files and aliases.

    for cache in (_hf_cache(), None):
        try:
            folder = Path(snapshot_download(model, cache_dir=cache, local_files_only=True, **_HF_FILES))
        except (OSError, ValueError):
            continue
        if has_safetensors(folder):
            return folder
    return None


def _fetch_snapshot(model: str, progress: Progress | None) -> Path:
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()
    blobs = _hf_cache() / f"models--{model.replace('/', '--')}" / "blobs"
    try:
        facts = HfApi().model_info(model, files_metadata=True)
        total = sum(file.size or 0 for file in facts.siblings or [] if _is_wanted(file.rfilename))
        with aliases.watch([blobs], total, progress):
            folder = Path(snapshot_download(model, cache_dir=_hf_cache(), **_HF_FILES))
        if folder.name != facts.sha:  # A newer revision appeared between the two calls.
            facts = HfApi().model_info(model, revision=folder.name, files_metadata=True)
    except Exception as error:  # The classes differ between versions of the library and of its HTTP client.
        raise ModelFetchError(f"model {model}: {_hf_reason(error)}") from error
    _verify(model, folder, facts.siblings or [])
    if not has_safetensors(folder) and not (folder / "tokenizer.json").exists():
        raise ModelFetchError(f"model {model}: it has no safetensors; of a repository of GGUF files, fetch one and give its path")
    return folder


def _verify(model: str, folder: Path, files: list[Any]) -> None:
    """Compare the large files with the checksums that the hub states (``files``: RepoSibling); a bad one is removed."""
    for file in files:
        path = folder / file.rfilename
        if file.lfs is None or not path.exists():
            continue
        if (found := file_digest(path)) != file.lfs.sha256:
            path.resolve().unlink()
            path.unlink(missing_ok=True)
            raise ModelFetchError(f"model {model}: SHA-256 of {file.rfilename} is {found}, not {file.lfs.sha256}; it was discarded")


def _is_wanted(name: str) -> bool:
    def matches(patterns: list[str]) -> bool:
        return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)

    return matches(_HF_WANTED) and not matches(_HF_UNWANTED)


def _hf_reason(error: Exception) -> str:
    """One line on why the hub gave nothing."""
    kind = type(error).__name__
    if envs.offline():
        return "it is not on this machine, and HF_HUB_OFFLINE is set"
    if kind == "GatedRepoError":
        return "access to it is gated: accept its terms on huggingface.co and set HF_TOKEN"
    if kind == "RepositoryNotFoundError":
        return "huggingface.co has no such model, or HF_TOKEN does not give access to it"
    if kind in ("ConnectError", "ConnectTimeout", "ReadTimeout", "LocalEntryNotFoundError", "OfflineModeIsEnabled"):
        return "huggingface.co cannot be reached; check the network"
    if isinstance(error, OSError) and error.errno is not None:
        return aliases.os_reason(error)
    return f"{kind}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no reason given'}"
