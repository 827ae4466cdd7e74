"""Watching a server over HTTP: what comes, what does not, and what becomes of it."""

from __future__ import annotations

import contextlib
import http.server
import json
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.bench.observe.observation import Observation, Sample
from octavo.bench.observe.observer import Observer
from octavo.bench.observe.reading import clock_offset
from octavo.errors import InvalidRequestError

Answer = Callable[[str], tuple[int, str]]


class Server:
    """Answers GETs as a function says, on one connection at a time; keeps what it was asked."""

    def __init__(self, answer: Answer, *, keep_alive: bool = True) -> None:
        self.asked: list[str] = []
        self.connections: set[Any] = set()
        self.headers: list[dict[str, str]] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1" if keep_alive else "HTTP/1.0"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                outer.asked.append(self.path)
                outer.headers.append(dict(self.headers))
                outer.connections.add(self.client_address)
                status, text = answer(self.path)
                self.send_response(status)
                self.send_header("Content-Length", str(len(text.encode())))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: Any) -> None:
                pass

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextlib.contextmanager
def serving(answer: Answer, **options: Any) -> Iterator[Server]:
    server = Server(answer, **options)
    try:
        yield server
    finally:
        server.close()


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.002)


def watch(server: Server, rounds: int = 4, path: str = "", **options: Any) -> Observation:
    """Until /metrics was asked for so many times."""
    observer = Observer(server.url + path, interval=0.01, **options)
    started = time.time()
    observer.start()
    wait_until(lambda: server.asked.count("/metrics") >= rounds)
    return observer.stop(started)


def test_samples_come_once_an_interval_on_one_connection() -> None:
    def answer(path: str) -> tuple[int, str]:
        return (200, '{"version": "0.32.0"}') if path == "/version" else (200, "vllm:num_requests_running 3.0\n")

    with serving(answer) as server:
        seen = watch(server, path="/v1/", api_key="secret")
        assert (seen.engine, seen.version, seen.partial, seen.notes) == ("vllm", "0.32.0", False, [])
        assert len(seen.samples) == server.asked.count("/metrics") - 1  # the first finds out who answers
        assert {sample.running for sample in seen.samples} == {3.0}
        times = [sample.time for sample in seen.samples]
        assert times == sorted(times) and times[0] > -0.01 and times[-1] < 30
        assert len(server.connections) == 1 and "/admin/steps" not in server.asked
        assert all(headers["Authorization"] == "Bearer secret" for headers in server.headers)


def test_without_metrics_it_says_so_once_and_asks_no_more() -> None:
    with serving(lambda path: (404, "no")) as server:
        observer = Observer(server.url, interval=0.01)
        observer.start()
        wait_until(lambda: len(server.asked) >= 3)
        time.sleep(0.05)
        seen = observer.stop(time.time())
        assert seen.engine is None and seen.samples == [] and not seen.partial
        assert seen.notes == ["the server has no /metrics (HTTP 404): its side is not seen"]
        assert len(server.asked) == 3


def test_metrics_of_an_unknown_engine_are_told() -> None:
    with serving(lambda path: (200, "mock:running 1\n")) as server:
        seen = watch(server)
    assert seen.engine is None and seen.notes == ["/metrics is of no engine that is known here: its side is not seen"]


def test_nobody_there_is_partial_and_harmless() -> None:
    observer = Observer("http://127.0.0.1:9", interval=0.01)
    observer.start()
    seen = observer.stop(time.time())
    assert seen.engine is None and seen.partial
    assert len(seen.notes) == 1 and "/metrics" in seen.notes[0] and "refused" in seen.notes[0]


def test_a_server_that_dies_leaves_what_there_was() -> None:
    server = Server(lambda path: (200, "llamacpp:requests_processing 2\n"), keep_alive=False)
    observer = Observer(server.url, interval=0.01)
    started = time.time()
    observer.start()
    wait_until(lambda: server.asked.count("/metrics") >= 4)
    server.close()
    wait_until(lambda: len(observer._recording.missed) >= 2)
    seen = observer.stop(started)
    assert seen.engine == "llama.cpp" and len(seen.samples) >= 2 and seen.partial
    assert len(seen.notes) == 1 and "refused" in seen.notes[0] and "times" in seen.notes[0]


def test_a_connection_that_the_server_closes_is_opened_again() -> None:
    with serving(lambda path: (200, "vllm:num_requests_running 1.0\n"), keep_alive=False) as server:
        seen = watch(server)
    assert len(seen.samples) >= 3 and not seen.partial and seen.notes == []


def test_broken_text_is_partial() -> None:
    texts = iter(["vllm:num_requests_running 1.0\n", "vllm:num_requests_running{broken 2\n"] * 100)
    with serving(lambda path: (200, next(texts) if path == "/metrics" else "{}")) as server:
        seen = watch(server)
    assert seen.partial and "could not be read" in seen.notes[0]


def step(number: int, at: float) -> dict[str, Any]:
    return {"step": number, "time": at, "seconds": 0.004, "sampled": 1, "a_key_of_tomorrow": 5}


class OctavoLike:
    """A server whose engine makes a step whenever it is asked, in answers of at most three steps."""

    def __init__(self, ahead: float = 0.0, forgets_at: int = -1) -> None:
        self.ahead = ahead
        self.steps: list[dict[str, Any]] = []
        self._questions = 0
        self._forgets_at = forgets_at

    def __call__(self, path: str) -> tuple[int, str]:
        if path == "/metrics":
            for _ in range(5):
                self.steps.append(step(len(self.steps) + 1, time.time() + self.ahead))
            return 200, "octavo_num_requests_running 1.0\n"
        if path == "/admin/engine":
            return 200, json.dumps({"version": "0.1.0", "info": {}, "settings": {}, "peak_memory_bytes": {"engine": len(self.steps)}})
        if not path.startswith("/admin/steps"):
            return 200, '{"version": "0.1.0"}'
        answer = {"now": time.time() + self.ahead, "last": len(self.steps), "lost": 0, "steps": []}
        if "?after=" in path:
            after = int(path.partition("=")[2])
            self._questions += 1
            first = after + 2 * (self._questions == self._forgets_at)
            answer |= {"steps": self.steps[first : first + 3], "lost": first - after}
        return 200, json.dumps(answer)


def test_no_step_is_missed_and_none_from_before_is_asked_for() -> None:
    engine = OctavoLike()
    engine.steps = [step(number, time.time()) for number in range(1, 101)]
    with serving(engine) as server:
        seen = watch(server)
    assert seen.engine == "octavo" and seen.notes == []
    assert seen.facts == {"version": "0.1.0", "info": {}, "settings": {}, "peak_memory_bytes": {"engine": len(engine.steps)}}  # of the end
    numbers = [each.step for each in seen.steps]
    assert 101 < numbers[0] <= 115 and numbers == list(range(numbers[0], len(engine.steps) + 1))
    assert all(-0.01 < each.time < 30 for each in seen.steps) and seen.clock_offset == 0
    assert seen.steps_until >= seen.steps[-1].time


def test_forgotten_steps_are_counted() -> None:
    with serving(OctavoLike(forgets_at=2)) as server:
        seen = watch(server)
    assert seen.lost_steps == 2 and seen.partial
    assert seen.notes == ["2 steps were forgotten by the server before they were fetched"]


def test_an_answer_that_nobody_foresaw_costs_the_servers_side_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo.bench.observe.reading._json", lambda reply: 1 / 0)
    with serving(OctavoLike()) as server:
        seen = watch(server)
    assert seen.partial and "cannot be read (ZeroDivisionError" in seen.notes[0]


def test_a_server_without_a_step_log_is_watched_all_the_same() -> None:
    def answer(path: str) -> tuple[int, str]:
        return (404, "") if path.startswith("/admin") else (200, "octavo_num_requests_running 1.0\n")

    with serving(answer) as server:
        seen = watch(server)
    assert seen.samples and seen.steps == [] and seen.facts is None
    assert seen.notes == ["no /admin/steps: HTTP 404"]


def test_another_machines_clock_is_told_from_the_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo.bench.load.target.Address.local", False)
    engine = OctavoLike(ahead=100.0)
    with serving(engine) as server:
        seen = watch(server)
    assert seen.clock_offset == pytest.approx(100, abs=0.5) and 0 < seen.clock_error < 0.5
    assert all(-1 < each.time < 30 for each in seen.steps)


@given(
    offset=st.floats(-1000, 1000),
    exchanges=st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 2), st.floats(0, 2)), min_size=1, max_size=10),
)
def test_the_true_offset_is_within_the_error(offset: float, exchanges: list[tuple[float, float, float]]) -> None:
    """Sent, time there and time back: the server's clock is read in between."""
    found, error = clock_offset([(sent, sent + there + back, sent + there + offset) for sent, there, back in exchanges])
    assert abs(found - offset) <= error + 1e-6
    assert error <= min(there + back for _, there, back in exchanges) / 2 + 1e-6


def test_a_clock_that_moved_is_read_at_the_quickest_exchange() -> None:
    assert clock_offset([(0, 1, 5), (10, 10.1, 30.05)]) == (pytest.approx(20), pytest.approx(0.05))


def test_growth_is_from_before_the_run_to_the_end() -> None:
    seen = Observation(samples=[Sample(time=time, preemptions=count) for time, count in [(-2, 3), (-1, 5), (1, 7), (9, 12)]])
    assert seen.grown("preemptions") == 7 and seen.grown("prefix_hits") is None
    assert Observation(samples=[Sample(time=1, preemptions=4), Sample(time=2, preemptions=6)]).grown("preemptions") == 2
    assert Observation(samples=[Sample(time=1, preemptions=4), Sample(time=2, preemptions=0)]).grown("preemptions") == 0
    assert [sample.time for sample in seen.within(5)] == [1]


def test_a_url_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="url = localhost:8000"):
        Observer("localhost:8000")
