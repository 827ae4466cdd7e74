"""The engine process: start, death, hanging, hostile messages, the end of its client."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
import zmq

from octavo.engine import messages
from octavo.engine.client import EngineState
from octavo.engine.remote import EngineProcess
from octavo.errors import EngineDeadError, InvalidRequestError
from octavo.request import EngineCoreRequest
from octavo.sampling_params import SamplingParams


@pytest.fixture
def launch(make_args):
    """Engine processes, ended at the end."""
    started = []

    def start(*args, ready: bool = True, **kwargs) -> EngineProcess:
        started.append(EngineProcess.launch(make_args(*args, **kwargs)))
        if ready:
            started[-1].wait_ready(30)
        return started[-1]

    yield start
    for process in started:
        process.shutdown(grace_s=0.5)


def request(name: str = "r", **params) -> EngineCoreRequest:
    return EngineCoreRequest(name, [5, 6], SamplingParams(**({"seed": 0, "max_tokens": 5, "ignore_eos": True} | params)))


async def collect(process: EngineProcess, name: str = "r") -> list[int]:
    tokens = []
    while True:
        for output in (await asyncio.wait_for(process.receive(), 20)).outputs:
            if output.request_id == name:
                tokens += output.new_token_ids
                if output.finish_reason is not None:
                    return tokens


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z"


def wait_until(condition, seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


def test_a_request_goes_there_and_back(launch):
    process = launch(script={"outputs": [[9, 8, 7]]})
    process.add(request())
    assert process.health().state == EngineState.BUSY
    assert asyncio.run(collect(process)) == [9, 8, 7, 0, 0]
    health = process.health()
    assert (health.state, health.open_requests) == (EngineState.IDLE, 0) and health.seconds_since_step < 5
    assert process.stats.steps == 5


def test_en_08_the_phases_cover_the_time_from_launch(launch):
    begin = time.monotonic()
    process = launch(script={"load_seconds": 0.3})
    waited = time.monotonic() - begin
    info = process.info
    assert sum(info.phases.values()) == pytest.approx(info.start_seconds, rel=0.1)
    assert 0.3 < info.start_seconds <= waited + 0.05


def test_what_is_wrong_reaches_whoever_waits(launch):
    process = launch(num_gpu_blocks_override=None, kv_cache_memory_bytes=1, ready=False)
    with pytest.raises(InvalidRequestError, match="kv_cache_memory_bytes = 1") as error:
        process.wait_ready(30)
    assert error.value.field == "kv_cache_memory_bytes"
    assert wait_until(lambda: not alive(process.pid))


def test_a_runner_that_cannot_be_imported(launch):
    with pytest.raises(InvalidRequestError, match="runner_cls"):
        launch(runner_cls="nowhere:Runner")


def test_an_engine_that_is_not_ready_in_time_is_ended(launch):
    process = launch(script={"load_seconds": 60}, ready=False)
    begin = time.monotonic()
    with pytest.raises(EngineDeadError, match="not ready within 0 s"):
        process.wait_ready(0.4)
    assert not alive(process.pid) and time.monotonic() - begin < 4


@pytest.mark.parametrize("script", [{"die_at_step": 3}, {"raise_at_step": 3}])
def test_ob_01_a_dead_engine_is_noticed_at_once(launch, script):
    process = launch(script=script)
    process.add(request(max_tokens=50))
    with pytest.raises(EngineDeadError, match=r"exit code 13|the script says so"):
        asyncio.run(collect(process))
    assert wait_until(lambda: process.health().state == EngineState.DEAD, 2)
    with pytest.raises(EngineDeadError):
        process.add(request("another"))


def test_ob_01_an_end_that_nobody_asked_for_is_logged(launch, caplog):
    told, killed = launch(), launch()
    told.shutdown()
    os.kill(killed.pid, signal.SIGKILL)
    assert wait_until(lambda: caplog.messages, 5)
    assert caplog.messages == ["the engine process ended by signal 9 (Killed); nothing is served any more"]


def test_ob_01_a_killed_engine_is_noticed_at_once(launch):
    process = launch(script={"step_seconds": 0.05})
    process.add(request(max_tokens=500))

    async def kill_and_wait() -> float:
        await process.receive()
        os.kill(process.pid, signal.SIGKILL)
        begin = time.monotonic()
        with pytest.raises(EngineDeadError, match="signal 9"):
            while True:
                await asyncio.wait_for(process.receive(), 10)
        return time.monotonic() - begin

    assert asyncio.run(kill_and_wait()) < 2
    assert process.health().state == EngineState.DEAD and "signal 9" in process.health().reason


def test_ob_02_a_hanging_step_is_told_from_an_idle_engine(launch):
    process = launch(script={"hang_at_step": 2})
    time.sleep(0.3)
    assert process.health(stall_seconds=0.2).state == EngineState.IDLE
    process.add(request())
    assert process.health(stall_seconds=0.2).state == EngineState.BUSY
    asyncio.run(process.receive())
    time.sleep(0.4)
    health = process.health(stall_seconds=0.2)
    assert health.state == EngineState.STUCK and health.seconds_since_step > 0.3


def test_an_idle_engine_uses_no_cpu(launch):
    process = launch()
    process.add(request())
    asyncio.run(collect(process))
    time.sleep(0.8)  # it has checked its books by now

    def cpu_ticks() -> int:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    before = cpu_ticks()
    time.sleep(0.5)
    assert cpu_ticks() - before <= 1


def hostile_messages() -> list[bytes]:
    class Touch:
        def __reduce__(self):
            return os.system, ("touch /tmp/octavo-was-here",)

    return [
        pickle.dumps(Touch()),
        b"",
        b"\xc1",
        b"\xdd\xff\xff\xff\xff",
        msgspec.msgpack.encode({"type": "unknown"}),
        msgspec.msgpack.encode({"type": "add", "request": {"request_id": 7}}),
        msgspec.msgpack.encode({"type": "add", "request": {"request_id": "x", "prompt_token_ids": [1], "sampling_params": {"n": 10**9}}}),
        os.urandom(100_000),
    ]


def test_se_06_hostile_messages_are_dropped_on_both_sockets(launch):
    process = launch(script={"outputs": [[9, 8, 7]]})
    folder = process._directory
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    context = zmq.Context()
    for name in (messages.TO_ENGINE_SOCKET, messages.FROM_ENGINE_SOCKET):
        socket = context.socket(zmq.PUSH)
        socket.connect(messages.address(folder, name))
        for message in hostile_messages():
            socket.send(message)
        socket.close(linger=2000)
    context.term()
    process.add(request())
    assert asyncio.run(collect(process)) == [9, 8, 7, 0, 0]
    assert not Path("/tmp/octavo-was-here").exists()


def test_a_long_temporary_folder_is_no_obstacle(launch, tmp_path, monkeypatch):
    import tempfile

    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    process = launch(script={"outputs": [[9, 8, 7]]})
    process.add(request())
    assert asyncio.run(collect(process)) == [9, 8, 7, 0, 0]


def test_no_module_of_octavo_imports_pickle():
    import octavo

    root = Path(octavo.__file__).parent
    assert [path for path in root.rglob("*.py") if "import pickle" in path.read_text()] == []


def test_the_engine_ends_with_its_client(make_args):
    args = make_args()
    code = (
        "import sys, time\n"
        "from octavo import EngineArgs\n"
        "from octavo.engine.remote import EngineProcess\n"
        f"p = EngineProcess.launch(EngineArgs(model={args.model!r}, runner_cls={args.runner_cls!r}, max_model_len=64))\n"
        "p.wait_ready(); print(p.pid, p._directory, flush=True); time.sleep(60)\n"
    )
    client = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    pid, folder = client.stdout.readline().split()
    pid = int(pid)
    assert alive(pid) and Path(folder).is_dir()
    client.kill()
    client.wait()
    client.stdout.close()
    assert wait_until(lambda: not alive(pid), 5)
    assert not Path(folder).exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_that_a_terminal_or_a_service_manager_sends_to_all_are_the_clients(launch, number):
    process = launch(script={"outputs": [[9, 8, 7]]})
    os.kill(process.pid, number)
    process.add(request())
    assert asyncio.run(collect(process)) == [9, 8, 7, 0, 0]


def test_shutdown_ends_the_process_and_removes_its_folder(launch):
    process = launch()
    folder = process._directory
    process.shutdown()
    assert not alive(process.pid) and not Path(folder).exists()
    assert process._process.returncode == 0
    process.shutdown()
    with pytest.raises(EngineDeadError):
        process.add(request())
    assert process.health().state == EngineState.DEAD


def test_an_engine_that_is_stopped_before_it_has_begun_ends_when_it_is_loaded(launch):
    process = launch(ready=False)
    begin = time.monotonic()
    process.shutdown(grace_s=30)
    assert process._process.returncode == 0 and time.monotonic() - begin < 20


def test_shutdown_of_a_hanging_engine_takes_force(launch):
    process = launch(script={"hang_at_step": 1})
    process.add(request())
    time.sleep(0.2)
    process.shutdown(grace_s=0.2)
    assert not alive(process.pid)


def test_aborting_stops_the_work(launch):
    process = launch(script={"step_seconds": 0.02})
    process.add(request(max_tokens=900))

    async def abort_and_count() -> int:
        await process.receive()
        process.abort(["r", "unknown"])
        steps = 0
        while process.stats.running or process.stats.steps == 0:
            await asyncio.wait_for(process.receive(), 5)
            steps += 1
        return steps

    assert asyncio.run(abort_and_count()) <= 3
    assert process.health().state == EngineState.IDLE


def test_the_clients_side_imports_no_runner_and_no_kernels():
    code = (
        "import sys\nimport octavo.engine.async_llm\n"
        "bad = [m for m in sys.modules if m.startswith(('octavo.runner', 'octavo._native', 'octavo.models', 'torch', 'transformers'))]\n"
        "assert not bad, bad\n"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
