"""How far 8-bit K and V can be brought down in the same bytes: KL divergence of variants.py's ideas, on the text of the report.

usage: python -m benchmarks.kv.simulation.research [smollm2] [--tokens 2048] [--output FILE]

What needs calibration has it from another text, benchmarks/fidelity/text.txt.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path

from benchmarks.kv.simulation.model import Simulation, distance
from benchmarks.kv.simulation.variants import Calibration, all_variants

OTHER_TEXT = Path(__file__).parents[2] / "fidelity" / "text.txt"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    simulation = Simulation.open(args.model, args.tokens)
    calibration = Calibration.of(simulation.reading(Simulation.open(args.model, args.tokens, OTHER_TEXT.read_text()).ids))
    own = Calibration.of(simulation)
    reference = simulation.logprobs()
    records = []
    for variant in all_variants(calibration, own):
        found = distance(reference, simulation.logprobs(variant.store))
        print(f"{variant.name:38s} {found}", flush=True)
        records.append({"variant": variant.name, "costs": variant.costs, **dataclasses.asdict(found)})
        if args.output:
            args.output.write_text(json.dumps({"model": args.model, "tokens": args.tokens, "runs": records}, indent=2) + "\n")


if __name__ == "__main__":
    main()
