"""Overload and deadlines, as a client meets them."""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Callable

import httpx
import pytest

from octavo.config import AsyncEngineArgs
from octavo.engine.processor import PreparedRequest
from octavo.outputs import EngineStats
from octavo.request import EngineCoreRequest
from octavo.sampling_params import SamplingParams
from octavo.server.admission import Gate
from octavo.server.errors import ApiError
from support.live_server import LiveServer
from support.outputs import OUTPUTS, SEEDS
from support.scripted import Script
from support.sse import read_events


@pytest.fixture(scope="module")
def narrow(start: Callable[..., LiveServer]) -> LiveServer:
    """One seat, two places in the queue, steps of 20 ms."""
    script = Script(outputs=list(OUTPUTS.values()), step_seconds=0.02)
    return start(script, max_num_seqs=1, max_queued_requests=2)


def long_body(**fields: object) -> dict[str, object]:
    return {"prompt": [5] * 8, "seed": SEEDS["long"], "max_tokens": 30, "ignore_eos": True} | fields


def test_one_more_than_the_queue_holds_is_refused_and_told_when_to_come_back(narrow: LiveServer) -> None:
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        served = [pool.submit(httpx.post, f"{narrow.url}/v1/completions", json=long_body(), timeout=30) for _ in range(3)]
        deadline = time.monotonic() + 5
        while narrow.engine.stats.waiting < 2 and time.monotonic() < deadline:
            time.sleep(0.005)
        refused = [narrow.post("/v1/completions", long_body(stream=streamed)) for streamed in (False, True)]
        chat = narrow.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]})
        assert [answer.result().status_code for answer in served] == [200] * 3
    for response in (*refused, chat):
        assert response.status_code == 429
        assert int(response.headers["Retry-After"]) >= 1
        error = response.json()["error"]
        assert (error["type"], error["code"]) == ("overloaded_error", "queue_full")
        assert "max_queued_requests = 2" in error["message"]
    assert narrow.gauge("octavo_requests_refused_total") >= 3
    narrow.assert_idle()


def test_a_request_of_more_sequences_than_the_queue_holds_is_refused_whole(narrow: LiveServer) -> None:
    response = narrow.post("/v1/completions", long_body(n=4))
    assert response.status_code == 429
    narrow.assert_idle()
    assert narrow.post("/v1/completions", long_body(n=3, max_tokens=2)).status_code == 200


def test_lt_13_a_deadline_that_passes_in_the_queue_is_504(narrow: LiveServer) -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(httpx.post, f"{narrow.url}/v1/completions", json=long_body(), timeout=30)
        deadline = time.monotonic() + 5
        while not narrow.engine.stats.running and time.monotonic() < deadline:
            time.sleep(0.005)
        late = narrow.post("/v1/completions", long_body(timeout_s=0.1))
        streamed = narrow.post("/v1/completions", long_body(timeout_s=0.1, stream=True))
        assert first.result().status_code == 200
    assert (late.status_code, late.json()["error"]["code"]) == (504, "deadline_exceeded")
    assert read_events(streamed.text)[-1]["error"]["code"] == "deadline_exceeded"
    narrow.assert_idle()


def test_lt_13_a_deadline_that_passes_in_the_answer_ends_it_there(narrow: LiveServer) -> None:
    answer = narrow.post("/v1/completions", long_body(timeout_s=0.2, max_tokens=200, return_token_ids=True)).json()
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "timeout"
    assert 1 <= len(choice["token_ids"]) < 15
    narrow.assert_idle()


def test_of_several_prompts_one_that_never_began_takes_nothing_from_the_others(narrow: LiveServer) -> None:
    body = long_body(prompt=[[5] * 8, [6] * 8], timeout_s=0.3, max_tokens=200, return_token_ids=True)
    choices = narrow.post("/v1/completions", body).json()["choices"]
    assert [choice["finish_reason"] for choice in choices] == ["timeout", "timeout"]
    assert len(choices[0]["token_ids"]) > 0
    assert choices[1]["token_ids"] == []
    narrow.assert_idle()


def test_the_servers_own_limit_holds_where_the_request_states_none(start: Callable[..., LiveServer]) -> None:
    script = Script(outputs=list(OUTPUTS.values()), step_seconds=0.02)
    server = start(script, settings={"request_timeout": 0.2})
    for fields in ({}, {"timeout_s": 60}):
        assert server.post("/v1/completions", long_body(max_tokens=200, **fields)).json()["choices"][0]["finish_reason"] == "timeout"


@pytest.mark.parametrize("value", [0, -1, 1e9, "1"])
def test_a_deadline_out_of_range_is_refused(narrow: LiveServer, value: object) -> None:
    response = narrow.post("/v1/completions", long_body(timeout_s=value))
    assert response.status_code == 400
    assert "timeout_s" in response.json()["error"]["message"]


def prepared(tokens: int, n: int = 1) -> PreparedRequest:
    params = SamplingParams(max_tokens=4, n=n, seed=0)
    children = [EngineCoreRequest(f"r{i}", [1] * tokens, params) for i in range(n)]
    return PreparedRequest("r", None, [1] * tokens, params, children)


def gate(stats: EngineStats, unseen: tuple[int, ...] = (), **args: object) -> Gate:
    return Gate(AsyncEngineArgs(**({"max_num_seqs": 4} | args)), lambda: stats, lambda: unseen)


def test_who_was_sent_and_not_seen_yet_counts() -> None:
    idle = EngineStats(running=0, waiting=0)
    gate(idle, unseen=(5,) * 4, max_queued_requests=1).admit([prepared(5)])  # four take the seats, one waits
    with pytest.raises(ApiError, match="max_queued_requests = 1"):
        gate(idle, unseen=(5,) * 5, max_queued_requests=1).admit([prepared(5)])


def test_where_somebody_waits_a_free_seat_is_nobodys() -> None:
    """The pool is full: seats do not help."""
    with pytest.raises(ApiError):
        gate(EngineStats(running=1, waiting=1), max_queued_requests=1).admit([prepared(5)])


def test_the_first_token_is_foreseen_from_what_is_ahead() -> None:
    stats = EngineStats(running=2, prefill_backlog=1000, prefill_tokens_per_s=1000.0)
    gate(stats, ttft_slo_ms=1600).admit([prepared(500)])
    with pytest.raises(ApiError, match=r"ttft_slo_ms = 1400: .* 1,500 ms") as refused:
        gate(stats, ttft_slo_ms=1400).admit([prepared(500)])
    assert refused.value.headers == {"Retry-After": "1"}
    with pytest.raises(ApiError):  # 300 more on their way
        gate(stats, unseen=(300,), ttft_slo_ms=1600).admit([prepared(500)])
    with pytest.raises(ApiError) as refused:  # and nobody leaves for 4 s
        gate(EngineStats(prefill_tokens_per_s=1000.0, seat_wait_s=4.0), ttft_slo_ms=1600).admit([prepared(500)])
    assert refused.value.headers == {"Retry-After": "3"}


def test_its_own_length_refuses_no_request() -> None:
    """10 s of prefill under a limit of 8 s, with 1 s ahead: half of the limit may be waited."""
    gate(EngineStats(prefill_backlog=10, prefill_tokens_per_s=10.0), ttft_slo_ms=8000).admit([prepared(100)])
    with pytest.raises(ApiError):
        gate(EngineStats(prefill_backlog=50, prefill_tokens_per_s=10.0), ttft_slo_ms=8000).admit([prepared(100)])


def test_a_prompt_that_nothing_is_ahead_of_is_let_in_however_long() -> None:
    gate(EngineStats(prefill_tokens_per_s=10.0), ttft_slo_ms=100).admit([prepared(5000)])
    with pytest.raises(ApiError):  # the same with a second ahead of it
        gate(EngineStats(prefill_backlog=10, prefill_tokens_per_s=10.0), ttft_slo_ms=100).admit([prepared(5000)])
