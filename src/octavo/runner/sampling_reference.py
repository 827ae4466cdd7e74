"""The sampling rule in plain numpy: the oracle of ``octavo._native.sample`` and ``logprobs``, and what runs without them.

A token is one deterministic function of (logits row, sampling parameters, seed, output index). Random numbers come from
Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"), a counter-based generator, so a request
that is preempted or resumed continues with the very numbers it would have drawn.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from octavo.sampling_params import GREEDY_BELOW

F32Array = npt.NDArray[np.float32]
Int32Array = npt.NDArray[np.int32]

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_WORD = 0xFFFFFFFF


def philox4x32(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Ten rounds of Philox; all are 32-bit words."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        product0, product1 = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (product1 >> 32) ^ c1 ^ k0, product1 & _WORD, (product0 >> 32) ^ c3 ^ k1, product0 & _WORD
        k0, k1 = (k0 + _WEYL[0]) & _WORD, (k1 + _WEYL[1]) & _WORD
    return c0, c1, c2, c3


def uniform(seed: int, index: int) -> float:
    """A double in [0, 1) with 53 random bits, for output ``index`` of the request with ``seed`` (64 bits)."""
    x0, x1, _, _ = philox4x32((index & _WORD, 0, 0, 0), (seed & _WORD, seed >> 32 & _WORD))
    return float((x0 >> 5) * 2**26 + (x1 >> 6)) / 2.0**53


def sample_row(logits: F32Array, temperature: float, top_k: int, top_p: float, min_p: float, seed: int, index: int) -> int:
    """One token id from ``logits`` [V].

    Below GREEDY_BELOW: the largest logit, the lowest id among equals. Otherwise weights are exp((logit - max) / temperature)
    in doubles; of these stay the ones of at least min_p (the largest is 1), then exactly the top_k largest, then the smallest
    set in falling order whose sum reaches top_p of what is left, at least one; equals fall with the lower id first. The token is
    the first, in order of id, whose running sum exceeds uniform(seed, index) times the whole.
    """
    if temperature < GREEDY_BELOW:
        return int(np.argmax(logits))
    weights = np.exp((logits.astype(np.float64) - float(logits.max())) / temperature)
    weights[weights < min_p] = 0.0
    falling = np.argsort(-logits, kind="stable")
    if top_k > 0:
        weights[falling[top_k:]] = 0.0
    if top_p < 1.0:
        mass = np.cumsum(weights[falling])
        last = int(np.searchsorted(mass, top_p * mass[-1]))  # the first that reaches top_p
        weights[falling[last + 1 :]] = 0.0
    running = np.cumsum(weights)
    return int(np.searchsorted(running, uniform(seed, index) * running[-1], side="right"))


def logprobs(logits: F32Array, chosen: Int32Array, num: int) -> tuple[Int32Array, F32Array, F32Array, Int32Array]:
    """Log-softmax facts of each row of ``logits`` [rows, V]; the same results as ``octavo._native.logprobs``."""
    rows = np.arange(len(logits))
    peak = logits.max(axis=1, keepdims=True).astype(np.float64)
    log_total = peak + np.log(np.exp(logits - peak).sum(axis=1, keepdims=True))
    top = np.argsort(-logits, axis=1, kind="stable")[:, :num]
    picked = logits[rows, chosen]
    rank = 1 + (logits > picked[:, None]).sum(axis=1)
    top_logprobs = np.take_along_axis(logits, top, axis=1) - log_total
    return (
        top.astype(np.int32),
        top_logprobs.astype(np.float32),
        (picked - log_total[:, 0]).astype(np.float32),
        rank.astype(np.int32),
    )
