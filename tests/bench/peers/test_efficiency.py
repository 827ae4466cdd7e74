"""The percent of the roofline, cost and energy of a comparison, by hand."""

from __future__ import annotations

from pathlib import Path

from octavo.bench.limits import ModelCosts
from octavo.bench.machine import MachineRates
from octavo.bench.observe.roofline import Work
from octavo.bench.peers.document import compare_document
from octavo.bench.peers.efficiency import basis_of
from octavo.bench.peers.result import PartResult, PartStore
from octavo.bench.peers.summary import summarize
from support.compared import comparison, part, swept


def costs(weight_bytes: int) -> ModelCosts:
    return ModelCosts(weight_bytes=weight_bytes, matmul_params={}, head_params={}, attention=(), attention_arithmetic="bf16")


def rates(read: float) -> MachineRates:
    return MachineRates(read_bytes_s=read, int8_ops_s=1.0, bf16_flops_s=1.0, fp32_flops_s=1.0, cpus=(0,))


def work(busy_s: float) -> Work:
    """Answers of 3 and 5 tokens, two at a time: the weights are read 5 times at least."""
    return Work(spans=[(0, 4, 3), (0, 4, 5)], peak=2, busy_s=busy_s)


def measured(engine: str, busy_s: float, joules: float | None = None, told: ModelCosts | None = None, read: float = 1000.0) -> PartResult:
    found = part(engine, 1, 100, 10, 50, rates=rates(read))
    load = found.loads["load"]
    load.work, load.costs = work(busy_s), told
    load.energy = {"joules": joules, "joules_per_output_token": joules and joules / 100, "why": "no counters"}
    return found


def test_all_engines_stand_on_the_costs_that_one_tells() -> None:
    """5 readings of 1,000 bytes at 1,000 bytes a second take 5 s at least."""
    result = summarize(comparison(1), [measured("B", 10.0), measured("A", 20.0, told=costs(1000))])
    percents = [engine.figures["load/roofline_percent"].median for engine in result.engines]
    assert percents == [25.0, 50.0] and result.costs_of == "A"


def test_an_engine_that_tells_its_own_costs_is_measured_by_them() -> None:
    result = summarize(comparison(1), [measured("A", 10.0, told=costs(1000)), measured("B", 10.0, told=costs(1500))])
    assert [engine.figures["load/roofline_percent"].median for engine in result.engines] == [50.0, 75.0]


def test_nobody_tells_so_there_is_no_percent() -> None:
    result = summarize(comparison(1), [measured("A", 10.0), measured("B", 10.0)])
    assert result.costs_of is None and result.engines[0].figures["load/roofline_percent"].median is None


def test_the_machine_can_do_the_most_that_was_seen() -> None:
    basis = basis_of(["A", "B"], [measured("A", 1.0, read=900.0), measured("B", 1.0, read=1000.0), part("A", 2, 1, 1, 1)], None)
    assert basis.rates == rates(1000.0)


def test_cost_and_energy() -> None:
    """3.6 an hour is 0.001 a second; 50 output tokens a second make a million cost 20, and 150 tokens in and out 6.67."""
    result = summarize(comparison(1), [measured("A", 10.0, joules=250.0)], price_per_hour=3.6)
    figures = result.engines[0].figures
    assert round(figures["load/cost_per_million_output"].median or 0, 9) == 20
    assert round(figures["load/cost_per_million_total"].median or 0, 2) == 6.67
    assert figures["load/joules_per_output_token"].median == 2.5
    section = next(each for each in compare_document(comparison(1), result, {}).sections if each.heading.startswith("Roofline"))
    assert [row[0] for row in section.tables[0].rows] == [
        "cost of 10⁶ output tokens (load)",
        "cost of 10⁶ tokens in and out (load)",
        "J an output token (load)",
    ]


def test_joules_that_cannot_be_read_are_said_to_be_missing() -> None:
    result = summarize(comparison(1), [measured("A", 10.0, told=costs(1000))])
    section = next(each for each in compare_document(comparison(1), result, {}).sections if each.heading.startswith("Roofline"))
    assert section.tables[0].note.endswith("No joules: no counters.")


def test_at_the_highest_rate_too() -> None:
    answer = swept("A", {2.0: True}, (2.0, None))
    answer.at_answer, answer.rates = measured("A", 10.0, told=costs(1000)).loads["load"], rates(1000.0)
    result = summarize(comparison(1), [answer], price_per_hour=3.6)
    figures = result.engines[0].figures
    assert figures["roofline_percent_at_slo"].median == 50.0 and round(figures["cost_per_million_output_at_slo"].median or 0, 9) == 20


def test_what_it_is_reckoned_from_comes_back_from_disk(tmp_path: Path) -> None:
    saved = measured("A", 10.0, told=costs(1000))
    PartStore(tmp_path).save("a", saved)
    assert PartStore(tmp_path).find("a", "") == saved
