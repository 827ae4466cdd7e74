"""A long prompt that arrives among decoding streams, with a limit on the time between tokens and without.

usage: python benchmarks/server/bench_long_prompt.py [--model smollm2] [--streams 8] [--prompt-len 4096] [--itl-slo-ms 50] [--rounds 5]

Two engines in this process, which take turns: one under the limit, one with none. Prints for each round the largest and the 99th percentile
of the streams' gaps from the prompt's arrival to its first token, and how long that took; then the medians, and the ratio of the
two times. The aims are a largest gap under 1.3 times the limit, and a ratio of at most 1.5.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from typing import NamedTuple

import numpy as np

from octavo.config import EngineArgs
from octavo.engine.core import EngineCore
from octavo.engine.garbage import settle
from octavo.request import EngineCoreRequest
from octavo.sampling_params import SamplingParams

STEPS_BEFORE = 60
"""Steps in which the streams decode alone."""


class Seen(NamedTuple):
    """Milliseconds."""

    largest_gap: float
    p99_gap: float
    first_token: float


def request(name: str, length: int, max_tokens: int, rng: np.random.Generator) -> EngineCoreRequest:
    params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True, seed=0)
    return EngineCoreRequest(name, rng.integers(100, 40_000, length).tolist(), params)


def measure(core: EngineCore, options: argparse.Namespace, number: int) -> Seen:
    rng = np.random.default_rng(number)
    streams = [f"stream{i}:{number}" for i in range(options.streams)]
    for name in streams:
        core.add_request(request(name, 64, 2000, rng))
    for _ in range(STEPS_BEFORE):
        core.step()
    core.add_request(request("prompt", options.prompt_len, 1, rng))
    ends = [time.perf_counter()]
    while "prompt" not in {output.request_id for output in core.step().outputs}:
        ends.append(time.perf_counter())
    ends.append(time.perf_counter())
    core.abort(streams)
    core.step()
    gaps = 1e3 * np.diff(ends)  # every stream gets its token in every step
    return Seen(float(gaps.max()), float(np.percentile(gaps, 99)), 1e3 * (ends[-1] - ends[0]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--prompt-len", type=int, default=4096)
    parser.add_argument("--itl-slo-ms", type=float, default=50.0)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    limits = {"limit": options.itl_slo_ms, "no limit": None}
    fields = {"model": options.model, "max_model_len": options.prompt_len + 2100, "enable_prefix_caching": False}
    engines = {name: EngineCore(EngineArgs(**fields, kv_cache_memory_bytes=10**9, itl_slo_ms=limit)) for name, limit in limits.items()}
    settle()
    found: dict[str, list[Seen]] = {name: [] for name in engines}
    for number in itertools.chain([-1], range(options.rounds)):  # the first round is for warming up
        for name, core in engines.items():
            seen = measure(core, options, abs(number))
            if number >= 0:
                found[name].append(seen)
                gaps = f"largest gap {seen.largest_gap:6.1f} ms   p99 {seen.p99_gap:6.1f} ms"
                print(f"{name:8}   {gaps}   first token after {seen.first_token:6.0f} ms", flush=True)
    for name, seen in found.items():
        largest, p99, first = (statistics.median(column) for column in zip(*seen, strict=True))
        print(f"{name:8}   medians: largest gap {largest:.1f} ms, p99 {p99:.1f} ms, first token after {first:.0f} ms")
    ratios = [a.first_token / b.first_token for a, b in zip(*found.values(), strict=True)]
    print(f"ratio of a round's first tokens: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    for core in engines.values():
        core.close()


if __name__ == "__main__":
    main()
