"""Which KV policies go together."""

from __future__ import annotations

import itertools

from octavo.kv.policies import ADMISSIONS, EVICTIONS, PLACEMENTS, PREFIX_INDEXES, REQUIRED


def valid_combinations() -> list[dict[str, str]]:
    """Every combination of built-in policies that the table does not refuse."""
    names = {"placement": PLACEMENTS, "prefix_index": PREFIX_INDEXES, "eviction": EVICTIONS, "admission": ADMISSIONS}
    chosen = [dict(zip(names, choice, strict=True)) for choice in itertools.product(*names.values())]
    return [policies for policies in chosen if _is_valid({f"{seam}={name}" for seam, name in policies.items()})]


def _is_valid(choices: set[str]) -> bool:
    return all(choices & set(needed) for choice, (needed, _) in REQUIRED.items() if choice in choices)
