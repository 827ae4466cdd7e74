"""Rules of the house that import-linter cannot see: the native module, the environment."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "octavo"


def modules() -> dict[str, ast.Module]:
    """Every module of the package by its path below octavo, e.g. "kv/interfaces.py"."""
    return {str(p.relative_to(SOURCE)): ast.parse(p.read_text()) for p in SOURCE.rglob("*.py")}


def imported(tree: ast.Module) -> set[str]:
    """Full names of what a module imports, wherever it does."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    return names


def test_only_ops_runner_and_the_machine_benchmark_know_the_native_module():
    users = {path for path, tree in modules().items() if "octavo._native" in imported(tree)}
    assert users
    allowed = ("ops/", "runner/")
    assert not {path for path in users if not path.startswith(allowed)} - {"bench/machine.py"}


def test_nothing_imports_torch_or_transformers():
    for path, tree in modules().items():
        assert not {name.partition(".")[0] for name in imported(tree)} & {"torch", "transformers"}, path


def test_imports_are_absolute():
    for path, tree in modules().items():
        relative = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level > 0]
        assert not relative, f"{path}: lines {relative}"


def test_only_envs_reads_the_environment():
    for path, tree in modules().items():
        reads = [
            node.lineno for node in ast.walk(tree) if (isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv", "environb"))
        ]
        assert not reads or path == "envs.py", f"{path}: lines {reads}"
