"""From what a load run saw to its result."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from octavo.bench.load.records import LoadRun, RequestRecord
from octavo.bench.measures.confidence import Floats, Ints, blocks_in_order, percentile_interval
from octavo.bench.measures.result import ClientResult, FailureGroup, Measures, ServeResult, SloResult, Statistics, WrongLength
from octavo.bench.measures.slo import Slo, all_attained
from octavo.bench.stats import percentile

ENOUGH_FOR_P99 = 100
MOST_ADDED = 100
"""Tokens that a server may add to a prompt of text: a BOS and a chat's template are a few, a default system prompt some dozens."""
LAG_SHARE = 0.2
"""Of the p99 of ITL: a client that is later than this by its heartbeat is a part of that figure."""
_EXAMPLES = 10
_METHOD = {
    "latency": "ttft and e2e count from the scheduled send, so waiting in the client is part of them; over completed requests",
    "itl": "per token: a chunk of k tokens is one gap and k - 1 gaps of 0 s",
    "percentiles": "linear interpolation between neighbours; an SLO's pooled statistic by nearest rank, over all offered requests",
    "p99_ci95": "bootstrap with 1,000 resamples over blocks of requests in a row, each as long as their correlation time; for itl over "
    "one-second windows of arrival",
    "throughput": "mean over the window: tokens of completed requests / (time 0 to the end of the last request)",
    "itl_slo": "a request keeps itl:pX when at most ceil((1 - X) * gaps) of its gaps, and not all, are at or over the limit",
}


def measure(run: LoadRun, slos: Sequence[Slo] = ()) -> dict[str, Any]:
    """The result of ``run``, as plain data; octavo.bench.measures.result.ServeResult says what is in it."""
    result: dict[str, Any] = msgspec.to_builtins(measure_run(run, slos))
    return result


def measure_run(run: LoadRun, slos: Sequence[Slo] = ()) -> ServeResult:
    """The same, typed."""
    offered = offered_records(run)
    whole = measures_of(offered, run.seconds, slos)
    not_sent = len(run.records) - len(offered)
    wrong = [length for record in offered if record.completed and (length := _wrong_length(record)) is not None]
    partial = run.interrupted is not None
    client = _client(run, offered)
    return ServeResult(
        **{name: getattr(whole, name) for name in Measures.__struct_fields__},
        valid=run.client.bottleneck is None,
        partial=partial,
        interrupted=run.interrupted,
        warnings=_warnings(run, whole, client, len(wrong), not_sent),
        method=_METHOD,
        open_loop=run.open_loop,
        started=run.started,
        window_s=run.seconds,
        offered_rate=_offered_rate(run, offered),
        not_sent=not_sent,
        failures=_failures(offered),
        errors=dict(Counter(_failure_kind(record) for record in offered if not record.completed)),
        wrong_length=len(wrong),
        wrong_length_examples=wrong[:_EXAMPLES],
        client=client,
        by_kind=_groups(offered, run.seconds, slos, lambda record: record.kind),
        by_tenant=_groups(offered, run.seconds, slos, lambda record: record.tenant),
    )


def offered_records(run: LoadRun) -> list[RequestRecord]:
    """All records but those that were never sent because the run stopped first."""
    return [record for record in run.records if record.sent is not None or record.ended is not None or record.failure is not None]


def pooled_values(records: Sequence[RequestRecord], metric: str) -> Floats:
    """All values of a metric together, in seconds, [n]: of requests, or for itl of tokens. What did not complete is infinite."""
    if metric == "itl":
        return gaps_and_times(records, missing=True)[0]
    values = [getattr(record, metric) if record.completed else math.inf for record in records]
    return np.array([value for value in values if value is not None])


def gaps_and_times(records: Sequence[RequestRecord], missing: bool = False) -> tuple[Floats, Floats]:
    """The gaps of these requests in seconds, and when each ended, both [n].

    ``missing``: the tokens that a request failed to bring are infinite gaps, at the time it ended.
    """
    gaps: list[float] = []
    times: list[float] = []
    for record in records:
        own = record.gaps
        gaps += own
        if own:
            times += [chunk.time for chunk in record.chunks for _ in range(chunk.tokens)][1:]
        if missing and not record.completed:
            lost = max(0, record.output_tokens - 1 - len(own))
            gaps += [math.inf] * lost
            times += [record.scheduled if record.ended is None else record.ended] * lost
    return np.array(gaps), np.array(times)


def pooled_statistic(values: Floats, slo: Slo) -> float:
    """An SLO's statistic of ``values``, in seconds, percentiles by nearest rank: under the limit if at most (1 - p) n values are not.

    No values at all are 0: nothing was late.
    """
    if len(values) == 0:
        return 0.0
    if slo.per_mille is None:
        return float(values.mean() if slo.statistic == "mean" else values.max())
    rank = max(1, -(-slo.per_mille * len(values) // 1000))
    return float(np.partition(values, rank - 1)[rank - 1])


def one_second_windows(times: Floats) -> Ints:
    """Which second each time lies in, [n]."""
    return np.floor(times).astype(np.int64)


def measures_of(records: Sequence[RequestRecord], seconds: float, slos: Sequence[Slo]) -> Measures:
    done = [record for record in records if record.completed]
    output_tokens = sum(record.received_tokens for record in done)
    prompt_tokens = sum(_prompt_tokens(record) for record in done)
    cached = [record.usage.cached_tokens for record in done if record.usage is not None and record.usage.cached_tokens is not None]
    kept = [record for record in records if all_attained(record, slos)]
    gaps, times = gaps_and_times(done)
    window = max(seconds, 1e-9)
    return Measures(
        requests=len(records),
        completed=len(done),
        failed=len(records) - len(done),
        completed_rate=len(done) / window,
        output_tokens=output_tokens,
        prompt_tokens=prompt_tokens,
        cached_prompt_tokens=sum(cached) if cached else None,
        output_tok_s=output_tokens / window,
        total_tok_s=(prompt_tokens + output_tokens) / window,
        ttft_ms=_of_requests([record.ttft for record in done]),
        itl_ms=_statistics(gaps, one_second_windows(times), few=len(done) < ENOUGH_FOR_P99),
        tpot_ms=_of_requests([tpot for record in done if (tpot := record.tpot) is not None]),
        e2e_ms=_of_requests([record.e2e for record in done]),
        slos=[_judge(slo, records) for slo in slos],
        slo_attainment=len(kept) / len(records) if slos and records else None,
        goodput_rps=len(kept) / window if slos else None,
        goodput_tok_s=sum(record.received_tokens for record in kept) / window if slos else None,
    )


def _of_requests(seconds: Sequence[float]) -> Statistics | None:
    """``seconds``: one value a request, in the order of their sends."""
    values = np.array(seconds)
    blocks = blocks_in_order(values)
    return _statistics(values, blocks, few=len(np.unique(blocks)) < ENOUGH_FOR_P99)


def _statistics(seconds: Floats, clusters: Ints, few: bool) -> Statistics | None:
    """None for no values."""
    if len(seconds) == 0:
        return None
    values = 1000 * seconds
    p50, p90, p95, p99 = (float(value) for value in np.percentile(values, [50, 90, 95, 99]))
    return Statistics(
        p50=p50,
        p90=p90,
        p95=p95,
        p99=p99,
        max=float(values.max()),
        mean=float(values.mean()),
        p99_ci95=percentile_interval(values, clusters),
        samples=len(values),
        clusters=len(np.unique(clusters)),
        few=few,
    )


def _judge(slo: Slo, records: Sequence[RequestRecord]) -> SloResult:
    pooled = pooled_statistic(pooled_values(records, slo.metric), slo)
    attained = sum(slo.attained(record) for record in records)
    return SloResult(
        slo=str(slo),
        metric=slo.metric,
        statistic=slo.statistic,
        limit_ms=1000 * slo.limit,
        pooled_ms=1000 * pooled if math.isfinite(pooled) else None,
        pooled_inside=pooled < slo.limit,
        attained=attained,
        attainment=attained / len(records) if records else 0.0,
    )


def _prompt_tokens(record: RequestRecord) -> int:
    """By the server's count where it gives one."""
    return record.usage.prompt_tokens if record.usage is not None else record.prompt_tokens


def _wrong_length(record: RequestRecord) -> WrongLength | None:
    seen = _prompt_tokens(record)
    most = MOST_ADDED if record.prompt_as_text else 0
    if 0 <= seen - record.prompt_tokens <= most and record.received_tokens == record.output_tokens:
        return None
    return WrongLength(
        index=record.index,
        prompt_planned=record.prompt_tokens,
        prompt_seen=seen,
        output_asked=record.output_tokens,
        output_seen=record.received_tokens,
    )


def _offered_rate(run: LoadRun, offered: Sequence[RequestRecord]) -> float | None:
    last = max((record.scheduled for record in offered), default=0.0)
    return len(offered) / last if run.open_loop and last > 0 else None


def _failure_kind(record: RequestRecord) -> str:
    return record.failure or ("unfinished" if record.ended is None else "failed")


def _failures(records: Sequence[RequestRecord]) -> list[FailureGroup]:
    """Most frequent first."""
    counts = Counter(
        (_failure_kind(record), record.message or "no text came" * (record.ended is not None), record.status)
        for record in records
        if not record.completed
    )
    return [FailureGroup(kind=kind, message=message, status=status, count=n) for (kind, message, status), n in counts.most_common()]


def _client(run: LoadRun, offered: Sequence[RequestRecord]) -> ClientResult:
    client = run.client
    waits = [record.sent - record.scheduled for record in offered if record.sent is not None]
    from_send = [ttft for record in offered if record.completed and (ttft := record.ttft_from_send) is not None]
    return ClientResult(
        cpu_share=client.cpu_share,
        peak_in_flight=client.peak_in_flight,
        queueing_ms=_of_requests(waits) if run.open_loop else None,
        ttft_from_send_ms=_of_requests(from_send) if run.open_loop else None,
        send_lag_p99_ms=1000 * percentile(client.send_lag, 99) if client.send_lag else None,
        loop_lag_p99_ms=1000 * percentile([late for _, late in client.loop_lag], 99) if client.loop_lag else None,
        loop_lag_max_ms=1000 * max((late for _, late in client.loop_lag), default=0.0),
        bottleneck=client.bottleneck,
    )


def _groups(
    records: Sequence[RequestRecord], seconds: float, slos: Sequence[Slo], name: Callable[[RequestRecord], str | None]
) -> dict[str, Measures]:
    """Measures of each group, by name; empty where there is but one."""
    groups: dict[str, list[RequestRecord]] = {}
    for record in records:
        groups.setdefault(name(record) or "", []).append(record)
    return {key: measures_of(group, seconds, slos) for key, group in sorted(groups.items())} if len(groups) > 1 else {}


def _warnings(run: LoadRun, whole: Measures, client: ClientResult, wrong: int, not_sent: int) -> list[str]:
    """What a reader of the figures must know, the gravest first."""
    said = []
    if run.client.bottleneck is not None:
        said.append(f"Not valid: the client was the bottleneck ({run.client.bottleneck}).")
    elif whole.itl_ms is not None and (late := client.loop_lag_p99_ms or 0.0) > LAG_SHARE * whole.itl_ms.p99:
        told = f"The client was {late:.3g} ms late by its heartbeat (p99), and ITL p99 is {whole.itl_ms.p99:.3g} ms"
        said.append(f"{told}: a part of that is the client's own.")
    if run.interrupted is not None:
        said.append(f"Partial: the run stopped early ({run.interrupted}); {not_sent} requests were not sent.")
    if whole.failed:
        said.append(f"{whole.failed} of {whole.requests} requests did not complete; latencies are of those that did.")
    if wrong:
        said.append(f"{wrong} completed requests had a prompt or an answer of another length than planned.")
    if whole.completed < ENOUGH_FOR_P99:
        said.append(f"{whole.completed} requests completed: with fewer than {ENOUGH_FOR_P99} a p99 is all but the maximum.")
    elif whole.ttft_ms is not None and whole.ttft_ms.few:
        worth = f"{whole.completed} requests are worth {whole.ttft_ms.clusters} independent ones"
        said.append(f"TTFT was late for many in a row: {worth}, and its p99 and the interval of it are of one busy time.")
    if whole.cached_prompt_tokens:
        said.append(f"{whole.cached_prompt_tokens} of {whole.prompt_tokens} prompt tokens came from the server's prefix cache.")
    return said
