"""Prefixes that outlive pool and process, through scheduler and KV core: the runner checks each slot that it reads."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from octavo.kv.disk import writer
from octavo.kv.disk.files import HEADER_BYTES, BlockFiles
from octavo.runner.transfers import carry_out
from support.simulation import Simulation, text

FILE_BYTES = 8 * 8 + HEADER_BYTES


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[Any]:
    """Builds simulations over one folder; ends those that a test left running."""
    started: list[Simulation] = []

    def build(capacity: int = 10**6, **fields: Any) -> Simulation:
        files = BlockFiles(str(tmp_path), fields.pop("numerics_id", "simulated"), capacity)
        started.append(Simulation(**({"num_blocks": 16, "max_num_batched_tokens": 64} | fields), disk=files))
        return started[-1]

    yield build
    for sim in started:
        close(sim)


def close(sim: Simulation) -> None:
    """What an engine does when it ends."""
    deadline = time.monotonic() + 20
    for transfers in sim.kv.spill_cached(deadline):
        carry_out(transfers, sim.runner)
    assert sim.kv.disk is not None
    sim.kv.disk.close(deadline)


def ask(sim: Simulation, name: str, prompt: list[int], **fields: Any) -> int:
    """Run a request to its end; its cached tokens."""
    sim.add(name, prompt, **fields)
    sim.run()
    sim.check_output(name)
    sim.check_idle()
    return sim.last(name).num_cached_tokens


def written(sim: Simulation) -> None:
    """Wait until all that was spilled is written."""
    assert sim.kv.disk is not None
    queue = sim.kv.disk._writer
    with queue._changed:
        assert queue._changed.wait_for(lambda: not queue._reserved, 20)


def test_a_restart_finds_the_prefix(engines: Any) -> None:
    first = engines()
    assert ask(first, "a", text(0, 40)) == 0
    close(first)
    second = engines()
    assert ask(second, "a", text(0, 40)) == 32  # of 40 the last is computed: four blocks of 8
    assert second.runner.computed_tokens == 8 + 7
    assert ask(second, "again", text(0, 40)) == 32  # from the index now
    stats = second.scheduler.stats()
    assert (stats.disk_hits, stats.prefix_hits, stats.prefix_queries) == (32, 64, 80)
    assert stats.disk_bytes == 5 * FILE_BYTES  # a's 47 stored tokens fill five blocks


def test_the_chain_goes_on_where_the_index_ends(engines: Any) -> None:
    first = engines()
    ask(first, "long", text(0, 60))
    close(first)
    second = engines()
    assert ask(second, "short", text(0, 20)) == 16
    assert ask(second, "long", text(0, 60)) == 56
    assert second.scheduler.stats().disk_hits == 16 + 40


def test_of_a_windowed_group_the_window_is_enough(engines: Any, tmp_path: Path) -> None:
    first = engines(window=16)
    ask(first, "a", text(0, 60))
    close(first)
    request = first.requests["a"]
    names = {path.name for path in tmp_path.rglob("*.kv")}
    assert {f"{key.hex()}-{group}.kv" for key in request.block_hashes[1:8] for group in (0, 1)} <= names
    for key in request.block_hashes[1:5]:  # behind the window of token 56, which reaches back to token 41
        next(tmp_path.rglob(f"{key.hex()}-1.kv")).unlink()
    second = engines(window=16)
    assert ask(second, "a", text(0, 60)) == 56
    close(second)
    next(tmp_path.rglob(f"{request.block_hashes[6].hex()}-1.kv")).unlink()
    assert ask(engines(window=16), "a", text(0, 60)) == 0  # every window that is left reaches a block that is gone


def test_evicted_blocks_are_found_again_without_a_restart(engines: Any) -> None:
    sim = engines()
    ask(sim, "a", text(0, 60))
    for i in range(3):
        ask(sim, f"other{i}", [i] * 100)  # each takes most of the pool
    written(sim)
    assert sim.scheduler.stats().disk_spilled_blocks >= 7
    assert ask(sim, "again", text(0, 60)) == 56


def test_the_last_token_is_computed_and_prompt_logprobs_use_no_hit(engines: Any) -> None:
    first = engines()
    ask(first, "a", text(0, 32))
    close(first)
    second = engines()
    assert ask(second, "scored", text(0, 32), prompt_logprobs=0) == 0
    assert ask(engines(), "b", text(0, 32)) == 24


def test_tenants_models_and_adapters_share_nothing(engines: Any) -> None:
    first = engines()
    ask(first, "a", text(0, 40), cache_salt="A")
    close(first)
    second = engines()
    for fields in ({"cache_salt": "B"}, {}, {"adapter": "A"}):
        assert ask(second, f"b{len(fields)}{[*fields]}", text(0, 40), **fields) == 0
    assert ask(second, "a", text(0, 40), cache_salt="A") == 32
    assert ask(engines(numerics_id="another"), "a", text(0, 40), cache_salt="A") == 0
    assert ask(engines(num_blocks=32, block_size=4), "a", text(0, 40), cache_salt="A") == 0


def test_a_damaged_block_ends_the_prefix_before_it(engines: Any, tmp_path: Path) -> None:
    first = engines()
    ask(first, "a", text(0, 60))
    close(first)
    request = first.requests["a"]
    (third,) = tmp_path.rglob(f"{request.block_hashes[3].hex()}-0.kv")
    third.write_bytes(third.read_bytes()[:-1] + b"!")
    second = engines()
    assert ask(second, "a", text(0, 60)) == 16
    assert second.scheduler.stats().disk_corrupt_files == 1
    close(second)
    assert ask(engines(), "a", text(0, 60)) == 56  # it was computed, and written, again


def test_a_reset_forgets_what_is_on_disk_and_on_its_way(engines: Any) -> None:
    sim = engines()
    ask(sim, "a", text(0, 60))
    for i in range(3):
        ask(sim, f"other{i}", [i] * 100)
    sim.kv.reset_prefix_cache()
    assert ask(sim, "a again", text(0, 60)) == 0
    sim.kv.reset_prefix_cache()
    close(sim)
    assert ask(engines(), "a", text(0, 60)) == 0


def test_the_size_bound_holds_and_the_newest_prefix_is_kept(engines: Any, tmp_path: Path) -> None:
    capacity = 20 * FILE_BYTES
    sim = engines(capacity=capacity)
    for i in range(20):
        ask(sim, f"r{i}", [i] * 100)
    close(sim)
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.kv")) <= capacity
    assert ask(engines(), "last", [19] * 100) == 96


def test_two_engines_share_a_folder(engines: Any) -> None:
    one, two = engines(), engines()
    ask(one, "a", text(0, 60))
    close(one)
    assert ask(two, "a", text(0, 60)) == 56
    one = engines()
    two.kv.reset_prefix_cache()
    written(two)
    assert ask(one, "a", text(0, 60)) == 0  # gone: a miss, and no harm
    close(two)
    close(one)
    assert ask(engines(), "a", text(0, 60)) == 56


def test_a_slow_disk_drops_blocks_and_delays_no_step(engines: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sim = engines()
    monkeypatch.setattr(writer, "QUEUE_BYTES", 4 * 64)
    gate = threading.Event()
    write = BlockFiles.write
    monkeypatch.setattr(BlockFiles, "write", lambda *args: gate.wait(20) and write(*args))
    for i in range(4):
        ask(sim, f"r{i}", [i] * 100)
    stats = sim.scheduler.stats()
    assert stats.disk_spilled_blocks == 0 and stats.disk_dropped_blocks >= 20
    gate.set()
    written(sim)
    assert sim.scheduler.stats().disk_spilled_blocks == 4


def test_a_full_disk_costs_nothing_but_the_cache(engines: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    sim = engines()

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(BlockFiles, "write", full)
    for i in range(4):
        ask(sim, f"r{i}", [i] * 100)
    written(sim)
    assert sim.scheduler.stats().disk_dropped_blocks >= 20
    assert [record.getMessage() for record in caplog.records].count(caplog.records[0].getMessage()) == 1
    assert "No space left on device" in caplog.text


@pytest.mark.parametrize("error", [TimeoutError(110, "Connection timed out"), MemoryError()])
def test_what_cannot_be_read_is_computed(engines: Any, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    first = engines()
    ask(first, "a", text(0, 40))
    close(first)
    second = engines()

    def fails(*args: object) -> None:
        raise error

    monkeypatch.setattr(BlockFiles, "read", fails)
    assert ask(second, "a", text(0, 40)) == 0


def test_what_cannot_be_copied_out_of_the_pool_is_counted_as_dropped(engines: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sim = engines()

    def fails(*args: object) -> None:
        raise MemoryError

    monkeypatch.setattr(sim.runner, "export_blocks", fails)
    for i in range(4):
        ask(sim, f"r{i}", [i] * 100)
    written(sim)
    assert sim.scheduler.stats().disk_dropped_blocks >= 20


def test_while_blocks_are_read_others_go_on(engines: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first = engines()
    ask(first, "a", text(0, 40))
    close(first)
    sim = engines()
    gate = threading.Event()
    read = BlockFiles.read
    monkeypatch.setattr(BlockFiles, "read", lambda *args: gate.wait(20) and read(*args))
    sim.add("running", [7] * 10, max_tokens=30)
    sim.step()
    sim.add("a", text(0, 40))
    for _ in range(5):
        sim.step()
        assert sim.scheduled[-1].num_scheduled_tokens == {"running": 1}
    gate.set()
    sim.run()
    for name in ("running", "a"):
        sim.check_output(name)
    assert sim.last("a").num_cached_tokens == 32


def test_aborting_a_request_that_is_being_read_leaves_nothing(engines: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first = engines()
    ask(first, "a", text(0, 40))
    close(first)
    sim = engines()
    gate = threading.Event()
    read = BlockFiles.read
    monkeypatch.setattr(BlockFiles, "read", lambda *args: gate.wait(20) and read(*args))
    sim.add("a", text(0, 40))
    sim.step()
    assert not sim.scheduler.running
    sim.scheduler.abort(["a"])
    assert sim.kv.disk._lookup is None
    gate.set()
    sim.run()
    sim.check_idle()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    requests=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 70), st.integers(1, 20), st.booleans()), min_size=1, max_size=20),
    lag=st.integers(0, 2),
    swap_blocks=st.sampled_from([0, 1000]),
    index=st.sampled_from(["hash", "radix"]),
    eviction=st.sampled_from(["lru", "lfu", "cost"]),
    window=st.sampled_from([0, 0, 1, 12, 30]),
)
def test_random_requests_over_a_folder_that_fills(
    engines: Any, requests: list[tuple[int, int, int, bool]], lag: int, swap_blocks: int, index: str, eviction: str, window: int
) -> None:
    sim = engines(
        capacity=30 * FILE_BYTES, num_blocks=12, max_num_seqs=3, lag=lag, swap_blocks=swap_blocks, prefix_index=index, eviction=eviction,
        window=window,
    )  # fmt: skip
    for i, (kind, length, max_tokens, waits) in enumerate(requests):
        sim.add(f"r{i}", text(kind, length), max_tokens=max_tokens)
        if waits:
            sim.run()
    sim.run()
    for name in sim.cores:
        sim.check_output(name)
    sim.check_idle()
    close(sim)
