"""Octavo on one text of 2,048 tokens: as served against its own fp32 run, and that one against transformers on the dequantized weights.

usage: python -m benchmarks.fidelity.text [smollm2] [gemma3-270m]          exit status 1 when a bound is missed
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from benchmarks.fidelity import reference
from benchmarks.fidelity.score import LLAMA_CPP_TEXT, Opinion, distance, score
from octavo import LLM
from octavo.tokenizer.tokenizer import Tokenizer
from octavo.weights.hub import resolve

TOKENS = 2048
FLOAT32_BOUND = 1e-3


def text_ids(tokenizer: Tokenizer) -> list[int]:
    """The text's first TOKENS ids."""
    text = (Path(__file__).parent / "text.txt").read_text(encoding="utf-8")
    ids = tokenizer.encode(text)
    if len(ids) < TOKENS:
        raise ValueError(f"text.txt has {len(ids)} tokens: it must have {TOKENS}")
    return ids[:TOKENS]


def octavo_opinion(model: str, dtype: str) -> tuple[list[int], Opinion]:
    """The text's ids, and what Octavo thinks of all but the first."""
    with LLM(model=model, dtype=dtype, max_model_len=TOKENS + 16, max_num_seqs=1) as llm:
        ids = text_ids(llm.get_tokenizer())
        return ids, score(llm, ids, 1)


def transformers_opinion(model: str, ids: list[int]) -> Opinion:
    """The same of transformers in fp32."""
    rows = reference.logprobs(reference.load(resolve(model)), ids)[:-1]
    return Opinion(rows[np.arange(len(rows)), ids[1:]].astype(np.float64), rows.argmax(-1))


def main(models: list[str]) -> bool:
    """Print each distance beside its bound; whether all hold."""
    good = True
    for model in models:
        ids, served = octavo_opinion(model, "auto")
        _, exact = octavo_opinion(model, "float32")
        loss, correctness = distance(served, exact), distance(exact, transformers_opinion(model, ids))
        print(f"{model} as served and in fp32:         {loss}   (bound: {LLAMA_CPP_TEXT[model]})")
        print(f"{model} in fp32 and transformers:      {correctness}   (bound: largest {FLOAT32_BOUND})")
        good = good and LLAMA_CPP_TEXT[model].holds(loss) and correctness.worst < FLOAT32_BOUND
    return good


if __name__ == "__main__":
    sys.exit(0 if main(sys.argv[1:] or list(LLAMA_CPP_TEXT)) else 1)
