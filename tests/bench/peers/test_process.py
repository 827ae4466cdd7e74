"""Servers with bad manners are started, timed, weighed and ended; none leaves a process behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from octavo.bench.peers import tree
from octavo.bench.peers.process import ServerError, ServerProcess
from octavo.bench.peers.tree import Process, is_alive, processes_of

SERVER = Path(__file__).parent / "small_server.py"
CHILD_BYTES = 40 * 2**20
"""small_server.HELD."""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def server(tmp_path: Path, *manners: str, port: int | None = None, **options) -> ServerProcess:
    port = port or free_port()
    command = [sys.executable, str(SERVER), str(port), *manners]
    return ServerProcess(command, f"http://127.0.0.1:{port}/health", None, tmp_path / "server.log", name="small", **options)


def none_alive(processes: list[Process], seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while any(is_alive(process) for process in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_start_up_is_timed_until_the_first_200(tmp_path: Path) -> None:
    with server(tmp_path, "slow") as small:
        assert 0.5 <= small.startup_seconds < 5
        assert small.failure() is None
        members = processes_of(small.pid)
        assert [process.pid for process in members] == [small.pid]
    assert none_alive(members, 0)


def test_a_port_that_answers_already_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with server(tmp_path) as first:
        port = int(first._ready_url.split(":")[2].split("/")[0])
        with pytest.raises(ServerError, match=rf"127.0.0.1:{port} already"):
            server(tmp_path, port=port).start()
        assert first.failure() is None


def test_a_server_that_dies_is_told_with_its_last_words(tmp_path: Path) -> None:
    before = time.monotonic()
    with pytest.raises(ServerError, match=r"small ended with status 1 .*no such model.*before it was ready"):
        server(tmp_path, "dies").start()
    assert time.monotonic() - before < 10  # and not after the 300 s it might have taken


def test_a_command_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="/no/such/server cannot be run: No such file"):
        ServerProcess(["/no/such/server"], f"http://127.0.0.1:{free_port()}/", None, tmp_path / "log").start()


def test_a_server_that_is_never_ready_is_ended(tmp_path: Path) -> None:
    port = free_port()
    never = ServerProcess(
        [sys.executable, str(SERVER), str(port), "slow"], f"http://127.0.0.1:{port}/", None, tmp_path / "l", ready_timeout=0.2
    )
    with pytest.raises(ServerError, match=r"not ready in 0.2 s"):
        never.start()
    assert none_alive(processes_of(never.pid), 0)


def test_a_server_that_ends_by_itself_is_noticed(tmp_path: Path) -> None:
    with server(tmp_path) as small:
        with pytest.raises(OSError):
            urllib.request.urlopen(small._ready_url.replace("health", "quit"), timeout=5).read()
            raise ConnectionResetError  # it may have answered first
        for _ in range(250):
            if small.failure():
                break
            time.sleep(0.02)
        assert "ended with status 3" in str(small.failure())


def test_who_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    with server(tmp_path, "stubborn", grace=0.3) as small:
        members = processes_of(small.pid)
    assert none_alive(members, 0)


def test_children_count_and_do_not_stay_behind(tmp_path: Path) -> None:
    with server(tmp_path, "children") as small:
        for _ in range(250):
            if len(processes_of(small.pid)) == 3:
                break
            time.sleep(0.02)
        time.sleep(0.3)  # until they hold what they will
        small.settle()
        members = processes_of(small.pid)
    memory = small.memory
    assert memory is not None and memory.processes == len(members) == 3
    assert memory.peak > 2 * CHILD_BYTES
    assert memory.peak < memory.upper  # the interpreter is shared by three
    assert memory.upper - memory.peak < memory.upper - 2 * CHILD_BYTES
    assert none_alive(members, 0)


def test_a_child_that_chose_a_session_of_its_own_is_ended_too(tmp_path: Path) -> None:
    with server(tmp_path, "runaway", grace=0.3) as small:
        for _ in range(250):
            if len(processes_of(small.pid)) == 2:
                break
            time.sleep(0.02)
        members = processes_of(small.pid)
        assert len(members) == 2
    assert none_alive(members, 0)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_a_benchmark_that_is_killed_leaves_no_server(tmp_path: Path, end: signal.Signals) -> None:
    port = free_port()
    script = (
        "import sys, time; from pathlib import Path; from octavo.bench.peers.process import ServerProcess\n"
        f"command = [sys.executable, {str(SERVER)!r}, '{port}', 'children']\n"
        f"with ServerProcess(command, 'http://127.0.0.1:{port}/', None, Path('log'), grace=1) as server:\n"
        "    print(server.pid, flush=True); time.sleep(60)\n"
    )
    benchmark = subprocess.Popen(
        [sys.executable, "-c", script], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=os.environ
    )
    assert benchmark.stdout is not None
    members = processes_of(int(benchmark.stdout.readline()))
    assert members
    benchmark.send_signal(end)
    benchmark.communicate(timeout=20)
    assert none_alive(members)


def test_memory_is_none_where_there_is_no_proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "PROC", tmp_path / "none")
    with server(tmp_path) as small:
        pass
    assert small.memory is None


def test_shared_pages_are_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes, each of 100 kB at its highest, 80 now, of which 60 are the same pages: 100 + 100 - 60."""
    for pid in ("11", "12"):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "status").write_text("Name:\tx\nVmHWM:\t 100 kB\n")
        (tmp_path / pid / "smaps_rollup").write_text("0-1 ---p\nRss:  80 kB\nPss:  50 kB\n")
    monkeypatch.setattr(tree, "PROC", tmp_path)
    peak = tree.PeakMemory()
    peak.sample([Process(11, 1), Process(12, 1)])
    assert peak.memory == tree.Memory(200 * 1024, 200 * 1024, 2)
    peak.settle([Process(11, 1)])
    peak.settle([Process(11, 1), Process(12, 1)])
    assert peak.memory == tree.Memory(140 * 1024, 200 * 1024, 2)
