"""What the load client costs: its share of a core while it reads many streams at once from a mock server in another process.

    python benchmarks/server/bench_client.py
    python benchmarks/server/bench_client.py --client aiohttp   (or httpx: what a general client costs for the same; it must be installed)

Each client reads the same streams, as `octavo bench serve` asks for them (with a running count in each event), decodes each event and notes
when it came. Exits with 1 if the client takes half a core or more, or does not keep up.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import AsyncIterable, Sequence
from pathlib import Path

from octavo.bench.load.run import offer
from octavo.bench.load.sse import EventReader
from octavo.bench.load.target import Target
from octavo.bench.workload.requests import DrawnRequest

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.mock_openai import MockProcess

MOST_OF_A_CORE = 0.5
LEAST_OF_RATE = 0.9
"""Of the chunks a second that were asked for: the first and the last streams are part of the mean."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=300)
    parser.add_argument("--chunks-per-second", type=float, default=2000, help="of all streams together")
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--client", choices=["octavo", "aiohttp", "httpx"], default="octavo")
    args = parser.parse_args()
    gap = args.streams / args.chunks_per_second
    tokens = max(2, round(args.seconds / gap))
    requests = [_request(i, i * gap / args.streams, tokens) for i in range(args.streams)]
    with MockProcess(gap_ms=1000 * gap) as mock:
        target = Target(mock.url, "mock")
        chunks, seconds, share = _octavo(target, requests) if args.client == "octavo" else _general(args.client, target, requests)
        peak = mock.stats()["peak_in_flight"]
    print(f"{args.client}: {chunks} chunks in {seconds:.1f} s, {chunks / seconds:.0f} a second, of {peak} streams at once")
    print(f"{100 * share:.1f} % of a core, {1e6 * share * seconds / chunks:.0f} us a chunk")
    kept_up = peak >= args.streams and chunks / seconds >= LEAST_OF_RATE * args.chunks_per_second
    if not kept_up:
        print(f"it did not keep up with {args.streams} streams and {args.chunks_per_second:g} chunks a second")
    if share >= MOST_OF_A_CORE:
        print(f"over {100 * MOST_OF_A_CORE:g} % of a core")
    return 0 if kept_up and share < MOST_OF_A_CORE else 1


def _request(index: int, arrival: float, tokens: int) -> DrawnRequest:
    prompt = list(range(1, 33))
    return DrawnRequest(
        index=index, arrival=arrival, kind="mock", tenant=None, prompt_token_ids=prompt, max_tokens=tokens, output_tokens=tokens
    )


def _octavo(target: Target, requests: Sequence[DrawnRequest]) -> tuple[int, float, float]:
    run = offer(target, requests, concurrency=None)
    late = sorted(lag for _, lag in run.client.loop_lag)
    print(f"event loop late by {1000 * late[len(late) // 2]:.1f} ms (median), {1000 * late[int(0.99 * len(late))]:.1f} ms (p99)")
    assert all(record.completed for record in run.records), next(r.message for r in run.records if not r.completed)
    return sum(len(record.chunks) for record in run.records), run.seconds, run.client.cpu_share


def _general(client: str, target: Target, requests: Sequence[DrawnRequest]) -> tuple[int, float, float]:
    cpu, start = time.process_time(), time.monotonic()
    chunks = asyncio.run(_all(client, target, requests))
    seconds = time.monotonic() - start
    return chunks, seconds, (time.process_time() - cpu) / seconds


async def _all(client: str, target: Target, requests: Sequence[DrawnRequest]) -> int:
    url = target.url + target.endpoint
    times: list[float] = []

    async def read(parts: AsyncIterable[bytes]) -> None:
        events = EventReader()
        async for part in parts:
            now = time.monotonic()
            for _, data in events.feed(part):
                if data != b"[DONE]" and json.loads(data)["choices"]:
                    times.append(now)

    async with asyncio.TaskGroup() as group:
        if client == "aiohttp":
            import aiohttp

            session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

            async def one(request: DrawnRequest) -> None:
                await asyncio.sleep(request.arrival)
                async with session.post(url, json=target.body(request)) as response:
                    await read(response.content.iter_any())
        else:
            import httpx

            pool = httpx.AsyncClient(limits=httpx.Limits(max_connections=None), timeout=None)

            async def one(request: DrawnRequest) -> None:
                await asyncio.sleep(request.arrival)
                async with pool.stream("POST", url, json=target.body(request)) as response:
                    await read(response.aiter_raw())

        tasks = [group.create_task(one(request)) for request in requests]
        await asyncio.wait(tasks)
        await (session.close() if client == "aiohttp" else pool.aclose())
    return len(times)


if __name__ == "__main__":
    sys.exit(main())
