from __future__ import annotations

import asyncio
import time

import pytest

from octavo.bench.load.health import Heartbeat, bottleneck
from octavo.bench.load.run import LoadOptions, offer
from octavo.bench.load.sse import Event, EventReader
from octavo.bench.load.target import Target
from octavo.bench.measures.measures import measure
from support.load import constant
from support.mock_openai import MockProcess

ON_TIME = [0.001] * 199


def test_a_client_on_time_is_no_bottleneck() -> None:
    assert bottleneck(ON_TIME, [(0.0, lag) for lag in ON_TIME], 0.5, 0.05, None) is None
    assert bottleneck([], [], 0.0, 0.05, None) is None


def test_one_late_send_of_200_is_not_a_p99() -> None:
    assert bottleneck([*ON_TIME, 1.0], [], 0.5, 0.05, None) is None


@pytest.mark.parametrize(
    ("send", "loop", "cpu", "missed", "why"),
    [
        ([*ON_TIME, *[0.2] * 10], [], 0.1, None, "requests were sent 200 ms late (p99), over the 50 ms of --max-client-lag-ms"),
        ([], [*ON_TIME, *[0.2] * 10], 0.1, None, "its event loop ran 200 ms late (p99), over the 50 ms of --max-client-lag-ms"),
        ([], [], 0.95, None, "it used 95 % of a core, over 90 %"),
        ([], [], 0.1, "9 of 10", "9 of 10"),
    ],
)
def test_what_makes_the_client_the_bottleneck(send: list[float], loop: list[float], cpu: float, missed: str | None, why: str) -> None:
    assert bottleneck(send, [(0.0, lag) for lag in loop], cpu, 0.05, missed) == why


async def test_a_stalled_loop_misses_all_the_beats_that_fell_into_it() -> None:
    heartbeat = Heartbeat(asyncio.get_running_loop().time())
    await asyncio.sleep(0.03)
    time.sleep(0.2)
    await asyncio.sleep(0.03)
    cpu = heartbeat.stop(asyncio.get_running_loop().time())
    late = [lag for _, lag in heartbeat.lags if lag > 0.05]
    assert len(late) >= 14  # of some twenty in 200 ms those of the first 150
    assert max(late) >= 0.19
    assert cpu >= 0


def test_a_stall_at_the_very_end_counts_too() -> None:
    async def stall() -> list[tuple[float, float]]:
        heartbeat = Heartbeat(asyncio.get_running_loop().time())
        await asyncio.sleep(0.02)
        time.sleep(0.2)
        heartbeat.stop(asyncio.get_running_loop().time())
        return heartbeat.lags

    assert max(lag for _, lag in asyncio.run(stall())) >= 0.18


def test_a_client_that_was_slowed_is_found_out_and_its_run_is_not_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each read takes 20 ms, ten times what there is time for."""
    feed = EventReader.feed

    def slow(reader: EventReader, data: bytes) -> list[Event]:
        time.sleep(0.02)
        return feed(reader, data)

    monkeypatch.setattr(EventReader, "feed", slow)
    with MockProcess(gap_ms=10) as mock:
        run = offer(Target(mock.url, "mock"), constant(50, 25, tokens=5), concurrency=None, options=LoadOptions(max_client_lag=0.05))
    assert run.client.bottleneck is not None and "--max-client-lag-ms" in run.client.bottleneck
    result = measure(run)
    assert not result["valid"]
    assert result["completed"] == 25  # and yet all that was measured is told
