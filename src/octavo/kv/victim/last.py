"""The last in rank: of the class served last, the one that started last."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.kv.interfaces import VictimCandidate


class LastVictim:
    """First come, first served, backwards: it never keeps an older request waiting for a younger one."""

    def choose(self, candidates: Sequence[VictimCandidate], needed: int) -> int:
        return len(candidates) - 1
