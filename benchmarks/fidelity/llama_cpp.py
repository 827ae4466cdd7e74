"""llama.cpp's server on the same files, golden ids and text: the figures that LLAMA_CPP and LLAMA_CPP_TEXT in score.py hold.

usage: llama-server -m FILE.gguf -c 4096 -np 1 -t 2 --port 8102
       python -m benchmarks.fidelity.llama_cpp smollm2|gemma3-270m http://127.0.0.1:8102
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import httpx
import numpy as np

from benchmarks.fidelity.golden import FILES
from benchmarks.fidelity.score import Opinion, distance, joined
from benchmarks.fidelity.text import text_ids, transformers_opinion
from octavo.tokenizer.load import load_tokenizer
from octavo.weights.hub import resolve

FIRST_ASK = 3000
"""Likeliest tokens asked for at a position; all of them only where the token that stands there is not among these."""


def score(client: httpx.Client, token_ids: list[int], first: int, vocab_size: int) -> Opinion:
    """What the server thinks of token_ids[first:], each given all before it; one request a position, over its prompt cache."""
    chosen, top = [], []
    for place in range(first, len(token_ids)):
        for count in (FIRST_ASK, vocab_size):
            row = _likeliest(client, token_ids[:place], count)
            if (logprob := row.get(token_ids[place])) is not None:
                break
        else:
            raise ValueError(f"position {place}: the server does not list token {token_ids[place]}")
        chosen.append(logprob)
        top.append(max(row, key=row.__getitem__))
    return Opinion(np.array(chosen), np.array(top))


def _likeliest(client: httpx.Client, prompt: list[int], count: int) -> dict[int, float]:
    """Log-probability by token, of the next one."""
    body = {"prompt": prompt, "n_predict": 1, "n_probs": count, "temperature": 0, "cache_prompt": True, "ignore_eos": False}
    answer = client.post("/completion", json=body)
    answer.raise_for_status()
    return {entry["id"]: entry["logprob"] for entry in answer.json()["completion_probabilities"][0]["top_logprobs"]}


def main(model: str, url: str) -> None:
    tokenizer = load_tokenizer(resolve(model))
    records = json.loads((Path(__file__).parent / "golden" / FILES[model]).read_text())
    with httpx.Client(base_url=url, timeout=300) as client:
        golden, theirs = [], []
        for record in records:
            golden.append(Opinion(np.array([s["logprob"] for s in record["steps"]]), np.array([s["top"][0][0] for s in record["steps"]])))
            ids = record["prompt_ids"] + record["greedy_ids"]
            theirs.append(score(client, ids, len(record["prompt_ids"]), tokenizer.vocab_size))
        print(f"{model} golden:  {distance(joined(golden), joined(theirs))}", flush=True)
        ids = text_ids(tokenizer)
        exact = transformers_opinion(model, ids)
        print(f"{model} text:    {distance(exact, score(client, ids, 1, tokenizer.vocab_size))}")


if __name__ == "__main__":
    main(*sys.argv[1:])
