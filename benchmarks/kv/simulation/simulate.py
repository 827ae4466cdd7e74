"""What each KV dtype and scale mode of the engine costs in fidelity, in transformers and fp32; and the engine's report beside it.

usage: python -m benchmarks.kv.simulation.simulate [smollm2] [--tokens 2048] [--output FILE] [--report FILE] [--simulated FILE]

--report is what `octavo kv-report MODEL --dtype float32 --tokens 2048 --output FILE` wrote: exit status 1 where its KL is over 1.15 times
the simulation's. (As served, activations are int8, whose roundings flip at the least change of K or V: that alone is more than the KL of
the finer dtypes.)
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.kv.simulation.formats import ways
from benchmarks.kv.simulation.model import Simulation, distance

BOUND = 1.15
NOTHING = 1e-5
"""Nats: a KL below is rounding of fp32 alone."""


def simulate(model: str, tokens: int) -> list[dict[str, Any]]:
    """A record for each way, as they are done."""
    simulation = Simulation.open(model, tokens)
    reference = simulation.logprobs()
    records = []
    for (dtype, scales), store in ways().items():
        found = distance(reference, simulation.logprobs(lambda _, k, v, store=store: (store(k), store(v))))
        print(f"{dtype:9s} {scales or '':8s} {found}", flush=True)
        records.append({"dtype": dtype, "scales": scales, **dataclasses.asdict(found)})
    return records


def compare(records: list[dict[str, Any]], report: dict[str, Any]) -> bool:
    """Print the engine's KL over the simulation's; whether all are within BOUND."""
    engine = {(run["dtype"], run["scales"]): run["kl_mean"] for run in report["runs"]}
    good = True
    for record in records:
        ours, theirs = engine[record["dtype"], record["scales"]], record["kl_mean"]
        holds = ours <= BOUND * max(theirs, NOTHING)
        good = good and holds
        print(
            f"{record['dtype']:9s} {record['scales'] or '':8s} {ours:.5f} / {theirs:.5f} = {ours / theirs:.2f}{'' if holds else '   over'}"
        )
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--report", type=Path)
    parser.add_argument("--simulated", type=Path, help="take the simulation's figures from this --output of an earlier run")
    args = parser.parse_args()
    records = json.loads(args.simulated.read_text())["runs"] if args.simulated else simulate(args.model, args.tokens)
    if args.output:
        args.output.write_text(json.dumps({"model": args.model, "tokens": args.tokens, "runs": records}, indent=2) + "\n")
    return 0 if args.report is None or compare(records, json.loads(args.report.read_text())) else 1


if __name__ == "__main__":
    sys.exit(main())
