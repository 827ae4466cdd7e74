"""The load client against a mock server of known behaviour. Times are wide: the machine may be busy."""

from __future__ import annotations

import errno
import gc
import os
import resource
import signal
import time
from collections.abc import Sequence

import pytest

from octavo.bench.load.connection import Connection, Pool
from octavo.bench.load.records import LoadRun, RequestRecord, Usage
from octavo.bench.load.run import LoadOptions, offer
from octavo.bench.load.target import Target
from octavo.bench.measures.measures import measure
from octavo.errors import InvalidRequestError
from support.load import constant, drawn
from support.mock_openai import MockProcess, MockServer

LAX = LoadOptions(max_client_lag=10.0)
CHAT = "/v1/chat/completions"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo.bench.load.run.GONE_S", 0.5)


def load(mock: MockServer | MockProcess, requests: list, concurrency: int | None = None, **settings: object) -> LoadRun:  # type: ignore[type-arg]
    return offer(Target(mock.url, "mock", **settings), requests, concurrency=concurrency, options=LAX)  # type: ignore[arg-type]


def test_bm_01_a_chunk_of_two_tokens_is_two_tokens() -> None:
    with MockServer(tokens_per_chunk=2, gap_ms=100) as mock:
        (record,) = load(mock, drawn([0.0], tokens=10)).records
    assert [chunk.tokens for chunk in record.chunks] == [2] * 5
    assert len(record.gaps) == 9
    assert 0.36 < sum(record.gaps) < 0.6
    assert record.tpot == pytest.approx(sum(record.gaps) / 9)


@pytest.mark.parametrize("fields", [{"continuous_usage": False}, {"continuous_usage": False, "token_ids": False}])
def test_bm_01_without_counts_in_each_chunk(fields: dict[str, bool]) -> None:
    with MockServer(tokens_per_chunk=2, gap_ms=1, **fields) as mock:
        (record,) = load(mock, drawn([0.0], tokens=10)).records
    assert [chunk.tokens for chunk in record.chunks] == [2] * 5
    assert record.counted == "usage"


def test_bm_02_the_role_is_no_text() -> None:
    with MockServer(role_ms=100, first_ms=1000, gap_ms=10) as mock:
        (record,) = load(mock, drawn([0.0], text="hello"), endpoint=CHAT).records
    assert 0.99 < record.ttft < 1.5


def test_bm_04_the_servers_usage_wins_over_the_tokenizer() -> None:
    class Doubling:
        def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
            assert not add_special_tokens
            return [0, *range(len(text.split()))]

    with MockServer(tokens_per_chunk=3, continuous_usage=False, token_ids=False) as mock:
        (record,) = load(mock, drawn([0.0], tokens=10), tokenizer=Doubling()).records
    assert record.received_tokens == 10
    assert record.counted == "text"
    assert len(record.chunks) == 4


def stalled(requests: int, rate: float, at: float, seconds: float) -> tuple[LoadRun, LoadRun]:
    """Open loop, and closed loop with one client, on a server that freezes once."""
    with MockProcess(freezes=((at, seconds),)) as mock:
        opened = load(mock, constant(rate, requests, tokens=1))
    with MockProcess(freezes=((at, seconds),), first_ms=1000 / rate) as mock:
        closed = load(mock, drawn([0.0] * int(rate * (at + 1)), tokens=1), concurrency=1)
    return opened, closed


def check_stall(opened: LoadRun, closed: LoadRun, rate: float, seconds: float) -> None:
    delayed = [record for record in opened.records if record.ttft > 0.1 * seconds]
    assert 0.75 * rate * seconds <= len(delayed) <= 2 * rate * seconds
    assert measure(opened)["ttft_ms"]["p99"] >= 800 * seconds
    slow = [record for record in closed.records if record.ttft > 0.5 * seconds + 1 / rate]
    assert len(slow) == 1


def test_bm_05_a_stall_delays_all_that_was_scheduled_in_it() -> None:
    """As the case has it, in 2 s."""
    check_stall(*stalled(100, rate=50, at=0.5, seconds=0.5), rate=50, seconds=0.5)


@pytest.mark.slow
def test_bm_05_frozen_for_1_s_in_20_s_of_10_requests_a_second() -> None:
    """It begins a little before the request of t=5 is due, and ends after 1 s as that one sees it: third of 200, it makes the p99."""
    check_stall(*stalled(200, rate=10, at=4.95, seconds=1.08), rate=10, seconds=1)


def test_bm_05_waiting_in_the_client_counts_and_is_shown_apart() -> None:
    with MockServer(first_ms=300) as mock:
        run = load(mock, drawn([0.0, 0.001, 0.002], tokens=1), concurrency=1)
        assert mock.peak_in_flight == run.client.peak_in_flight == 1
    last = run.records[2]
    assert last.ttft >= 0.89
    assert last.queued == pytest.approx(0.6, abs=0.2)
    assert max(run.client.send_lag) < 0.25  # the queue is not the client's lag
    assert run.open_loop


def test_bm_06_300_in_flight() -> None:
    with MockProcess(first_ms=700) as mock:
        run = load(mock, drawn([0.0] * 300, tokens=1), concurrency=300)
        assert mock.stats()["peak_in_flight"] == 300
    assert run.client.peak_in_flight == 300
    assert all(record.completed for record in run.records)


def test_bm_06_more_connections_than_files_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 256))
    with pytest.raises(InvalidRequestError, match="max_concurrency = 300: this process may open 256 files"):
        offer(Target("http://127.0.0.1:1", "mock"), drawn([0.0] * 300), concurrency=300)


def test_bm_06_a_concurrency_that_was_not_reached_makes_the_run_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    connect, made = Pool.connect, []

    async def few(pool: Pool, *, fresh: bool = False) -> Connection:
        made.append(1)
        if len(made) > 10:
            raise OSError(errno.EMFILE, "")
        return await connect(pool, fresh=fresh)

    monkeypatch.setattr(Pool, "connect", few)
    with MockServer(first_ms=200) as mock:
        run = load(mock, drawn([0.0] * 30), concurrency=30)
    assert run.client.bottleneck == "10 requests in flight at most, not 30"
    assert run.records[10].message == "no connection: Too many open files"


def test_bm_12_an_answer_of_another_length_is_flagged() -> None:
    with MockServer(stop_short=3) as mock:
        run = load(mock, drawn([0.0], tokens=8))
    assert run.records[0].completed and not run.records[0].exact
    assert measure(run)["wrong_length"] == 1


def test_bm_13_cached_tokens_are_reported() -> None:
    with MockServer(cached_tokens=2) as mock:
        run = load(mock, drawn([0.0, 0.01]))
    assert [record.usage and record.usage.cached_tokens for record in run.records] == [2, 2]
    assert measure(run)["cached_prompt_tokens"] == 4


def test_a_usage_without_the_prompts_tokens_leaves_the_plan() -> None:
    with MockServer(usage_without=("prompt_tokens", "total_tokens")) as mock:
        run = load(mock, drawn([0.0], tokens=4))
    assert run.records[0].usage == Usage(prompt_tokens=3, completion_tokens=4)
    result = measure(run)
    assert (result["prompt_tokens"], result["wrong_length"]) == (3, 0)


def test_what_is_sent() -> None:
    with MockServer() as mock:
        load(mock, drawn([0.0], tenant="a"), cache_salt="run 2", extra_body={"temperature": 1})
        load(mock, drawn([0.0], text="hi"), endpoint=CHAT)
        ids, chat = (seen["body"] for seen in mock.seen)
    common = {"model": "mock", "max_tokens": 4, "stream": True, "ignore_eos": True}
    options = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    assert ids == {**common, **options, "prompt": [5, 6, 7], "temperature": 1, "user": "a", "cache_salt": "run 2 a"}
    assert chat == {**common, **options, "messages": [{"role": "user", "content": "hi"}], "temperature": 0}


def test_open_loop_sends_on_time_whatever_the_server_does() -> None:
    with MockServer(first_ms=500) as mock:
        run = load(mock, constant(100, 20, tokens=1))
        arrivals = [seen["arrival"] for seen in mock.seen]
    assert run.client.peak_in_flight == 20
    assert arrivals[-1] < 0.45
    assert [record.scheduled for record in run.records] == [i / 100 for i in range(20)]


def test_a_run_of_some_milliseconds_is_not_judged_by_its_share_of_a_core() -> None:
    with MockProcess() as mock:
        run = load(mock, drawn([0.0] * 40, tokens=8))
    assert run.seconds < 1 and run.client.cpu_share > 0 and run.client.bottleneck is None


def test_closed_loop_sends_when_an_answer_is_over() -> None:
    with MockServer(first_ms=50) as mock:
        run = load(mock, drawn([0.0] * 8, tokens=1), concurrency=2)
    assert not run.open_loop and run.client.peak_in_flight == 2
    ends = sorted(record.ended or 0 for record in run.records)
    assert all(record.scheduled >= ends[i] for i, record in enumerate(run.records[2:]))
    assert all(record.ttft < 0.19 for record in run.records)  # counted from then, not from the start


@pytest.mark.parametrize("fields", [{"crlf": True}, {"comments": True}, {"piece_bytes": 7}, {"no_done": True}])
def test_streams_of_every_form(fields: dict[str, object]) -> None:
    with MockServer(**fields) as mock:
        run = load(mock, drawn([0.0, 0.0, 0.01]))
    assert [(record.completed, record.received_tokens) for record in run.records] == [(True, 4)] * 3


@pytest.mark.parametrize(
    ("fields", "failure", "message"),
    [
        ({"status": 429, "retry_after": 3}, "refused", "HTTP 429 Too Many Requests: the mock says no (Retry-After: 3)"),
        ({"status": 503}, "refused", "HTTP 503 Service Unavailable: the mock says no"),
        ({"status": 504}, "expired", "HTTP 504 Error: the mock says no"),
        ({"status": 400}, "failed", "HTTP 400 Bad Request: the mock says no"),
        ({"drop_at": 2}, "failed", "the connection was closed in the middle of the answer"),
        ({"error_at": 2}, "failed", "error in the stream: the mock says no"),
        ({"malformed_at": 2}, "failed", "malformed stream: Input data was truncated"),
        ({"finish_reason": "timeout"}, "expired", "the server ended the answer at a deadline"),
        ({"finish_reason": "abort"}, "failed", "the server aborted the answer"),
        ({"lies": True}, "failed", "no stream of events but application/json: {'object': 'list'}"),
    ],
)
def test_failures_are_told_apart(fields: dict[str, object], failure: str, message: str) -> None:
    with MockServer(**fields) as mock:
        run = load(mock, drawn([0.0]))
    (record,) = run.records
    assert (record.failure, record.message) == (failure, message)
    assert not record.completed and record.ended is not None
    assert run.interrupted is None
    if "drop_at" in fields or "malformed_at" in fields:
        assert record.received_tokens == 2  # what came before it is kept


def test_an_answer_that_does_not_end_expires() -> None:
    with MockServer(hang_at=1) as mock:
        run = offer(Target(mock.url, "mock"), drawn([0.0]), concurrency=None, options=LoadOptions(request_timeout=0.3))
    (record,) = run.records
    assert (record.failure, record.message) == ("expired", "no end of the answer within 0.3 s")


def test_refusals_of_some_leave_the_others() -> None:
    with MockServer(first_ms=300, max_in_flight=2) as mock:
        run = load(mock, drawn([0.0] * 4))
    assert sorted(record.failure or "" for record in run.records) == ["", "", "refused", "refused"]


def test_a_server_that_dies_ends_the_run_and_leaves_what_was_measured() -> None:
    with MockProcess(die_after=1.0) as mock:
        start = time.monotonic()
        run = load(mock, constant(20, 2000, tokens=1))
        assert time.monotonic() - start < 30
    assert run.interrupted is not None and "the server is gone" in run.interrupted
    completed = sum(record.completed for record in run.records)
    assert 5 <= completed <= 40
    assert run.records[-1].sent is None and run.records[-1].failure is None
    assert measure(run)["partial"]


def test_a_dead_server_does_not_use_up_a_closed_loop() -> None:
    with MockServer() as mock:
        url = mock.url
    run = offer(Target(url, "mock"), drawn([0.0] * 500), concurrency=4, options=LAX)
    assert run.interrupted is not None
    failed = [record for record in run.records if record.failure]
    assert 4 <= len(failed) <= 12
    assert failed[0].message == "no connection: Connection refused"


def test_a_connection_that_the_server_closed_while_idle_is_no_failure() -> None:
    with MockServer(drops_idle_after=1) as mock:
        run = load(mock, constant(20, 6))
    assert all(record.completed for record in run.records)


def test_sigint_keeps_what_was_measured() -> None:
    def ctrl_c(records: Sequence[RequestRecord], seconds: float) -> None:
        if any(record.ended is not None for record in records):
            os.kill(os.getpid(), signal.SIGINT)

    with MockProcess(gap_ms=20) as mock:
        options = LoadOptions(max_client_lag=10.0, stop_when=ctrl_c)
        run = offer(Target(mock.url, "mock"), constant(20, 2000, tokens=10), concurrency=None, options=options)
    assert run.interrupted == "stopped by SIGINT"
    assert any(record.completed for record in run.records)
    assert run.records[-1].sent is None
    unfinished = [record for record in run.records if record.sent is not None and record.ended is None]
    assert all(record.failure is None for record in unfinished)


def test_garbage_is_not_collected_meanwhile() -> None:
    seen = []
    with MockServer() as mock:
        options = LoadOptions(stop_when=lambda *_: seen.append(gc.isenabled()))
        offer(Target(mock.url, "mock"), constant(20, 20), concurrency=None, options=options)
    assert seen and not any(seen)
    assert gc.isenabled() and gc.get_freeze_count() == 0


def test_a_reason_to_stop_ends_the_run() -> None:
    with MockServer() as mock:
        options = LoadOptions(stop_when=lambda records, seconds: "enough" if seconds > 0.3 else None)
        run = offer(Target(mock.url, "mock"), constant(20, 2000), concurrency=None, options=options)
    assert run.interrupted == "enough" and run.records[-1].sent is None
