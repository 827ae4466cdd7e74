"""Teacher forcing: what a model thinks of given tokens, and how far two models' opinions are apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from octavo import LLM, SamplingParams


@dataclass(frozen=True)
class Opinion:
    """Of one model on a sequence, one entry a position that was scored."""

    chosen: npt.NDArray[np.float64]
    """Log-probability of the token that stands there."""
    top: npt.NDArray[np.int64]
    """The likeliest token."""


@dataclass(frozen=True)
class Distance:
    """Between two opinions."""

    mean: float
    """Mean |Δ logprob| of the tokens that stand there, in nats."""
    worst: float
    """The largest."""
    agreement: float
    """Percent of positions with the same likeliest token."""

    def __str__(self) -> str:
        return f"mean |Δ logprob| {self.mean:.5f}, largest {self.worst:.4f}, top-1 agreement {self.agreement:.1f} %"


@dataclass(frozen=True)
class Bound:
    """How far from fp32 an engine on the same file may be, next to another: at most 1.1 times its mean, one point less agreement."""

    mean: float
    agreement: float

    def holds(self, distance: Distance) -> bool:
        return distance.mean <= 1.1 * self.mean and distance.agreement >= self.agreement - 1

    def __str__(self) -> str:
        return f"at most {1.1 * self.mean:.4f}, at least {self.agreement - 1:.1f} %"


LLAMA_CPP = {"smollm2": Bound(0.0316, 98.1), "gemma3-270m": Bound(0.0387, 96.5)}
"""llama.cpp b11434 (llama-server, CPU) on the golden ids; llama_cpp.py measures it."""
LLAMA_CPP_TEXT = {"smollm2": Bound(0.0512, 96.6), "gemma3-270m": Bound(0.0708, 95.0)}
"""The same on text.txt: a person's prose is less likely than a model's own, and |Δ logprob| larger."""


def distance(a: Opinion, b: Opinion) -> Distance:
    """Of two opinions on the same tokens."""
    gap = np.abs(a.chosen - b.chosen)
    return Distance(float(gap.mean()), float(gap.max()), float(100 * np.mean(a.top == b.top)))


def joined(opinions: list[Opinion]) -> Opinion:
    """Several sequences' opinions as one."""
    return Opinion(np.concatenate([o.chosen for o in opinions]), np.concatenate([o.top for o in opinions]))


def score(llm: LLM, token_ids: list[int], first: int) -> Opinion:
    """What ``llm`` thinks of token_ids[first:], each given all before it; first ≥ 1."""
    params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=1)
    (output,) = llm.generate([{"prompt_token_ids": token_ids}], params, use_tqdm=False)
    assert output.prompt_logprobs is not None
    rows = [row for row in output.prompt_logprobs[first:] if row is not None]
    chosen = [row[token].logprob for row, token in zip(rows, token_ids[first:], strict=True)]
    top = [min(row, key=lambda token: row[token].rank or len(row) + 1) for row in rows]
    return Opinion(np.array(chosen), np.array(top))
