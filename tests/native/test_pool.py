"""The thread pool, seen through ops that run on it."""

from __future__ import annotations

import os
import threading
import time

import numpy as np
import pytest

from octavo import _native
from support.native_cases import ISAS


def adder(pool: _native.ThreadPool, tokens: int = 600) -> tuple[_native.Program, np.ndarray]:
    """A program that doubles its rows, in many work items, and what it should give."""
    program = _native.Program(ISAS[0], pool)
    x, y = program.add_buffer("f32", 96, "tokens"), program.add_buffer("f32", 96, "logits")
    program.add_op("add", [x, x], [x], [], [], [])
    program.add_op("gather", [x], [y], [], [], [])
    values = np.arange(tokens * 96, dtype=np.float32).reshape(tokens, 96)
    program.write(x, values)
    return program, 2 * values


def step(program: _native.Program, tokens: int = 600) -> np.ndarray:
    rows = np.arange(tokens, dtype=np.int32)
    return program.run(None, rows, rows, np.array([0, tokens], np.int32), np.array([tokens], np.int32), [], [], rows)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_item_runs_once(threads: int) -> None:
    pool = _native.ThreadPool([-1] * threads)
    assert pool.num_threads == threads
    program, want = adder(pool)
    np.testing.assert_array_equal(step(program), want)
    for _ in range(300):
        want = want * 2 if want.max() < 1e30 else want
        got = step(program)
        if want.max() < 1e30:
            np.testing.assert_array_equal(got, want)


def test_sleeping_workers_wake() -> None:
    program, want = adder(_native.ThreadPool([-1, -1]))
    for factor in (1, 2, 4):
        time.sleep(0.01)
        np.testing.assert_array_equal(step(program), want * factor)


def test_callers_take_turns() -> None:
    pool = _native.ThreadPool([-1, -1])
    programs = [adder(pool) for _ in range(4)]
    failures: list[str] = []

    def use(program: _native.Program, want: np.ndarray) -> None:
        for _ in range(50):
            if not np.array_equal(step(program), want):
                failures.append("wrong rows")
            want = want * 2

    threads = [threading.Thread(target=use, args=pair) for pair in programs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_closed_pool_runs_on_the_caller() -> None:
    pool = _native.ThreadPool([-1, -1])
    program, want = adder(pool)
    pool.close()
    pool.close()
    np.testing.assert_array_equal(step(program), want)


def test_workers_are_pinned_and_the_caller_is_left_alone() -> None:
    before = os.sched_getaffinity(0)
    known = set(os.listdir("/proc/self/task"))
    cpu = min(before)
    pool = _native.ThreadPool([cpu, cpu])
    new = set(os.listdir("/proc/self/task")) - known
    assert [os.sched_getaffinity(int(task)) for task in new] == [{cpu}]
    assert os.sched_getaffinity(0) == before
    pool.close()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU")
def test_a_caller_on_a_workers_cpu_moves_to_its_own() -> None:
    def last_cpu() -> int:
        with open("/proc/thread-self/stat") as stat:
            return int(stat.read().rpartition(")")[2].split()[36])

    before = os.sched_getaffinity(0)
    own, workers = sorted(before)[:2]
    program, _ = adder(_native.ThreadPool([own, workers]))
    seen = set()
    for _ in range(10):
        os.sched_setaffinity(0, {workers})
        os.sched_setaffinity(0, before)  # still there, until it is moved
        for _ in range(10):
            step(program)
        seen.add(last_cpu())
        assert os.sched_getaffinity(0) == before
    assert own in seen
    os.sched_setaffinity(0, {workers})  # whoever was told to stay does
    for _ in range(20):
        step(program)
    assert last_cpu() == workers and os.sched_getaffinity(0) == {workers}
    os.sched_setaffinity(0, before)


def test_idle_workers_sleep() -> None:
    pool = _native.ThreadPool([-1] * 3)
    time.sleep(0.02)
    used = time.process_time()
    time.sleep(0.2)
    assert time.process_time() - used < 0.02
    pool.close()


def test_cpus_are_checked() -> None:
    with pytest.raises(ValueError, match="cpus: at least one"):
        _native.ThreadPool([])
    with pytest.raises(ValueError, match="cpus: this process may not run on CPU 100000"):
        _native.ThreadPool([0, 100000])
    with pytest.raises(ValueError, match="cpus: this process may not run on CPU -2"):
        _native.ThreadPool([-2])
