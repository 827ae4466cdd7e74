"""Was the machine quiet: from counters as the kernel writes them, at two moments."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from octavo.bench.report.processes import TICKS, families, listener, machine_times, process_times
from octavo.bench.report.quiet import Quiet


class FakeProc:
    """A /proc with a clock: seconds of CPU time as a test sets them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now = 0.0
        self.machine(0, 0)

    def machine(self, busy: float, stolen: float) -> None:
        ticks = [int(busy * TICKS * share) for share in (0.5, 0.1, 0.4)]
        (self.root / "stat").write_text(f"cpu  {ticks[0]} {ticks[1]} {ticks[2]} 999 0 0 77 {int(stolen * TICKS)} 0 0\ncpu0 1 2 3\n")
        (self.root / "loadavg").write_text("1.25 0.5 0.1 1/100 1\n")

    def process(self, pid: int, seconds: float, parent: int = 1, name: str = "a (b) c", of_children: float = 0) -> None:
        folder = self.root / str(pid)
        folder.mkdir(exist_ok=True)
        fields = ["S", str(parent), *["0"] * 9, str(int(seconds * TICKS)), "0", "0", str(int(of_children * TICKS)), *["0"] * 10]
        (folder / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")

    def quiet(self, *own: int) -> Quiet:
        return Quiet(own, self.root, lambda: self.now)


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path)


def test_own_processes_are_no_disturbance_and_others_are_named(proc: FakeProc) -> None:
    me = os.getpid()
    for pid, parent in ((me, 1), (500, 1), (501, 500), (900, 1), (901, 1)):
        proc.process(pid, 0, parent)
    with proc.quiet(500) as quiet:
        proc.now = 10.0
        proc.process(me, 5)
        proc.process(500, 3)
        proc.process(501, 8, 500)  # the server's worker
        proc.process(900, 4, name="rustc")
        proc.process(901, 1, name="llama-server")
        proc.machine(21, 0)  # 5 + 3 + 8 of the measurement, 5 of others
    assert quiet.during is not None and not quiet.during.quiet
    assert quiet.during.others_cpus == pytest.approx(0.5)
    assert quiet.during.busiest == ["rustc 0.40", "llama-server 0.10"]
    assert quiet.during.engines == ["llama-server"]
    assert quiet.warnings() == [
        "The machine was not quiet during the run: other processes kept 0.5 CPUs busy (rustc 0.40, llama-server 0.10)."
    ]


def test_a_child_that_ends_is_counted_once_and_only_for_the_time_looked_at(proc: FakeProc) -> None:
    """The kernel adds a child's whole life to its parent's account when it ends: an hour of compiling is no 360 CPUs in ten seconds."""
    me = os.getpid()
    proc.process(me, 1)
    proc.process(700, 3000, me)  # the measurement's own
    proc.process(800, 0.5, name="make")
    proc.process(801, 3600, 800, name="cc1")
    with proc.quiet() as quiet:
        proc.now = 10.0
        for pid in (700, 801):
            (proc.root / str(pid) / "stat").unlink()
        proc.process(me, 1, of_children=3004)
        proc.process(800, 1.0, name="make", of_children=3606)
        proc.machine(4 + 6.5, 0)
    assert quiet.during is not None
    assert quiet.during.others_cpus == pytest.approx(0.65)
    assert quiet.during.busiest == ["make 0.05"]


def test_a_quiet_machine_gets_no_word(proc: FakeProc) -> None:
    proc.process(os.getpid(), 0)
    with proc.quiet() as quiet:
        proc.now = 10.0
        proc.process(os.getpid(), 9)
        proc.machine(9.5, 0.05)
    assert quiet.during is not None and quiet.during.quiet
    assert quiet.warnings() == []
    assert quiet.as_facts()["during"]["others_cpus"] == pytest.approx(0.05)
    assert quiet.as_facts()["during"]["load_average"] == 1.25


def test_stolen_time_is_told(proc: FakeProc) -> None:
    proc.process(os.getpid(), 0)
    with proc.quiet() as quiet:
        proc.now = 10.0
        proc.process(os.getpid(), 9)
        proc.machine(9, 1)
    assert quiet.warnings() == ["The machine was not quiet during the run: the host took 10 % of the CPU time away (steal)."]


def test_processes_that_came_and_went_count_too(proc: FakeProc) -> None:
    proc.process(os.getpid(), 0)

    def two_seconds_later(seconds: float) -> None:
        assert seconds == 2
        proc.now = 2.0
        proc.machine(3, 0)

    before = proc.quiet().look_before(2, sleep=two_seconds_later)
    assert before.others_cpus == pytest.approx(1.5)
    assert (before.words("before the run") or "").startswith("The machine was not quiet before the run: other processes kept 1.5 CPUs")


def test_without_a_proc_nothing_is_claimed(tmp_path: Path) -> None:
    with Quiet(proc=tmp_path / "none") as quiet:
        pass
    assert quiet.during is not None and quiet.during.others_cpus is None and quiet.warnings() == []


def test_this_machines_own_files_can_be_read() -> None:
    times, processes = machine_times(), process_times()
    assert times is not None and times.busy > 0
    assert os.getpid() in processes and processes[os.getpid()].parent == os.getppid()
    assert os.getpid() in families(processes, [os.getppid()])


def test_a_listener_is_found_by_its_port() -> None:
    import socket

    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        assert listener(port) == os.getpid()
    assert listener(port) is None
