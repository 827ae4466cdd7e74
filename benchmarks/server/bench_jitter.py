"""What HTTP and tokenizing beside a decoding stream do to its time between tokens.

usage: python benchmarks/server/bench_jitter.py [--model smollm2] [--text-bytes 5000] [--per-second 20] [--rounds 3]

One stream decodes, with and without a second client that has texts tokenized meanwhile; both clients share the server's cores. Prints p50,
p99 and their ratio for each round, alternating, and the median ratios. The aim is p99 < 3 x p50 with the second client.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import socket
import statistics
import subprocess
import sys
import time
from multiprocessing.synchronize import Event

import httpx
import numpy as np
import numpy.typing as npt

TOKENS = 600
WARM_UP = 5
"""Gaps at a stream's start that do not count."""


def start_server(model: str) -> tuple[subprocess.Popen[bytes], str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "octavo", "serve", model, "--port", str(port), "--kv-cache-memory-bytes", "500000000"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    for _ in range(240):
        time.sleep(0.25)
        try:
            if httpx.get(f"{url}/health").status_code == 200:
                return process, url
        except httpx.TransportError:
            if process.poll() is not None:
                break
    process.kill()
    raise SystemExit(f"octavo serve {model} did not get ready")


def gaps(url: str, model: str) -> npt.NDArray[np.float64]:
    """Milliseconds between the tokens of one stream."""
    body = {"model": model, "prompt": "Once", "max_tokens": TOKENS, "ignore_eos": True, "stream": True, "temperature": 0}
    arrivals = []
    with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=60) as response:
        response.raise_for_status()
        arrivals = [time.perf_counter() for line in response.iter_lines() if line.startswith("data: {")]
    return 1e3 * np.diff(arrivals)[WARM_UP:]


def tokenize(url: str, model: str, text_bytes: int, per_second: float, stop: Event) -> None:
    """The second client; open loop as far as one connection goes."""
    body = json.dumps({"model": model, "prompt": "hello world " * (text_bytes // 12)}).encode()
    with httpx.Client(timeout=60) as client:
        due = time.perf_counter()
        while not stop.is_set():
            client.post(f"{url}/tokenize", content=body, headers={"Content-Type": "application/json"}).raise_for_status()
            due = max(due + 1 / per_second, time.perf_counter())
            time.sleep(max(0.0, due - time.perf_counter()))


def measure(url: str, options: argparse.Namespace, load: bool) -> float:
    """One stream: its p99 / p50, which it prints."""
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    client = context.Process(target=tokenize, args=(url, options.model, options.text_bytes, options.per_second, stop))
    if load:
        client.start()
        time.sleep(1.0)
    try:
        found = gaps(url, options.model)
    finally:
        stop.set()
        if load:
            client.join()
    p50, p99 = np.percentile(found, (50, 99))
    print(f"{'beside tokenizing' if load else 'alone':18} p50 {p50:6.2f} ms   p99 {p99:6.2f} ms   ratio {p99 / p50:.2f}", flush=True)
    return float(p99 / p50)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--text-bytes", type=int, default=5000)
    parser.add_argument("--per-second", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    process, url = start_server(options.model)
    try:
        gaps(url, options.model)
        ratios = [(measure(url, options, load=False), measure(url, options, load=True)) for _ in range(options.rounds)]
    finally:
        process.terminate()
        process.wait()
    alone, beside = (statistics.median(column) for column in zip(*ratios, strict=True))
    print(f"median ratio: alone {alone:.2f}, beside tokenizing {beside:.2f} (aim: under 3)")


if __name__ == "__main__":
    main()
