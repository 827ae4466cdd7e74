"""``octavo version``"""

from __future__ import annotations


def command() -> None:
    """Print Octavo's version."""
    from octavo import __version__

    print(__version__)
