"""Does `octavo bench serve` measure what `vllm bench serve` measures? Both on one running server, under the same load, in turns.

    python benchmarks/server/bench_agreement.py --vllm PATH/bin/vllm --url http://127.0.0.1:8000 --model smollm2 --tokenizer FOLDER

Arrivals are all but constant (gamma with a burstiness of 1000), so that no luck of the draw is measured: what is compared is the clients.
Prompts are random, new in each run, and sent as text by both. Prints the median over the runs of each client, their difference, and their
ranges. Exits with 1 if a median of ITL or TTFT differs by more than 5 %, or a p99 by more than 10 %. FOLDER has the model's tokenizer in
Hugging Face's form.

vLLM's TTFT counts from when a request really was sent, Octavo's from when it was to be. Like is judged with like, TTFT from the send, and
Octavo's own stands beside it: the difference is what the client was late by.

--together runs both at once, each with half the rate: on a machine that is not quiet, what disturbs the server then disturbs both alike. A
client that is late is no error then. The server must be on this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

from rich.console import Console

from octavo.bench.report.document import Table
from octavo.bench.report.terminal import show_table

BURSTINESS = "1000"
LIMITS = {"ITL p50": 0.05, "ITL p99": 0.1, "TTFT from the send p50": 0.05, "TTFT from the send p99": 0.1}
"""Share by which the clients may differ."""
Figures = dict[str, float]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm", required=True, help="the vllm command")
    parser.add_argument("--url", required=True)
    parser.add_argument("--model", required=True, help="its name on the server")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--request-rate", type=float, default=3)
    parser.add_argument("--num-prompts", type=int, default=300, help="of fewer than some hundreds, p99 is all but the maximum")
    parser.add_argument("--input-len", type=int, default=128)
    parser.add_argument("--output-len", type=int, default=64)
    parser.add_argument("--runs", type=int, default=3, help="of each client")
    parser.add_argument("--seed", type=int, default=1, help="of the first run; each run has its own")
    parser.add_argument("--together", action="store_true", help="both at once instead of in turns")
    args = parser.parse_args()
    runs: dict[str, list[Figures]] = {"octavo": [], "vllm": []}
    for number in range(args.runs):
        seed = args.seed + 2 * number
        both = together(args, seed) if args.together else in_turns(args, seed, first="octavo" if number % 2 == 0 else "vllm")
        for name, figures in both.items():
            runs[name].append(figures)
            print(name, ", ".join(f"{what} {value:.1f}" for what, value in figures.items()), flush=True)
    return compare(runs, args)


def in_turns(args: argparse.Namespace, seed: int, first: str) -> dict[str, Figures]:
    clients = {"octavo": run_octavo, "vllm": run_vllm}
    return {name: clients[name](args, seed + place) for place, name in enumerate(sorted(clients, key=lambda name: name != first))}


def together(args: argparse.Namespace, seed: int) -> dict[str, Figures]:
    """vLLM's takes its time to start: the other one begins when its first connection is there."""
    half = argparse.Namespace(**vars(args) | {"request_rate": args.request_rate / 2, "num_prompts": args.num_prompts // 2})
    port = urlsplit(args.url).port or 80
    others = connections(port)
    with ThreadPoolExecutor() as pool:
        vllm = pool.submit(run_vllm, half, seed)
        while connections(port) <= others and not vllm.done():
            time.sleep(0.1)
        return {"octavo": run_octavo(half, seed + 1), "vllm": vllm.result()}


def connections(port: int) -> int:
    """Open ones to a port of this machine, by the kernel's table."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[3] == "01" and int(row[2].rpartition(":")[2], 16) == port for row in rows)


def flags(args: argparse.Namespace, seed: int) -> list[str]:
    """Those that both know by one name."""
    names = ("model", "tokenizer", "request_rate", "num_prompts")
    given = [word for name in names for word in ("--" + name.replace("_", "-"), str(getattr(args, name)))]
    return [*given, "--burstiness", BURSTINESS, "--seed", str(seed)]


def run_octavo(args: argparse.Namespace, seed: int) -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "result.json"
        command = [sys.executable, "-m", "octavo", "bench", "serve", "--url", args.url, *flags(args, seed), "--text-prompts"]
        command += ["--input-len", str(args.input_len), "--output-len", str(args.output_len), "--output", str(output)]
        command += ["--max-client-lag-ms", "10000"] if args.together else []
        call(command)
        result = json.loads(output.read_text())
    check(result["completed"] == args.num_prompts and not result["wrong_length"], "octavo", result["warnings"])
    measures = {"ITL": result["itl_ms"], "TTFT from the send": result["client"]["ttft_from_send_ms"], "TTFT": result["ttft_ms"]}
    latencies = {f"{name} {each}": measure[each] for name, measure in measures.items() for each in ("p50", "p99")}
    return {**latencies, "output tok/s": result["output_tok_s"]}


def run_vllm(args: argparse.Namespace, seed: int) -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        command = [args.vllm, "bench", "serve", "--backend", "openai", "--base-url", args.url, *flags(args, seed)]
        command += ["--dataset-name", "random", "--random-input-len", str(args.input_len), "--random-output-len", str(args.output_len)]
        command += ["--ignore-eos", "--temperature", "0", "--percentile-metrics", "ttft,itl", "--metric-percentiles", "50,99"]
        command += ["--ready-check-timeout-sec", "0", "--num-warmups", "4"]
        command += ["--save-result", "--result-dir", folder, "--result-filename", "result.json", "--disable-tqdm"]
        call(command)
        result = json.loads((Path(folder) / "result.json").read_text())
    check(result["completed"] == args.num_prompts, "vllm", result.get("errors"))
    names = {"ITL": "itl", "TTFT from the send": "ttft", "TTFT": "ttft"}
    latencies = {f"{name} {each}": result[f"{each}_{key}_ms"] for name, key in names.items() for each in ("p50", "p99")}
    return {**latencies, "output tok/s": result["output_throughput"]}


def call(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR"})
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{(done.stdout + done.stderr)[-2000:]}")


def check(good: bool, client: str, said: object) -> None:
    if not good:
        raise SystemExit(f"{client}: not all requests came out as asked: {said}")


def compare(runs: dict[str, list[Figures]], args: argparse.Namespace) -> int:
    rows = []
    agree = True
    for what in runs["octavo"][0]:
        ours, theirs = ([figures[what] for figures in runs[client]] for client in ("octavo", "vllm"))
        off = statistics.median(ours) / statistics.median(theirs) - 1
        limit = LIMITS.get(what)
        agree = agree and (limit is None or abs(off) <= limit)
        ranges = [f"{min(values):.1f} – {max(values):.1f}" for values in (ours, theirs)]
        verdict = "" if limit is None else "agrees" if abs(off) <= limit else "differs"
        rows.append([what, statistics.median(ours), statistics.median(theirs), f"{100 * off:+.1f} %", *ranges, verdict])
    load = f"{args.num_prompts} requests at {args.request_rate:g} a second, {args.input_len} in, {args.output_len} out"
    columns = ["ms", "octavo bench serve", "vllm bench serve", "difference", "runs of octavo", "runs of vllm", ""]
    show_table(
        Table(
            title=f"{args.model}: {load}; medians of {args.runs} runs {'together' if args.together else 'in turns'}",
            columns=columns,
            rows=rows,
        ),
        Console(),
    )
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
