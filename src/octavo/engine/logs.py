"""What a user sees of the log when the program has not said what it wants."""

from __future__ import annotations

import logging

from octavo import envs


def show_logs() -> None:
    """Print Octavo's log, from OCTAVO_LOG_LEVEL on, unless the program has set up logging of its own."""
    logger = logging.getLogger("octavo")
    if logger.hasHandlers():
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s [%(process)d] %(name)s: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(envs.log_level().upper())
