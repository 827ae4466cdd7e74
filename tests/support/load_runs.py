"""Records of load runs by hand: what a client would have seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from octavo.bench.load.records import Chunk, ClientHealth, Failure, LoadRun, RequestRecord, Usage


def record(
    times: Sequence[float],
    *,
    index: int = 0,
    scheduled: float = 0.0,
    tokens_per_chunk: int | Sequence[int] = 1,
    failure: Failure | None = None,
    prompt_tokens: int = 8,
    output_tokens: int | None = None,
    cached: int | None = None,
    **fields: Any,
) -> RequestRecord:
    """A request whose chunks came at ``times``; it asked for as many tokens as it got, unless told otherwise."""
    counts = [tokens_per_chunk] * len(times) if isinstance(tokens_per_chunk, int) else tokens_per_chunk
    chunks = [Chunk(time, count) for time, count in zip(times, counts, strict=True)]
    got = sum(counts)
    return RequestRecord(
        index=index,
        kind=fields.pop("kind", "chat"),
        tenant=fields.pop("tenant", None),
        prompt_tokens=prompt_tokens,
        output_tokens=got if output_tokens is None else output_tokens,
        scheduled=scheduled,
        sent=fields.pop("sent", scheduled),
        chunks=chunks,
        ended=fields.pop("ended", times[-1] if times else scheduled),
        failure=failure,
        usage=fields.pop("usage", Usage(prompt_tokens, got, cached)),
        **fields,
    )


def load_run(records: Sequence[RequestRecord], *, seconds: float | None = None, open_loop: bool = True, **fields: Any) -> LoadRun:
    """A run with a client that had no trouble."""
    ends = [each.ended for each in records if each.ended is not None]
    lag = [each.sent - each.scheduled for each in records if each.sent is not None]
    client = ClientHealth(cpu_share=0.1, send_lag=lag, loop_lag=[], peak_in_flight=1, bottleneck=fields.pop("bottleneck", None))
    window = max(ends, default=1.0) if seconds is None else seconds
    return LoadRun(records=list(records), started=1.7e9, seconds=window, open_loop=open_loop, client=client, **fields)
