"""Many requests at once: tokens a second, and how well the KV memory was used."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.bench.drive import Driver
from octavo.bench.stats import Summary, summary_ms
from octavo.bench.workload.requests import random_requests


@dataclass(frozen=True, kw_only=True)
class ThroughputPlan:
    """What is run: ``num_prompts`` requests of one length, at most ``max_concurrency`` of them at a time."""

    num_prompts: int = 32
    input_len: int = 128
    output_len: int = 128
    max_concurrency: int | None = None
    seed: int = 0

    @property
    def max_model_len(self) -> int:
        """The context it needs."""
        return self.input_len + self.output_len


@dataclass(frozen=True)
class ThroughputResult:
    """Rates count from the first request's submission to the last token."""

    output_tok_s: float
    total_tok_s: float
    """Prompt tokens and output tokens."""
    kv_efficiency: float
    """live / held, in bytes, averaged over time."""
    kv_peak: float
    """The highest live / total."""
    duration_s: float
    python_share: float
    ttft_ms: Summary
    itl_ms: Summary | None
    """None when the requests ask for one token."""
    preemptions: int


def measure_throughput(driver: Driver, plan: ThroughputPlan, vocab_size: int) -> ThroughputResult:
    """Run ``plan`` on an idle engine, after one short request to warm up."""
    driver.run(random_requests(1, min(plan.input_len, 16), min(plan.output_len, 4), vocab_size, plan.seed + 1, "warm"))
    requests = list(random_requests(plan.num_prompts, plan.input_len, plan.output_len, vocab_size, plan.seed))
    run = driver.run(requests, plan.max_concurrency)
    gaps = [gap for timeline in run.timelines for gap in timeline.gaps]
    return ThroughputResult(
        output_tok_s=run.output_tokens / run.seconds,
        total_tok_s=(run.prompt_tokens + run.output_tokens) / run.seconds,
        kv_efficiency=run.kv_efficiency,
        kv_peak=run.kv_peak,
        duration_s=run.seconds,
        python_share=run.python_share,
        ttft_ms=summary_ms([timeline.ttft for timeline in run.timelines]),
        itl_ms=summary_ms(gaps) if gaps else None,
        preemptions=run.preemptions,
    )
