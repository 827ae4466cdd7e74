"""Servers of known capacity in virtual time: what a load client would have recorded, without waiting for it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from octavo.bench.load.records import Chunk, LoadRun, RequestRecord, StopWhen
from support.load_runs import load_run


class OneQueue:
    """One server, first come first served: M/M/1 with exponential service times, M/D/1 with constant ones. An answer is one token."""

    def __init__(self, service_rate: float, exponential: bool = True) -> None:
        self.service_rate = service_rate
        self.exponential = exponential
        self.offered: list[float] = []
        """Every rate asked for."""

    def __call__(self, rate: float | None, num_requests: int, seed: int, stop_when: StopWhen | None = None) -> LoadRun:
        random = np.random.default_rng([seed, 77])
        service = (random.exponential(size=num_requests) if self.exponential else np.ones(num_requests)) / self.service_rate
        if rate is None:
            ends = np.cumsum(service)
            return finished_run(ends - service, [[end] for end in ends], open_loop=False)
        self.offered.append(rate)
        arrivals = np.cumsum(random.exponential(size=num_requests)) / rate
        worked = np.cumsum(service)
        ends = worked + np.maximum.accumulate(arrivals - (worked - service))  # Lindley's recursion, unrolled
        return finished_run(arrivals, [[end] for end in ends], stop_when=stop_when)


class BatchServer:
    """A server that batches: each step gives every running request a token and lasts ``fixed + each * running`` seconds.

    A step that admits a request lasts ``prefill`` longer for each. At most ``seats`` run at a time, the others wait in order.
    """

    def __init__(self, fixed: float, each: float, prefill: float, seats: int, tokens: int) -> None:
        self.fixed, self.each, self.prefill, self.seats, self.tokens = fixed, each, prefill, seats, tokens

    def __call__(self, rate: float | None, num_requests: int, seed: int, stop_when: StopWhen | None = None) -> LoadRun:
        if rate is None:
            alone = self.prefill + self.tokens * (self.fixed + self.each)
            times, _ = self._serve([i * alone for i in range(num_requests)])
            return finished_run([i * alone for i in range(num_requests)], times, open_loop=False)
        gaps = np.random.default_rng([seed, 78]).exponential(size=num_requests)
        arrivals = (np.cumsum(gaps) / rate).tolist()
        return finished_run(arrivals, self._serve(arrivals)[0], stop_when=stop_when)

    def _serve(self, arrivals: Sequence[float]) -> tuple[list[list[float]], float]:
        """When each request's tokens come, and when the last did."""
        times: list[list[float]] = [[] for _ in arrivals]
        running: list[int] = []
        now, arrived = 0.0, 0
        while arrived < len(arrivals) or running:
            if not running:
                now = max(now, arrivals[arrived])
            admitted = 0
            while arrived < len(arrivals) and arrivals[arrived] <= now and len(running) < self.seats:
                running.append(arrived)
                arrived += 1
                admitted += 1
            now += self.fixed + self.each * len(running) + self.prefill * admitted
            for request in running:
                times[request].append(now)
            running = [request for request in running if len(times[request]) < self.tokens]
        return times, now


def finished_run(
    scheduled: Sequence[float], times: Sequence[Sequence[float]], *, open_loop: bool = True, stop_when: StopWhen | None = None
) -> LoadRun:
    """The run in which request i was scheduled at scheduled[i] and got its tokens at times[i], up to where ``stop_when`` ends it."""
    records = [
        RequestRecord(
            index=i,
            kind="chat",
            tenant=None,
            prompt_tokens=1,
            output_tokens=len(own),
            scheduled=float(start),
            sent=float(start),
            chunks=[Chunk(float(time), 1) for time in own],
            ended=float(own[-1]),
            first_text=float(own[0]),
        )
        for i, (start, own) in enumerate(zip(scheduled, times, strict=True))
    ]
    if stop_when is not None and (stopped := _stopped(records, stop_when)) is not None:
        return stopped
    return load_run(records, open_loop=open_loop)


def _stopped(records: list[RequestRecord], stop_when: StopWhen) -> LoadRun | None:
    """Asked four times in the course of the run."""
    end = max(record.ended or 0.0 for record in records)
    for now in np.linspace(end / 4, end, 4):
        seen = [_seen(record, float(now)) for record in records]
        if (why := stop_when(seen, float(now))) is not None:
            return load_run(seen, seconds=float(now), interrupted=why)
    return None


def _seen(record: RequestRecord, now: float) -> RequestRecord:
    """A record as it was then."""
    return RequestRecord(
        index=record.index,
        kind=record.kind,
        tenant=None,
        prompt_tokens=1,
        output_tokens=record.output_tokens,
        scheduled=record.scheduled,
        sent=record.sent if record.scheduled <= now else None,
        chunks=[chunk for chunk in record.chunks if chunk.time <= now],
        ended=record.ended if record.ended is not None and record.ended <= now else None,
        first_text=record.first_text if record.first_text is not None and record.first_text <= now else None,
    )
