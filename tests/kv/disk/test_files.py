"""Blocks as files: what is written is found, what is damaged is not, and the folder stays within its bound."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from octavo.errors import InvalidRequestError
from octavo.kv.disk.files import HEADER_BYTES, BlockFiles
from octavo.kv.interfaces import BlockHash

NBYTES = 1000
FILE_BYTES = NBYTES + HEADER_BYTES


def key(i: int) -> BlockHash:
    return BlockHash(sha256(str(i).encode()).digest())


def content(i: int) -> np.ndarray:
    return np.random.default_rng(i).integers(0, 256, NBYTES, np.uint8)


def block_files(folder: Path, capacity: int = 10**6, numerics_id: str = "n") -> BlockFiles:
    return BlockFiles(str(folder), numerics_id, capacity)


def on_disk(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def read(files: BlockFiles, i: int, group: int = 0) -> np.ndarray | None:
    found = np.zeros(NBYTES, np.uint8)
    return found if files.read(key(i), group, found) else None


def test_what_was_written_is_found_by_others_and_by_nobody_else(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    files = block_files(folder)
    assert files.write(key(1), 0, content(1), time.time())
    assert files.write(key(1), 1, content(2), time.time())
    assert not files.write(key(1), 0, content(1), time.time())  # it is there
    again = block_files(folder)
    np.testing.assert_array_equal(read(again, 1), content(1))
    np.testing.assert_array_equal(read(again, 1, group=1), content(2))
    assert read(again, 2) is None and read(again, 1, group=2) is None
    assert read(block_files(folder, numerics_id="m"), 1) is None
    assert again.nbytes == files.nbytes == 2 * FILE_BYTES and again.num_corrupt == 0


def test_nobody_else_may_read_them(tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        block_files(tmp_path / "new").write(key(1), 0, content(1), time.time())
        (path,) = on_disk(tmp_path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert all(stat.S_IMODE(parent.stat().st_mode) == 0o700 for parent in list(path.parents)[:3])
    finally:
        os.umask(previous)


@pytest.mark.parametrize("damage", ["truncate", "extend", "flip", "flip header", "garbage", "empty", "another's", "another group's"])
def test_a_damaged_file_is_a_miss_and_is_replaced(tmp_path: Path, damage: str) -> None:
    files = block_files(tmp_path)
    files.write(key(1), 0, content(1), time.time())
    (path,) = on_disk(tmp_path)
    whole = path.read_bytes()
    other = block_files(tmp_path / "other")
    other.write(key(2) if damage == "another's" else key(1), 1 if damage == "another group's" else 0, content(1), time.time())
    (others,) = on_disk(tmp_path / "other")
    path.write_bytes(
        {
            "truncate": whole[:-1],
            "extend": whole + b"\0",
            "flip": whole[:500] + bytes([whole[500] ^ 1]) + whole[501:],
            "flip header": whole[:9] + bytes([whole[9] ^ 1]) + whole[10:],
            "garbage": bytes(len(whole)),
            "empty": b"",
            "another's": others.read_bytes(),
            "another group's": others.read_bytes(),
        }[damage]
    )
    assert read(files, 1) is None
    assert files.num_corrupt == 1
    assert files.write(key(1), 0, content(1), time.time())
    np.testing.assert_array_equal(read(files, 1), content(1))


@pytest.mark.parametrize("kind", ["folder", "pipe", "link"])
def test_what_is_no_file_is_a_miss_and_stays(tmp_path: Path, kind: str) -> None:
    files = block_files(tmp_path / "cache")
    files.write(key(1), 0, content(1), time.time())
    (path,) = on_disk(tmp_path)
    target = tmp_path / "target"
    path.rename(target)
    {"folder": path.mkdir, "pipe": lambda: os.mkfifo(path), "link": lambda: path.symlink_to(target)}[kind]()
    assert read(files, 1) is None
    assert target.exists()


def test_the_bound_holds_and_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    capacity = 20 * FILE_BYTES
    files = block_files(tmp_path, capacity)
    for i in range(100):
        files.write(key(i), 0, content(i), 1000.0 + i)
        assert files.touch(key(0), 0, 1000.0 + i)
        assert sum(path.stat().st_size for path in on_disk(tmp_path)) <= capacity
    kept = [i for i in range(100) if files.has(key(i), 0)]
    assert kept == [0, *range(101 - len(kept), 100)] and len(kept) >= 17
    assert not files.write(key(200), 0, np.zeros(capacity, np.uint8), 2000.0)  # it alone is too large


def test_a_bound_that_was_lowered_holds_from_the_next_write_on(tmp_path: Path) -> None:
    files = block_files(tmp_path)
    for i in range(20):
        files.write(key(i), 0, content(i), 1000.0 + i)
    smaller = block_files(tmp_path, 5 * FILE_BYTES, numerics_id="m")
    smaller.write(key(0), 0, content(0), 2000.0)
    assert len(on_disk(tmp_path)) <= 5 and read(smaller, 0) is not None


def test_on_a_disk_that_is_full_the_oldest_make_room_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = block_files(tmp_path)
    replace = os.replace

    def replace_if_there_is_room(source: Path, target: Path) -> None:
        if len(on_disk(tmp_path)) > 20:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", replace_if_there_is_room)
    lost = 0
    for i in range(100):
        try:
            files.write(key(i), 0, content(i), 1000.0 + i)
        except OSError:
            lost += 1
    assert 0 < lost <= 50
    assert not any(files.has(key(i), 0) for i in range(50)) and files.has(key(99), 0) + files.has(key(98), 0)
    assert files.nbytes == sum(path.stat().st_size for path in on_disk(tmp_path))


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    files = block_files(tmp_path, 3 * FILE_BYTES)
    files.write(key(0), 0, content(0), 1000.0)
    (path,) = on_disk(tmp_path)
    strangers = [tmp_path / "notes.txt", path.parent / "notes.kv", tmp_path / "photos" / "ab" / path.name]
    for stranger in strangers:
        stranger.parent.mkdir(exist_ok=True, parents=True)
        stranger.write_bytes(bytes(5000))
    for i in range(1, 10):
        files.write(key(i), 0, content(i), 1000.0 + i)
    assert all(stranger.exists() for stranger in strangers)
    assert files.nbytes <= 3 * FILE_BYTES


def test_what_dead_processes_left_is_removed(tmp_path: Path) -> None:
    block_files(tmp_path).write(key(0), 0, content(0), 1000.0)
    (path,) = on_disk(tmp_path)
    old, fresh = path.parent / ".unfinished-1-2", path.parent / ".unfinished-3-4"
    cleared = tmp_path / ".cleared-1-1"
    cleared.mkdir()
    for left in (old, fresh):
        left.write_bytes(b"half a blo")
    for left in (old, cleared):
        os.utime(left, (1000, 1000))
    block_files(tmp_path)
    assert not old.exists() and not cleared.exists() and fresh.exists()


def test_clearing_forgets_this_models_blocks(tmp_path: Path) -> None:
    files, others = block_files(tmp_path), block_files(tmp_path, numerics_id="m")
    for each in (files, others):
        each.write(key(0), 0, content(0), time.time())
    cleared = files.clear()
    assert read(files, 0) is None and read(others, 0) is not None
    files.remove(cleared)
    assert files.nbytes == FILE_BYTES and not cleared.exists()
    assert files.write(key(0), 0, content(0), time.time()) and read(files, 0) is not None


def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(InvalidRequestError, match=r"prefix_cache_dir = .*: it cannot be written to") as caught:
        block_files(tmp_path / "file" / "x")
    assert caught.value.field == "prefix_cache_dir"


def test_a_disk_that_fails_is_a_miss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = block_files(tmp_path)
    files.write(key(1), 0, content(1), time.time())

    def fails(*args: object, **others: object) -> None:
        raise TimeoutError(110, "Connection timed out")  # as of a file server that is gone

    for name in ("stat", "open", "utime"):
        monkeypatch.setattr(os, name, fails)
    assert not files.has(key(1), 0) and read(files, 1) is None and not files.touch(key(1), 0, 1.0)


def test_a_folder_that_somebody_removed_is_made_again(tmp_path: Path) -> None:
    files = block_files(tmp_path / "cache")
    files.write(key(1), 0, content(1), time.time())
    shutil.rmtree(tmp_path / "cache")
    assert read(files, 1) is None
    assert files.write(key(1), 0, content(1), time.time())
    np.testing.assert_array_equal(read(files, 1), content(1))
    assert stat.S_IMODE((tmp_path / "cache").stat().st_mode) == 0o700


def test_an_engine_may_start_while_another_clears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = block_files(tmp_path)
    new_file = BlockFiles._new_file
    cleared: list[Path] = []

    def clear_once_before(files: BlockFiles, folder: Path) -> Path:
        if not cleared:
            cleared.append(other.clear())
        return new_file(files, folder)

    monkeypatch.setattr(BlockFiles, "_new_file", clear_once_before)
    assert block_files(tmp_path).write(key(1), 0, content(1), time.time())


def test_two_engines_that_write_read_and_clear_at_once_do_each_other_no_harm(tmp_path: Path) -> None:
    capacity = 30 * FILE_BYTES
    wrong: list[str] = []

    def use(seed: int) -> None:
        rng = random.Random(seed)
        files = block_files(tmp_path, capacity)
        for _ in range(400):
            i = rng.randrange(60)
            with contextlib.suppress(OSError):  # a folder that the other has just cleared: the writer counts it
                files.write(key(i), 0, content(i), time.time())
            j = rng.randrange(60)
            found = read(files, j)
            if found is not None and not np.array_equal(found, content(j)):
                wrong.append(f"block {j}")
            if rng.random() < 0.01:
                files.remove(files.clear())
        if files.num_corrupt:
            wrong.append(f"{files.num_corrupt} damaged files")

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(use, (1, 2)))
    assert not wrong
    files = block_files(tmp_path, capacity)
    files.write(key(1000), 0, content(1000), time.time())
    assert files.nbytes == sum(path.stat().st_size for path in on_disk(tmp_path)) <= capacity
