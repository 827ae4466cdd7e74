"""The scheduler's rules, one by one, against the simulated runner."""

from __future__ import annotations

import pytest

from octavo.errors import InvalidRequestError


def test_one_request(simulate):
    sim = simulate()
    sim.add("a", 20, 5)
    assert sim.run() == 5
    sim.check_output("a")
    sim.check_idle()
