"""What the log says of preemptions."""

from __future__ import annotations

import logging
import re

import pytest

from octavo.scheduler.preemption_log import BURST, PreemptionLog
from support.simulation import Simulation


@pytest.mark.parametrize(("swap_blocks", "mode", "lost"), [(0, "recompute", 16), (100, "swap", 0)])
def test_ob_09_each_preemption_is_a_line(caplog: pytest.LogCaptureFixture, swap_blocks: int, mode: str, lost: int) -> None:
    caplog.set_level(logging.WARNING, "octavo.scheduler")
    sim = Simulation(num_blocks=8, max_num_batched_tokens=64, prefix_index="none", swap_blocks=swap_blocks)
    for name in "abc":
        sim.add(name, 15, max_tokens=20)
    sim.run()
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == sim.scheduler.stats().preemptions == 2
    # At 24 tokens a wants a fourth block of the eight; c, which has been waiting with 16 tokens in two, gives way.
    assert lines[0] == f"preempted c ({mode}): {lost} tokens lost, {16 - lost} kept; KV usage 100.0 % before, 75.0 % after"


def test_ob_09_a_storm_is_a_few_lines_and_a_count(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "octavo.scheduler")
    now = 0.0
    log = PreemptionLog(lambda: now)
    for step in range(1000):
        now = step / 100  # ten seconds in all
        log.preempted(f"r{step}", 10, 0, 1.0, 0.9)
    now = 20.0
    log.preempted("last", 10, 0, 1.0, 0.9)
    lines = [record.getMessage() for record in caplog.records]
    assert BURST + 9 <= len(lines) <= BURST + 11
    left_out = [int(found.group(1)) for line in lines if (found := re.search(r"; (\d+) more since the last such line", line))]
    assert sum(left_out) + len(lines) == 1001
