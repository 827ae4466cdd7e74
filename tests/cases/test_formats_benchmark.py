"""The rule by which benchmarks/formats flags a slow format; speeds are made up, but for one run that only has to end."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import formats
from support.gguf_models import make_llama


@pytest.mark.parametrize(
    ("packed", "full", "ratio", "flagged"),
    [(100, 299, "2.99", False), (100, 300, "3.00", False), (100, 301, "3.01", True), (300, 100, "0.33", False)],
)
def test_gg_10_more_than_3_times_slower_is_flagged(
    packed: float, full: float, ratio: str, flagged: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    others = [formats.Comparison("fine", 2, 1)] * 2
    assert formats.report([others[0], formats.Comparison("it", packed, full), others[1]]) is not flagged
    fine, line, _ = capsys.readouterr().out.splitlines()
    assert line.startswith("it: ") and f"= {ratio} " in line
    assert "FLAGGED" not in fine and ("FLAGGED" in line) is flagged


def test_gg_10_speeds_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "TOKENS", 64)
    make_llama(tmp_path / "model.gguf", "Q4_K")
    compared = formats.compare(str(tmp_path / "model.gguf"))
    assert compared.packed > 0 and compared.full > 0
