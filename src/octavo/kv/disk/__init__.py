"""The persistent tier of the prefix cache: blocks that outlive the pool, and the process, as files."""

from __future__ import annotations

SPILL_SECONDS = 10.0
"""How long closing an engine may take for the sake of what the prefix cache still holds."""
