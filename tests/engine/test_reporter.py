"""What the engine's process sends of a step, and when it does its accounts."""

from __future__ import annotations

import pytest

from octavo.engine import process
from octavo.engine.messages import Step
from octavo.outputs import EngineCoreOutput, EngineCoreOutputs, EngineStats


class Core:
    """An engine of steps that bring one token, and the order of what was done to it."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.has_unfinished_requests = True
        self.finish_reason: str | None = None

    def advance(self) -> EngineCoreOutputs:
        self.done.append("advance")
        return EngineCoreOutputs([EngineCoreOutput("a", [1], finish_reason=self.finish_reason)])

    def account(self) -> None:
        self.done.append("account")

    def stats(self) -> EngineStats:
        return EngineStats(running=3)

    def send(self, message: Step) -> None:
        self.done.append("send with stats" if message.outputs.stats else "send")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(process.time, "monotonic", lambda: now[0])
    return now


def test_tokens_go_before_the_accounts_and_stats_with_news(clock: list[float]) -> None:
    core = Core()
    reporter = process._Reporter(core, core)  # type: ignore[arg-type]
    plain, told = ["advance", "send", "account"], ["advance", "account", "send with stats"]

    def a_step() -> list[str]:
        core.done.clear()
        reporter.step()
        return list(core.done)

    assert a_step() == told  # the first ever
    assert a_step() == plain
    reporter.has_news = True
    assert [a_step(), a_step()] == [told, plain]
    core.finish_reason = "stop"
    assert a_step() == told
    core.finish_reason, core.has_unfinished_requests = None, False
    assert a_step() == told
    core.has_unfinished_requests = True
    clock[0] += process.STATS_SECONDS * 0.9
    assert a_step() == plain
    clock[0] += process.STATS_SECONDS * 0.2
    assert [a_step(), a_step()] == [told, plain]
