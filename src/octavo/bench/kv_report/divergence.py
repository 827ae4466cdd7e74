"""How far one model's next-token distributions are from another's on the same text, over the full vocabulary."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from octavo.bench.stats import percentile

F32Array = npt.NDArray[np.float32]
F64Array = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int32] | npt.NDArray[np.int64]


@dataclass(frozen=True)
class Fidelity:
    """Of a model against a reference, over all positions of a text."""

    kl_mean: float
    """Kullback-Leibler divergence from the reference's distribution to the model's, in nats: mean over positions."""
    kl_p99: float
    top1_agreement: float
    """Share of positions with the same likeliest token, 0 to 1."""
    perplexity: float
    """exp of the mean negative log-likelihood of the tokens that follow."""


class Distributions:
    """Softmax of logits [rows, vocab] and what comparing needs of it. Elements in fp32, sums over the vocabulary in fp64."""

    def __init__(self, logits: F32Array) -> None:
        self.logits = logits.copy()
        self.weights, self.total = _weights(self.logits)
        self.log_sum = np.log(self.total) + self.logits.max(-1)
        self.top = self.logits.argmax(-1)


def _weights(logits: F32Array) -> tuple[F32Array, F64Array]:
    """exp(x - the row's largest) [rows, vocab], and the sum of each row."""
    weights: F32Array = np.exp(logits - logits.max(-1, keepdims=True))
    return weights, weights.sum(-1, dtype=np.float64)


class Divergence:
    """Gathers Fidelity chunk by chunk."""

    def __init__(self) -> None:
        self._kl: list[float] = []
        self._losses: list[float] = []
        self._same = 0

    def add(self, reference: Distributions, logits: F32Array, following: IntArray) -> None:
        """The next rows: logits [rows, vocab], and the tokens that follow them (one fewer at the text's end)."""
        log_sum = np.log(_weights(logits)[1]) + logits.max(-1)
        # Σ p (log p − log q), with p = weight / total and log p − log q = (x − y) − (log Σ exp x − log Σ exp y)
        gap = np.einsum("rv,rv->r", reference.weights, reference.logits - logits, dtype=np.float64) / reference.total
        self._kl += (gap - reference.log_sum + log_sum).tolist()
        self._same += int((reference.top == logits.argmax(-1)).sum())
        rows = np.arange(len(following))
        self._losses += (log_sum[rows] - logits[rows, following]).tolist()

    def fidelity(self) -> Fidelity:
        """Over all rows so far; at least one, with a token that follows."""
        count = len(self._kl)
        perplexity = float(np.exp(np.mean(self._losses)))
        return Fidelity(sum(self._kl) / count, percentile(self._kl, 99), self._same / count, perplexity)
