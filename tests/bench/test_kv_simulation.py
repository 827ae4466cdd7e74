"""The simulation of 8-bit KV in benchmarks/ against Octavo's own reference, which shares no code with it; and what its ideas promise."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.kv.simulation.formats import FORMATS, dynamic, exact, ways
from benchmarks.kv.simulation.model import distance
from benchmarks.kv.simulation.variants import fed_back, hadamard, rotated, squared
from octavo.ops.kv_format import KVFormat
from octavo.ops.reference import store_vectors


def vectors(seed: int = 0) -> torch.Tensor:
    """[2, 60, 64], of very different lengths, some with an outlier."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(2, 60, 64, generator=generator) * torch.exp(2 * torch.randn(2, 60, 1, generator=generator))
    x[:, ::3, 5] *= 20
    return x


@pytest.mark.parametrize("way", list(ways()))
def test_vectors_are_stored_as_octavo_stores_them(way):
    dtype, scales = way
    x = vectors()
    ours = store_vectors(x.numpy(), KVFormat(dtype, scales or "none")).values
    theirs = ways()[way](x).numpy()
    same = np.isclose(ours, theirs, rtol=1e-6, atol=0).all(-1)
    assert same.mean() > 0.95  # where two scales round a vector about equally well, either may be taken
    errors = [((stored - x.numpy()) ** 2).sum(-1) for stored in (ours, theirs)]
    np.testing.assert_allclose(*errors, rtol=0.01, atol=1e-9)


def test_a_turned_head_keeps_every_product_and_comes_back():
    x, q = vectors(), vectors(1)
    turn = hadamard(64)
    torch.testing.assert_close(turn @ turn.T, torch.eye(64))
    torch.testing.assert_close(((x @ turn) * (q @ turn)).sum(-1), (x * q).sum(-1), rtol=1e-3, atol=1e-2)
    torch.testing.assert_close(rotated(exact)(x), x, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(rotated(exact, 16)(x), x, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(squared(exact)(x), x, rtol=1e-4, atol=1e-4)


def test_turning_spreads_an_outliers_cost_on_int8():
    x = torch.zeros(1, 64)
    x[0, 0], x[0, 1:] = 100.0, 0.3
    plain, turned = ((store(x) - x).square().sum() for store in (dynamic(FORMATS["int8"]), rotated(dynamic(FORMATS["int8"]))))
    assert plain > 5 * turned


def test_error_feedback_serves_the_products_it_is_told_of():
    generator = torch.Generator().manual_seed(3)
    queries = torch.randn(1, 500, 64, generator=generator) @ torch.randn(64, 64, generator=generator)
    x = vectors()[None, :1]
    moments = queries.transpose(1, 2) @ queries / 500

    def cost(stored: torch.Tensor) -> torch.Tensor:
        error = (stored - x)[0, 0] / x[0, 0].norm(dim=-1, keepdim=True)
        return (error @ moments[0] * error).sum()

    assert cost(fed_back(x, moments)) < 0.7 * cost(dynamic(FORMATS["fp8_e4m3"])(x))


def test_distance_by_hand():
    p, q = torch.tensor([[0.5, 0.25, 0.25]]).log(), torch.tensor([[0.25, 0.5, 0.25]]).log()
    found = distance(p, q)
    assert found.kl_mean == pytest.approx(0.25 * np.log(2))
    assert found.top1_agreement == 0
