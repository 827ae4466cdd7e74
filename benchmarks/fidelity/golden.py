"""Octavo against golden outputs: greedy text of transformers in fp32, forced through Octavo as served, and with --dtype float32.

usage: python -m benchmarks.fidelity.golden [smollm2] [gemma3-270m]          exit status 1 when a bound is missed
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from benchmarks.fidelity.score import LLAMA_CPP, Distance, Opinion, distance, joined, score
from octavo import LLM

FILES = {"smollm2": "smollm2_fp32.json", "gemma3-270m": "gemma3_fp32.json"}
FLOAT32_BOUND = 1e-3


def compare(model: str, dtype: str) -> Distance:
    """Distance of Octavo from the golden file over all its generated tokens."""
    records = json.loads((Path(__file__).parent / "golden" / FILES[model]).read_text())
    golden, ours = [], []
    with LLM(model=model, dtype=dtype, max_model_len=256, max_num_seqs=4) as llm:
        for record in records:
            prompt, forced, steps = record["prompt_ids"], record["greedy_ids"], record["steps"]
            golden.append(Opinion(np.array([s["logprob"] for s in steps]), np.array([s["top"][0][0] for s in steps])))
            ours.append(score(llm, prompt + forced, len(prompt)))
    return distance(joined(golden), joined(ours))


def main(models: list[str]) -> bool:
    """Print each distance beside its bound; whether all hold."""
    good = True
    for model in models:
        served, exact = compare(model, "auto"), compare(model, "float32")
        print(f"{model} as served:      {served}   (bound: {LLAMA_CPP[model]})")
        print(f"{model} dtype float32:  {exact}   (bound: largest {FLOAT32_BOUND})")
        good = good and LLAMA_CPP[model].holds(served) and exact.worst < FLOAT32_BOUND
    return good


if __name__ == "__main__":
    sys.exit(0 if main(sys.argv[1:] or list(FILES)) else 1)
