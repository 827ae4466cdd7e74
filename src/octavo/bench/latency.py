"""One stream: how fast a prompt is prefilled and tokens are decoded, against what the machine could do at most."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from octavo.bench.drive import Driver, Run
from octavo.bench.limits import ModelCosts, percent_of_bandwidth, percent_of_compute
from octavo.bench.machine import MachineRates
from octavo.bench.stats import Summary, median, summary_ms
from octavo.bench.workload.requests import random_requests


@dataclass(frozen=True, kw_only=True)
class LatencyPlan:
    """What is run."""

    prefill_len: int = 512
    decode_prompt_len: int = 32
    decode_len: int = 128
    repeats: int = 3
    seed: int = 0

    @property
    def max_model_len(self) -> int:
        """The context it needs."""
        return max(self.prefill_len + 1, self.decode_prompt_len + self.decode_len)


@dataclass(frozen=True)
class LatencyResult:
    """Medians over the repetitions; ``ttft_ms`` is of the prefill's prompt, ``itl_ms`` of every decoded token."""

    prefill_tok_s: float
    decode_tok_s: float
    ttft_ms: Summary
    itl_ms: Summary
    percent_of_bandwidth: float
    """Of a decode step: its least bytes over what memory could have given in its time."""
    percent_of_compute: float
    """Of the prefill: the time its operations need at the measured rates, over the time it took."""
    python_share: float
    """Of the decoding runs' steps."""
    machine: MachineRates


def measure_latency(
    driver: Driver, plan: LatencyPlan, costs: ModelCosts, machine: Callable[[], MachineRates], vocab_size: int
) -> LatencyResult:
    """Run ``plan`` on an idle engine, once more than it says: the first time warms up and does not count.

    ``machine`` measures the rates, when all is run: it takes memory of its own, which must not look like the engine's.
    """

    def run(name: str, i: int, input_len: int, output_len: int) -> Run:
        return driver.run(random_requests(1, input_len, output_len, vocab_size, plan.seed + i, f"{name}-{i}"))

    prefills = [run("prefill", i, plan.prefill_len, 1) for i in range(plan.repeats + 1)][1:]
    decodes = [run("decode", i, plan.decode_prompt_len, plan.decode_len) for i in range(plan.repeats + 1)][1:]
    ttfts = [r.timelines[0].ttft for r in prefills]
    gaps = [r.timelines[0].gaps for r in decodes]
    step = median([sum(g) / len(g) for g in gaps])
    steps, rates = plan.decode_len - 1, machine()
    return LatencyResult(
        prefill_tok_s=plan.prefill_len / median(ttfts),
        decode_tok_s=1 / step,
        ttft_ms=summary_ms(ttfts),
        itl_ms=summary_ms([gap for g in gaps for gap in g]),
        percent_of_bandwidth=percent_of_bandwidth(costs, rates, plan.decode_prompt_len, steps, steps * step),
        percent_of_compute=percent_of_compute(costs, rates, plan.prefill_len, median(ttfts)),
        python_share=median([r.python_share for r in decodes]),
        machine=rates,
    )
