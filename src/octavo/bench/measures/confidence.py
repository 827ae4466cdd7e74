"""How sure of a figure one can be: the bootstrap over clusters, and bounds on a share.

Gaps between tokens of one step are correlated across streams, and those of one second share its causes: to draw single gaps anew would make
an interval far too narrow. What is drawn anew is therefore whole clusters: requests, or one-second windows.
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
    """
    _, clusters = np.unique(clusters, return_inverse=True)
    sizes = np.bincount(clusters)
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
