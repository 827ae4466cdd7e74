"""Contiguous placement, best fit: the shortest free run that is long enough (Knuth, TAOCP volume 1, 2.5)."""

from __future__ import annotations

import numpy as np

from octavo.kv.placement.contiguous import ContiguousPlacement
from octavo.kv.placement.free_runs import Lengths


class BestFitPlacement(ContiguousPlacement):
    """Contiguous, but long runs are kept for those who need them; of equally short ones the first."""

    def _fit(self, lengths: Lengths, num_blocks: int) -> int:
        return int(np.argmin(np.where(lengths >= num_blocks, lengths, np.iinfo(np.int64).max)))
