"""Joules from a powercap folder of known content, from a power meter on a known clock; cost by arithmetic."""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo.bench.report.cost import cost_data, per_million_tokens
from octavo.bench.report.energy import EnergyMeter, PowerCounter, RaplCounter

RANGE = 1_000_000_000


def zone(root: Path, name: str, kind: str, microjoules: int) -> Path:
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in {"name": kind, "energy_uj": microjoules, "max_energy_range_uj": RANGE}.items():
        (folder / file).write_text(f"{content}\n")
    return folder


@pytest.fixture
def powercap(tmp_path: Path) -> Path:
    zone(tmp_path, "intel-rapl:0", "package-0", 100)
    zone(tmp_path, "intel-rapl:0:0", "core", 5)
    zone(tmp_path, "intel-rapl:0:1", "dram", 7)
    zone(tmp_path, "intel-rapl:1", "package-1", 900_000_000)
    zone(tmp_path, "intel-rapl:2", "psys", 0)
    return tmp_path


def test_packages_and_memory_add_up_and_counters_wrap_around(powercap: Path) -> None:
    with EnergyMeter(powercap, lambda: None) as meter:
        zone(powercap, "intel-rapl:0", "package-0", 100 + 30_000_000)
        zone(powercap, "intel-rapl:0:0", "core", 20_000_000)  # part of the package
        zone(powercap, "intel-rapl:0:1", "dram", 7 + 2_000_000)
        zone(powercap, "intel-rapl:1", "package-1", 50_000_000)  # 100 J to the end of its range, and 50 more
        zone(powercap, "intel-rapl:2", "psys", 500_000_000)  # everything again
    assert meter.energy.domains == pytest.approx({"package-0": 30, "package-1": 150, "dram-0": 2})
    assert meter.energy.joules == pytest.approx(182)
    assert meter.energy.as_data(91)["joules_per_output_token"] == pytest.approx(2)


def test_a_reading_now_and_then_sees_every_wrap(powercap: Path) -> None:
    counter = RaplCounter(powercap)
    counter.advance()
    joules = 0.0
    for microjoules in (950_000_000, 20_000_000, 970_000_000, 10_000_000):
        zone(powercap, "intel-rapl:1", "package-1", microjoules)
        joules += counter.advance()["package-1"]
    assert joules == pytest.approx(50 + 70 + 950 + 40)


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    for powercap in (tmp_path, tmp_path / "none"):
        with EnergyMeter(powercap, lambda: None) as meter:
            pass
        assert meter.energy.joules is None
        assert meter.energy.as_data(5) == {"joules": None, "why": "neither RAPL nor NVML can be read here"}


def test_watts_over_time_are_joules() -> None:
    """100 W rising to 300 W in 2 s are 400 J, and 300 W for 1 s more 300 J; a second card beside it draws 50 W."""
    now = [0.0]
    watts = {0.0: [100.0, 50.0], 2.0: [300.0, 50.0], 3.0: [300.0, 50.0]}
    counter = PowerCounter(lambda: watts[now[0]], lambda: now[0])
    total = counter.advance()
    for now[0] in (2.0, 3.0):
        total = {name: total[name] + joules for name, joules in counter.advance().items()}
    assert total == pytest.approx({"gpu-0": 700, "gpu-1": 150})


def test_cost_of_a_million_tokens() -> None:
    """At 3.60 an hour a second costs 0.001; 100 tokens in it: a million cost 10."""
    assert per_million_tokens(3.6, 100) == pytest.approx(10)
    assert per_million_tokens(3.6, 0) is None
    result = {"output_tok_s": 100.0, "total_tok_s": 400.0, "goodput_tok_s": 25.0}
    assert cost_data(3.6, result) == pytest.approx(
        {
            "price_per_hour": 3.6,
            "per_million_output_tokens": 10,
            "per_million_total_tokens": 2.5,
            "per_million_output_tokens_at_goodput": 40,
        }
    )
    assert cost_data(3.6, result | {"goodput_tok_s": None})["per_million_output_tokens_at_goodput"] is None
    assert cost_data(3.6, result | {"goodput_tok_s": 0.0})["per_million_output_tokens_at_goodput"] is None
