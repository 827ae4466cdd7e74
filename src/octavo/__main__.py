"""``python -m octavo`` is the ``octavo`` command."""

from __future__ import annotations

import sys

from octavo.cli.main import app

if __name__ == "__main__":
    sys.exit(app())
