"""How large a fresh install without the dev extra is, the virtual environment and all.

usage: python benchmarks/install_size.py          exit status 1 when it is over the limit
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT_BYTES = 250_000_000


def size(folder: Path) -> int:
    """Bytes of all files under ``folder``, links not followed."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def install(folder: Path) -> None:
    """Make a virtual environment and install this checkout into it as `make install` does, but not editable."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "-q"]
    subprocess.run([*pip, str(ROOT)], check=True)


def largest(folder: Path, count: int) -> list[tuple[int, str]]:
    """The largest entries of the environment's site-packages."""
    (packages,) = folder.glob("lib/python*/site-packages")
    return sorted(((size(p) if p.is_dir() else p.stat().st_size, p.name) for p in packages.iterdir()), reverse=True)[:count]


def main() -> bool:
    with tempfile.TemporaryDirectory(prefix="octavo-install-") as name:
        folder = Path(name) / "venv"
        install(folder)
        total = size(folder)
        for nbytes, package in largest(folder, 8):
            print(f"{nbytes / 1e6:8.1f} MB  {package}")
    print(f"{total / 1e6:8.1f} MB  in all (limit {LIMIT_BYTES / 1e6:.0f} MB)")
    return total <= LIMIT_BYTES


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
