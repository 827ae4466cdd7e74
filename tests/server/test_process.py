"""``octavo serve`` as a user starts it: two processes, a real model."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from octavo import _native
from support.live_server import TESTS
from support.outputs import OUTPUTS, SEEDS, TOKENIZER
from support.scripted import SCRIPTED, Script
from support.sse import chat_text, read_chunks, read_events, stream_text
from support.toy_tokenizer import write_model

OCTAVO = (sys.executable, "-m", "octavo")
FORBIDDEN = ("libtorch", "/torch/", "transformers")


class Served:
    """A server process, once it says that it is ready."""

    def __init__(self, *arguments: str) -> None:
        environment = {**os.environ, "PYTHONPATH": f"{TESTS}:{os.environ.get('PYTHONPATH', '')}"}
        self.process = subprocess.Popen(
            [*OCTAVO, "serve", *arguments, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )
        self.log = ""
        self.url = ""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.log += line
            if found := re.search(r"serves .* at (http://\S+)\. Try:", line):
                self.url = found[1]
            if self.url and line.startswith("    -d "):
                break
        assert self.url, self.log
        self.client = httpx.Client(base_url=self.url, timeout=60)

    def pids(self) -> list[int]:
        """The server's process and its engine's."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            children += (task / "children").read_text().split()
        return [self.process.pid, *{int(child) for child in children}]

    def stop(self, number: int = signal.SIGTERM) -> float:
        """Ask it to end; returns the seconds that took."""
        start = time.monotonic()
        self.process.send_signal(number)
        rest, _ = self.process.communicate(timeout=30)
        self.log += rest
        return time.monotonic() - start


@pytest.fixture(scope="module")
def real(smollm2_path: Path) -> Iterator[Served]:
    served = Served(str(smollm2_path), "--served-model-name", "smollm2", "--served-model-name", "tiny", "--max-model-len", "1024")
    yield served
    if served.process.poll() is None:
        served.stop()


@pytest.fixture
def scripted(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Starts a server with a scripted model; a test that fails leaves none behind."""
    started: list[Served] = []

    def start(*arguments: str, **script: Any) -> Served:
        model = write_model(tmp_path, Script(outputs=list(OUTPUTS.values()), **script), TOKENIZER)
        started.append(Served(model, "--runner-cls", SCRIPTED, *arguments))
        return started[-1]

    yield start
    for served in started:
        if served.process.poll() is None:
            served.process.kill()
            served.process.wait()


def test_real_model_answers(real: Served) -> None:
    assert real.client.get("/health").json()["status"] == "ok"
    assert [model["id"] for model in real.client.get("/v1/models").json()["data"]] == ["smollm2", "tiny"]
    body = {"model": "tiny", "prompt": "The capital of France is", "max_tokens": 8, "temperature": 0}
    whole = real.client.post("/v1/completions", json=body).json()
    assert "Paris" in whole["choices"][0]["text"]
    streamed = read_chunks(real.client.post("/v1/completions", json=body | {"stream": True}).text)
    assert stream_text(streamed) == whole["choices"][0]["text"]


def test_api_36_real_model_chats(real: Served) -> None:
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    body = {"messages": messages, "max_tokens": 16, "temperature": 0}
    whole = real.client.post("/v1/chat/completions", json=body).json()
    assert whole["usage"]["prompt_tokens"] == 37  # as llama.cpp and transformers count
    streamed = read_chunks(real.client.post("/v1/chat/completions", json=body | {"stream": True}).text)
    assert chat_text(streamed) == whole["choices"][0]["message"]["content"] != ""


def test_curl_line_works_as_printed(real: Served) -> None:
    command = real.log[real.log.index("  curl") :]
    answer = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(answer.stdout)["choices"][0]["text"]


def test_kv_17_usage_gauges_move_on_the_cpu(real: Served) -> None:
    def gauge(name: str) -> float:
        lines = real.client.get("/metrics").text.splitlines()
        return next(float(line.split()[-1]) for line in lines if line.startswith(f"octavo_{name}{{"))

    names = ("kv_cache_usage_perc", "kv_cache_token_usage_perc")
    body = {"prompt": [1000 + i for i in range(700)], "max_tokens": 100, "ignore_eos": True, "stream": True}
    with real.client.stream("POST", "/v1/completions", json=body) as response:
        events = response.iter_bytes()
        next(events)
        assert all(gauge(name) > 0 for name in names)
        assert b"[DONE]" in b"".join(events)
    assert [gauge(name) for name in names] == [0, 0]


def test_en_08_phases_of_starting_are_logged_and_add_up(real: Served) -> None:
    total = float(re.search(r"Ready in ([\d.]+) s", real.log)[1])
    lines = real.client.get("/metrics").text.splitlines()
    phases = [float(line.split()[-1]) for line in lines if line.startswith("octavo_startup_phase_seconds{")]
    assert len(phases) >= 4
    assert sum(phases) == pytest.approx(total, rel=0.1, abs=0.05)
    assert "Engine ready in" in real.log


def test_cpu_06_metrics_and_log_name_the_instruction_set(real: Served) -> None:
    line = next(line for line in real.client.get("/metrics").text.splitlines() if line.startswith("octavo_engine_info{"))
    isa = re.search(r'isa="(\w+)"', line)[1]
    assert isa in _native.supported_isas()
    assert isa in real.log


def test_no_torch_in_either_process(real: Served) -> None:
    pids = real.pids()
    assert len(pids) == 2
    for pid in pids:
        mapped = Path(f"/proc/{pid}/maps").read_text()
        assert "python" in mapped
        assert not any(name in mapped for name in FORBIDDEN)
    assert "octavo/_native" not in Path(f"/proc/{pids[0]}/maps").read_text()  # kernels are the engine's alone


def test_no_torch_among_imported_modules() -> None:
    code = (
        "import sys, octavo.server.launch as l; l._import_http(); import octavo.engine.async_llm, octavo.engine.process;"
        "import octavo.runner.model_runner, octavo.cli.main;"
        "sys.exit(str([m for m in sys.modules if m.split('.')[0] in ('torch', 'transformers')]))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr.strip() == "[]"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(scripted: Callable[..., Served], number: int) -> None:
    served = scripted()
    pids = served.pids()
    assert served.client.post("/v1/completions", json={"prompt": "hi"}).status_code == 200
    assert served.stop(number) < 3
    assert served.process.returncode == 0
    assert "Traceback" not in served.log
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_ob_01_a_dead_engine_is_told(scripted: Callable[..., Served]) -> None:
    served = scripted(step_seconds=0.02)
    body = {"prompt": "hi", "stream": True, "seed": SEEDS["long"], "max_tokens": 1000}
    with served.client.stream("POST", "/v1/completions", json=body) as response:
        events = response.iter_bytes()
        text = next(events)
        os.kill(served.pids()[1], signal.SIGKILL)
        text += b"".join(events)
    assert read_events(text.decode())[-1]["error"]["code"] == "engine_dead"
    assert served.client.get("/health").status_code == 503
    assert served.client.post("/v1/completions", json={"prompt": "hi"}).status_code == 503
    assert served.client.post("/v1/completions", json={"prompt": "hi", "stream": True}).status_code == 503
    assert served.stop() < 3


def test_running_requests_finish_or_are_told(scripted: Callable[..., Served]) -> None:
    served = scripted("--shutdown-timeout", "0.5", step_seconds=0.02)
    texts = []
    body = {"prompt": "hi", "stream": True, "seed": SEEDS["long"]}
    with (
        served.client.stream("POST", "/v1/completions", json=body | {"max_tokens": 10}) as short,
        served.client.stream("POST", "/v1/completions", json=body | {"max_tokens": 1000}) as long,
    ):
        time.sleep(0.1)
        served.process.send_signal(signal.SIGTERM)
        for response in (short, long):
            texts.append(b"".join(response.iter_bytes()).decode())
    short_chunks, long_chunks = map(read_chunks, texts)
    assert stream_text(short_chunks) == "G" * 10
    assert long_chunks[-1]["choices"][0]["finish_reason"] == "abort"
    assert served.stop(0) < 3


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*OCTAVO, *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_port_in_use_is_told_in_one_line_before_loading(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        result = run("serve", str(tmp_path), "--port", str(other.getsockname()[1]))  # no model there, but that is found out later
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert "in use" in result.stderr


def test_missing_and_corrupt_models_are_told_in_one_line(tmp_path: Path) -> None:
    corrupt = tmp_path / "corrupt.gguf"
    corrupt.write_bytes(b"GGUF" + b"\xff" * 100)
    for model in (str(tmp_path / "missing.gguf"), str(corrupt)):
        result = run("serve", model, "--port", "0")
        assert result.returncode == 1
        assert result.stderr.count("\n") == 1, result.stderr
        assert "Traceback" not in result.stderr
