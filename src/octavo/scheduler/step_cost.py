"""How long a step will take: a linear model of its work, fitted while the engine runs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]

MEMORY = 256
"""Steps after which an observation counts for 1/e of a new one."""
REFIT_EVERY = 8
"""Observations between two fits."""
ERRORS = 512
"""Last steps whose errors set the margin."""
MARGIN_PERCENTILE = 99.5
"""A request of a hundred tokens that meets twenty prefills is then late once in ten, and hardly ever twice."""
ENOUGH_ERRORS = 64
"""With fewer the margin is a guess: this part of what is predicted."""
GUESSED_MARGIN = 0.15
FRESH = 8 * MEMORY
"""Steps after which an error says nothing of the machine any more, be there new ones or not."""

RIDGE = 1e-3
"""Weight of the last fit against the steps observed, of which each term has 1."""
LEAST_PART = 0.01
"""Of the mean term; a smaller one is held no stiffer, so that it can grow."""


@dataclass(slots=True)
class StepWork:
    """What a step computes."""

    tokens: int = 0
    pairs: int = 0
    """(token, position attended to) pairs, as if no layer had a window."""
    rows: int = 0
    """Sequences that sample."""
    waiting_decodes: int = 0
    """Sequences whose client has its first token and waits for the next: not all that compute one token, as a step's demand counts them."""

    def add(self, computed: int, count: int, samples: bool, *, decode: bool = False) -> None:
        """A sequence with ``computed`` tokens computes ``count`` more."""
        self.tokens += count
        self.pairs += pairs(computed, count)
        self.rows += samples
        self.waiting_decodes += decode

    def remove(self, computed: int) -> None:
        """Take back a sequence that was to compute one token after ``computed``, and sample."""
        self.tokens -= 1
        self.pairs -= pairs(computed, 1)
        self.rows -= 1

    def features(self) -> Vector:
        """[4]: 1 for what each step costs, then the counts."""
        return np.array((1.0, self.tokens, self.pairs, self.rows))


def pairs(computed: int, count: int) -> int:
    """(token, position) pairs of ``count`` tokens after ``computed``: each attends to all before it, and itself."""
    return count * computed + count * (count + 1) // 2


class StepCostModel:
    """seconds = a + b · tokens + c · pairs + d · rows, with no coefficient below 0.

    Weighted least squares on relative errors, so that short steps count as much as long ones, with exponential forgetting, so that the
    model follows what else the machine does (Ljung, System Identification, 2nd ed., chapter 11). The normal equations carry a little of the
    last fit, a ridge towards it that is the stiffer the smaller a term's part in a step is. What the steps do not tell apart (of one stream
    alone: its token from its row and from the step itself) then keeps its proportions, as on a machine that became faster or slower; hours
    of decoding alone must not make the coefficients of prefill wander.
    """

    def __init__(self, prior: Vector | None = None) -> None:
        """``prior``: coefficients to begin with, [4], seconds; without it the model predicts 0 until it has seen a step."""
        self.coefficients: Vector = np.zeros(4) if prior is None else prior.copy()
        self.num_observed = 0
        self._normal = np.zeros((4, 4))
        self._right = np.zeros(4)
        self._mixed = np.zeros((ERRORS, 6))
        """The last steps that both decode and prefill, in a ring: their features, how long they took, and their number."""
        self._num_mixed = 0
        self._margin: float | None = None

    def predict(self, work: StepWork) -> float:
        """Seconds that a step of this work takes on average."""
        a, b, c, d = self.coefficients
        return float(a + b * work.tokens + c * work.pairs + d * work.rows)

    def predict_more(self, work: StepWork) -> float:
        """Seconds by which this work makes a step longer on average."""
        return self.predict(work) - float(self.coefficients[0])

    def observe(self, work: StepWork, seconds: float) -> None:
        """A step of this work took so long."""
        if seconds <= 0:
            return
        features = work.features()
        if self.num_observed and work.tokens > work.waiting_decodes > 0:
            self._mixed[self._num_mixed % ERRORS] = (*features, seconds, self.num_observed)
            self._num_mixed += 1
        scaled = features / seconds
        keep = np.exp(-1 / MEMORY)
        self._normal = keep * self._normal + np.outer(scaled, scaled)
        self._right = keep * self._right + scaled
        self.num_observed += 1
        if self.num_observed % REFIT_EVERY == 0 or self.num_observed < 2 * REFIT_EVERY:
            self._fit()

    def forget_errors(self) -> None:
        """The errors so far, of calibrating, say nothing of those to come."""
        self._num_mixed = 0
        self._margin = None

    def margin(self, seconds: float) -> float:
        """Seconds by which a step that is predicted to take ``seconds`` may take longer: a high percentile of the last errors.

        They are of steps that both decode and prefill, against the model as it is now: what was wrong with it before it had met such
        steps is no reason for smaller ones later. What delays a step (a page touched first, another process) adds to it, and does not
        multiply it. Old errors are forgotten though no new ones come: a wide margin may keep requests from running together, and so keep
        away the very steps that would narrow it.
        """
        return GUESSED_MARGIN * seconds if self._margin is None else self._margin

    def most_tokens(self, work: StepWork, computed: int, wanted: int, seconds: float) -> int:
        """The largest n up to ``wanted`` for which ``work`` and n more tokens of a sequence with ``computed`` take at most ``seconds``, on
        average, its sampling included; 0 if not even one does."""
        _, b, c, d = self.coefficients
        left = seconds - self.predict(work) - d
        # b n + c (n computed + n (n + 1) / 2) <= left
        linear = b + c * (computed + 0.5)
        if left < 0:
            return 0
        slope = linear + math.sqrt(linear * linear + 2 * c * left)
        return int(min(2 * left / slope, wanted)) if slope > 0 else wanted

    def _fit(self) -> None:
        scale = np.sqrt(np.maximum(np.diag(self._normal), 1e-300))
        normal, right = self._normal / np.outer(scale, scale), self._right / scale
        before = self.coefficients * scale
        parts = before / before.mean() if before.any() else np.ones(4)
        ridge = RIDGE / np.maximum(parts, LEAST_PART)
        free = np.ones(4, bool)
        fitted = np.zeros(4)
        while free.any():  # what comes out below 0 is 0, and the rest is fitted again: at most four rounds
            matrix = normal[np.ix_(free, free)] + np.diag(ridge[free])
            solved = np.linalg.solve(matrix, right[free] + (ridge * before)[free])
            fitted[:] = 0
            fitted[free] = solved
            if (solved >= 0).all():
                break
            free &= fitted >= 0
        self.coefficients = np.maximum(fitted, 0) / scale
        self._margin = self._high_error()

    def _high_error(self) -> float | None:
        """The margin; None with too few errors to tell."""
        mixed = self._mixed[: self._num_mixed]
        fresh = mixed[mixed[:, 5] > self.num_observed - FRESH]
        if len(fresh) < ENOUGH_ERRORS:
            return None
        errors = fresh[:, 4] - fresh[:, :4] @ self.coefficients
        return max(float(np.percentile(errors, MARGIN_PERCENTILE)), 0.0)
