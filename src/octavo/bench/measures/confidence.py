"""How sure of a figure one can be: the bootstrap over clusters, and bounds on a share.

Gaps between tokens of one step are correlated across streams, and those of one second share its causes: to draw single gaps anew would make
an interval far too narrow. What is drawn anew is therefore whole clusters: blocks of requests in a row, or one-second windows.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

RESAMPLES = 1000
_CELLS = 2_000_000
"""Of one block of the work: about 16 MB at a time."""


def resampled_percentiles(values: Floats, clusters: Ints, percent: float, resamples: int = RESAMPLES, seed: int = 0) -> Floats:
    """The percentile of each bootstrap resample, [resamples], by nearest rank.

    ``values`` [n] may have infinities; ``clusters`` [n] says which cluster each belongs to. A resample draws as many clusters as there are,
    with replacement, and takes all values of each. Source: Davison and Hinkley 1997, Bootstrap Methods and their Application, section 3.8.

    Only the largest values decide: with the values in falling order, the percentile is the first whose weight and that of all before it
    come to more than (1 - percent / 100) of the resample. So only a head of that order is looked at, longer where it does not suffice.
    Where each cluster is one value no draw is needed: the k-th smallest of n uniform draws is Beta(k, n - k + 1) distributed.
    """
    _, clusters = np.unique(clusters, return_inverse=True)
    sizes = np.bincount(clusters)
    if len(sizes) == len(values):
        rank = max(1, math.ceil(percent / 100 * len(values) - 1e-9))
        drawn = np.random.default_rng(seed).beta(rank, len(values) - rank + 1, resamples)
        return np.sort(values)[np.minimum(np.floor(drawn * len(values)).astype(np.int64), len(values) - 1)]
    order = np.argsort(-values, kind="stable")
    falling, owners = values[order], clusters[order]
    random = np.random.default_rng(seed)
    found = np.empty(resamples)
    rows = max(1, _CELLS // max(len(sizes), 1))
    for start in range(0, resamples, rows):
        count = min(rows, resamples - start)
        draws = random.multinomial(len(sizes), np.full(len(sizes), 1 / len(sizes)), size=count).astype(np.int32)
        found[start : start + count] = _weighted_percentiles(falling, owners, draws, sizes, percent)
    return found


def _weighted_percentiles(falling: Floats, owners: Ints, draws: npt.NDArray[np.int32], sizes: Ints, percent: float) -> Floats:
    """For each row of ``draws`` [rows, clusters] the percentile of the values, each as often as its cluster was drawn."""
    above = (1 - percent / 100) * (draws @ sizes)
    found = np.empty(len(draws))
    todo = np.arange(len(draws))
    head = min(len(falling), math.ceil(1.5 * (1 - percent / 100) * len(falling)) + 50)
    while len(todo):
        left = []
        rows = max(1, _CELLS // head)
        for start in range(0, len(todo), rows):
            part = todo[start : start + rows]
            reached = np.cumsum(draws[part][:, owners[:head]], axis=1) > above[part, None] + 1e-9
            enough = reached[:, -1]
            found[part[enough]] = falling[np.argmax(reached[enough], axis=1)]
            left.append(part[~enough])
        todo = np.concatenate(left)
        head = min(len(falling), 2 * head)
    return found


def percentile_interval(
    values: Floats, clusters: Ints, percent: float = 99.0, confidence: float = 0.95, seed: int = 0
) -> tuple[float, float] | None:
    """Between which bounds the percentile lies, two-sided; None where there are fewer than ten clusters to draw from."""
    if len(np.unique(clusters)) < 10:
        return None
    found = resampled_percentiles(values, clusters, percent, seed=seed)
    tail = 50 * (1 - confidence)
    low, high = np.percentile(found, [tail, 100 - tail], method="nearest")
    return float(low), float(high)


def share_bounds(hits: int, trials: int, confidence: float) -> tuple[float, float]:
    """A lower and an upper bound on the share behind ``hits`` of ``trials`` independent ones, each one-sided at ``confidence``.

    Source: Clopper and Pearson 1934, The Use of Confidence or Fiducial Limits Illustrated in the Case of the Binomial.
    """
    low = 0.0 if hits == 0 else _share_where(hits - 1, trials, confidence)
    high = 1.0 if hits >= trials else _share_where(hits, trials, 1 - confidence)
    return low, high


def at_most(hits: int, trials: int, share: float) -> float:
    """The probability of at most ``hits`` in ``trials`` independent ones."""
    if hits >= trials or share <= 0:
        return 1.0
    return float(np.exp(_log_terms(hits, trials) + _log_odds_part(hits, trials, share)).sum()) if share < 1 else 0.0


def _share_where(hits: int, trials: int, probability: float) -> float:
    """The share at which at most ``hits`` have this probability; it falls as the share grows."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if at_most(hits, trials, middle) > probability else (low, middle)
    return (low + high) / 2


def _log_terms(hits: int, trials: int) -> Floats:
    """Logarithms of the binomial coefficients for 0 … hits, [hits + 1]."""
    return np.array([math.lgamma(trials + 1) - math.lgamma(i + 1) - math.lgamma(trials - i + 1) for i in range(hits + 1)])


def _log_odds_part(hits: int, trials: int, share: float) -> Floats:
    counts = np.arange(hits + 1)
    return counts * math.log(share) + (trials - counts) * math.log1p(-share)


def blocks_in_order(values: Floats) -> Ints:
    """Clusters for values [n] in the order in which they came: which block each lies in, [n]. A block is as long as the correlation time.

    One request that waits makes the next one wait: near capacity, hundreds in a row are late for one cause, and are little more than one
    sample. Source: Künsch 1989, The Jackknife and the Bootstrap for General Stationary Observations (blocks that do not overlap: Carlstein
    1986).
    """
    return np.arange(len(values)) // max(1, round(correlation_time(values)))


def correlation_time(values: Floats) -> float:
    """How many neighbours in a series [n] make up one independent value: 1 + 2 times the sum of its autocorrelations, 1 to n.

    Of ranks, so that infinite and far-off values weigh no more than others. The sum ends where two neighbouring autocorrelations together
    are not positive. Source: Geyer 1992, Practical Markov Chain Monte Carlo, section 3.3 (the initial positive sequence).
    """
    count = len(values)
    if count < 4:
        return 1.0
    ordered = np.sort(values)
    ranks = np.searchsorted(ordered, values, side="left") + np.searchsorted(ordered, values, side="right")
    centred = ranks - ranks.mean()
    power = np.abs(np.fft.rfft(centred, 2 * count)) ** 2
    covariance = np.fft.irfft(power)[:count]
    if covariance[0] <= 0:
        return 1.0
    correlation = covariance / covariance[0]
    pairs = correlation[: count // 2 * 2].reshape(-1, 2).sum(axis=1)
    ends = np.flatnonzero(pairs <= 0)
    time = 2 * float(pairs[: ends[0] if len(ends) else len(pairs)].sum()) - 1
    return min(max(time, 1.0), float(count))
