"""Prefill of a model as its file stores it, beside the same model dequantized to fp32: packing must not make prefill slow.

usage: python -m benchmarks.formats [gemma3-270m] [smollm2] [FILE.gguf …]          exit status 1 when a model is flagged
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from octavo.bench.drive import Driver
from octavo.bench.stats import median
from octavo.bench.workload.requests import random_requests
from octavo.config import EngineArgs
from octavo.engine.client import InProcessClient

MODELS = ("gemma3-270m", "smollm2")
"""Q4_K, Q5_0, Q6_K and Q8_0; Q4_1 and Q8_0."""
TOKENS, REPEATS = 512, 3
MOST_TIMES_SLOWER = 3.0


@dataclass(frozen=True)
class Comparison:
    """Prefill speeds of one model, in tokens a second."""

    model: str
    packed: float
    full: float

    @property
    def ratio(self) -> float:
        """How many times slower the packed weights are; below 1 they are faster."""
        return self.full / self.packed

    @property
    def flagged(self) -> bool:
        return self.ratio > MOST_TIMES_SLOWER

    def __str__(self) -> str:
        verdict = f"FLAGGED: more than {MOST_TIMES_SLOWER:g} times slower" if self.flagged else "ok"
        speeds = f"prefill {self.packed:,.0f} tok/s as stored, {self.full:,.0f} tok/s in fp32"
        return f"{self.model}: {speeds}; fp32 / stored = {self.ratio:.2f} ({verdict})"


def prefill_tok_s(args: EngineArgs) -> float:
    """Of a prompt of TOKENS random tokens alone: the median of REPEATS, after one to warm up."""
    engine = InProcessClient(args)
    try:
        driver = Driver(engine)
        prompts = random_requests(REPEATS + 1, TOKENS, 1, engine.info.vocab_size, seed=0)
        seconds = [driver.run([prompt]).timelines[0].ttft for prompt in prompts]
    finally:
        engine.shutdown()
    return TOKENS / median(seconds[1:])


def compare(model: str) -> Comparison:
    """Both speeds of ``model``, one engine after the other."""
    packed, full = (prefill_tok_s(EngineArgs(model=model, dtype=dtype, max_model_len=TOKENS + 1)) for dtype in ("auto", "float32"))
    return Comparison(model, packed, full)


def report(comparisons: Sequence[Comparison]) -> bool:
    """Print each; whether none is flagged."""
    for comparison in comparisons:
        print(comparison)
    return not any(comparison.flagged for comparison in comparisons)


if __name__ == "__main__":
    sys.exit(0 if report([compare(model) for model in sys.argv[1:] or MODELS]) else 1)
