"""The served numbers stay near fp32, as near as another engine's on the same files; with --dtype float32 they are fp32's."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.fidelity import golden, text
from benchmarks.fidelity.score import Bound, Opinion, distance


def test_distance_by_hand() -> None:
    a = Opinion(np.array([-1.0, -2.0, -3.0, -4.0]), np.array([1, 2, 3, 4]))
    b = Opinion(np.array([-1.5, -2.0, -2.9, -4.0]), np.array([1, 2, 9, 4]))
    found = distance(a, b)
    assert found.mean == pytest.approx(0.15)
    assert found.worst == pytest.approx(0.5)
    assert found.agreement == 75.0
    assert Bound(0.14, 76.0).holds(found)  # 1.1 × 0.14 = 0.154, 76 - 1 = 75
    assert not Bound(0.13, 76.0).holds(found)
    assert not Bound(0.14, 76.1).holds(found)


@pytest.mark.slow
@pytest.mark.parametrize("model", list(golden.FILES))
def test_golden_outputs(model: str) -> None:
    assert golden.main([model])


@pytest.mark.slow
@pytest.mark.parametrize("model", list(golden.FILES))
def test_text_past_the_sliding_window(model: str) -> None:
    assert text.main([model])
