"""What needs more than a load's own figures: the percent of the roofline, what tokens cost, joules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from octavo.bench.limits import ModelCosts
from octavo.bench.machine import MachineRates
from octavo.bench.observe.roofline import of_work
from octavo.bench.peers.result import LoadResult, PartResult
from octavo.bench.report.cost import per_million_tokens


@dataclass(frozen=True, kw_only=True)
class Basis:
    """What figures are reckoned with that no load knows by itself."""

    costs: Mapping[str, ModelCosts] = field(default_factory=dict)
    """Of the engines that tell them, by label."""
    costs_of: str | None = None
    """The engine whose costs are taken for the others."""
    rates: MachineRates | None = None
    price_per_hour: float | None = None

    def roofline_percent(self, engine: str, found: LoadResult) -> float | None:
        """On the basis "tokens" for every engine, so that they stand on one; None: nobody tells the model's costs."""
        costs = self.costs.get(engine) or self.costs.get(self.costs_of or "")
        if costs is None or self.rates is None or found.work is None:
            return None
        return of_work(found.work, costs, self.rates).percent


@dataclass(frozen=True, kw_only=True)
class EfficiencyFigure:
    """Of one load on one engine, whose label is the first argument of ``read``."""

    key: str
    title: str
    read: Callable[[str, LoadResult], float | None]
    of_answers: bool = False
    """It says nothing where answers are of one token."""


def basis_of(engines: Sequence[str], parts: Sequence[PartResult], price_per_hour: float | None) -> Basis:
    """From what ``parts`` know: costs as the engines told them, and of each rate of the machine the most that was measured.

    ``engines``: labels, in order; of those that told their costs the first stands for the others.
    """
    costs = {part.engine: told for part in parts for load in _loads(part) if (told := load.costs) is not None}
    costs_of = next((label for label in engines if label in costs), None)
    return Basis(costs=costs, costs_of=costs_of, rates=_best([part.rates for part in parts]), price_per_hour=price_per_hour)


def efficiency_figures(basis: Basis) -> list[EfficiencyFigure]:
    """In the order of the table."""

    def cost(name: str) -> Callable[[str, LoadResult], float | None]:
        price = basis.price_per_hour
        return lambda _, found: None if price is None else per_million_tokens(price, found.result[name])

    return [
        EfficiencyFigure(key="roofline_percent", title="% of the roofline", read=basis.roofline_percent),
        EfficiencyFigure(key="cost_per_million_output", title="cost of 10⁶ output tokens", read=cost("output_tok_s"), of_answers=True),
        EfficiencyFigure(key="cost_per_million_total", title="cost of 10⁶ tokens in and out", read=cost("total_tok_s")),
        EfficiencyFigure(key="joules_per_output_token", title="J an output token", read=_joules, of_answers=True),
    ]


def _joules(_: str, found: LoadResult) -> float | None:
    per_token: float | None = (found.energy or {}).get("joules_per_output_token")
    return per_token


def _loads(part: PartResult) -> list[LoadResult]:
    return [*part.loads.values(), *([part.at_answer] if part.at_answer is not None else [])]


def _best(measured: Sequence[MachineRates | None]) -> MachineRates | None:
    """What disturbs a measurement makes it lower."""
    there = [rates for rates in measured if rates is not None]
    if not there:
        return None
    return MachineRates(
        read_bytes_s=max(rates.read_bytes_s for rates in there),
        int8_ops_s=max(rates.int8_ops_s for rates in there),
        bf16_flops_s=max(rates.bf16_flops_s for rates in there),
        fp32_flops_s=max(rates.fp32_flops_s for rates in there),
        cpus=there[-1].cpus,
    )
