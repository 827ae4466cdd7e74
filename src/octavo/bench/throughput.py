"""Many requests at once: tokens a second, and how well the KV memory was used."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.bench.drive import Driver
from octavo.bench.stats import Summary, summary_ms
from octavo.bench.workload.requests import DrawnRequest, Workload, random_requests
from octavo.bench.workload.tokens import Tokens
from octavo.request import EngineCoreRequest
from octavo.sampling_params import SamplingParams


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


def measure_throughput(driver: Driver, workload: Workload, tokens: Tokens) -> ThroughputResult:
    """Run ``workload`` on an idle engine, after one short request to warm up.

    Arrivals are kept: in open loop a request is handed over after the step in which it came, and its time to the first token counts from
    when it came. Each generates exactly its ``output_tokens``.
    """
    driver.run(random_requests(1, min(workload.max_model_len - 1, 16), 1, int(tokens.ordinary[-1]) + 1, workload.seed + 1, "warm"))
    drawn = workload.draw(tokens)
    arrivals = None if workload.arrivals.as_soon_as_possible else [request.arrival for request in drawn]
    run = driver.run([_engine_request(request, workload.seed) for request in drawn], workload.arrivals.in_flight, arrivals)
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


def _engine_request(request: DrawnRequest, seed: int) -> EngineCoreRequest:
    """Greedy, and of the length that was drawn: max_tokens is where it ends."""
    params = SamplingParams(temperature=0, max_tokens=request.output_tokens, ignore_eos=True, detokenize=False, seed=seed)
    return EngineCoreRequest(
        request_id=f"bench-{request.index}",
        prompt_token_ids=request.prompt_token_ids,
        sampling_params=params,
        cache_salt=request.tenant,
    )
