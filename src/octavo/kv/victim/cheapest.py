"""The one whose loss costs least: the fewest computed tokens, among those that free enough blocks by themselves."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.kv.interfaces import VictimCandidate


class CheapestVictim:
    """One victim where one will do, and of those the one with the least to compute again; else the one with the least per block freed.

    Of equals the last in rank goes.
    """

    def choose(self, candidates: Sequence[VictimCandidate], needed: int) -> int:
        freed = [candidate.blocks_freed for candidate in candidates]
        enough = [i for i, blocks in enumerate(freed) if blocks >= needed]
        if enough:
            return min(enough, key=lambda i: (candidates[i].num_computed_tokens, -i))
        return min(range(len(candidates)), key=lambda i: (candidates[i].num_computed_tokens / max(freed[i], 1), -i))
