"""The repository itself: what it ships, what it says, and that both agree."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FORBIDDEN = re.compile(r"/work/|/tmp/(peers|models)|/root/")
"""Paths of one machine, which have no business in a repository."""


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return [path for name in listed.stdout.decode().split("\0") if name and (path := ROOT / name).is_file()]


def test_no_path_of_one_machine():
    found = []
    for path in tracked_files():
        if path != Path(__file__).resolve():
            text = path.read_text(encoding="utf-8", errors="replace")
            found += [f"{path.relative_to(ROOT)}: {match.group()}" for match in FORBIDDEN.finditer(text)]
    assert not found


def test_files_are_of_readable_size():
    """A Python or C++ file past 500 lines is two files."""
    sources = [p for p in tracked_files() if p.suffix in (".py", ".cpp", ".hpp")]
    assert sources
    long = [(str(p.relative_to(ROOT)), n) for p in sources if (n := len(p.read_text().splitlines())) > 500]
    assert not long


def test_package_is_typed_and_has_its_version():
    import octavo

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert octavo.__version__ == project["version"]
    assert (Path(octavo.__file__).parent / "py.typed").is_file()
    assert f"## {project['version']}" in (ROOT / "CHANGELOG.md").read_text()


def test_run_time_dependencies_are_bounded_and_without_torch():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [re.split(r"[<>=!~\[]", requirement)[0] for requirement in project["dependencies"]]
    assert not {"torch", "transformers"} & set(names)
    assert all(">=" in r and "<" in r.replace(">=", "") for r in project["dependencies"])
    assert all("==" in r for r in project["optional-dependencies"]["dev"])


def test_console_script_answers():
    result = subprocess.run([sys.executable, "-m", "octavo", "--help"], capture_output=True, text=True, check=True, timeout=60)
    for command in ("serve", "generate", "chat", "inspect", "pull", "bench"):
        assert command in result.stdout


def test_console_script_is_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module, _, name = project["scripts"]["octavo"].partition(":")
    (script,) = [e for e in metadata.EntryPoints([metadata.EntryPoint("octavo", f"{module}:{name}", "console_scripts")])]
    assert callable(script.load())


def test_documents_name_make_targets_that_exist():
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    for page in pages:
        named = set(re.findall(r"(?:^    |`)make ([a-z][a-z-]*)", page.read_text(), re.MULTILINE))
        assert named <= targets, f"{page.name}: make {named - targets}"


def test_links_between_documents_lead_somewhere():
    broken = []
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md"), *(ROOT / "benchmarks").glob("**/*.md")]:
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert not broken


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_install_without_the_dev_extra_is_small():
    subprocess.run([sys.executable, str(ROOT / "benchmarks" / "install_size.py")], check=True)
