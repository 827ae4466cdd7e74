"""Ways to make 8-bit K and V err less in the same bytes. Each is a function of the vector alone and of constants of the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from benchmarks.kv.simulation.formats import FORMATS, Store, dynamic, exact, fitted, fixed, largest_size
from benchmarks.kv.simulation.model import Simulation, StoreKV

E4M3, INT8 = FORMATS["fp8_e4m3"], FORMATS["int8"]


@dataclass
class Calibration:
    """Of each layer, from another text: means and largest sizes of K and V [1, kv_heads, 1, head_dim], and E[q qᵀ] of a KV head's queries.

    The first token is left out: it draws attention for the lack of anything better, and its K is like no other.
    """

    k_mean: dict[int, torch.Tensor] = field(default_factory=dict)
    v_mean: dict[int, torch.Tensor] = field(default_factory=dict)
    k_largest: dict[int, torch.Tensor] = field(default_factory=dict)
    v_largest: dict[int, torch.Tensor] = field(default_factory=dict)
    q_moments: dict[int, torch.Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, simulation: Simulation) -> Calibration:
        """From what the model computes on the simulation's text."""
        found = cls()
        simulation.logprobs(look=found._look)
        return found

    def _look(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        k, v = k[:, :, 1:], v[:, :, 1:]
        self.k_mean[layer], self.v_mean[layer] = k.mean(2, keepdim=True), v.mean(2, keepdim=True)
        self.k_largest[layer], self.v_largest[layer] = k.abs().amax(2, keepdim=True), v.abs().amax(2, keepdim=True)
        queries = q[0].reshape(k.shape[1], -1, q.shape[-1])
        self.q_moments[layer] = queries.transpose(1, 2) @ queries / queries.shape[1]


def hadamard(size: int) -> torch.Tensor:
    """Sylvester's orthogonal matrix [size, size]; size is a power of two."""
    matrix = torch.ones(1, 1)
    while len(matrix) < size:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix / size**0.5


def rotated(store: Store, size: int | None = None) -> Store:
    """In a basis turned by Hadamard matrices, blocks of ``size`` elements or the whole head. As q turns alike, q·k stays what it is."""

    def through(x: torch.Tensor) -> torch.Tensor:
        matrix = hadamard(size or x.shape[-1])
        turned = (x.unflatten(-1, (-1, len(matrix))) @ matrix).flatten(-2)
        return (store(turned).unflatten(-1, (-1, len(matrix))) @ matrix.T).flatten(-2)

    return through


def squared(store: Store) -> Store:
    """The signed square in place of the number: half the range of exponents, and a bit more of precision."""

    def through(x: torch.Tensor) -> torch.Tensor:
        scale = largest_size(x)
        y = store((x / scale).square() * x.sign())
        return y.abs().sqrt() * y.sign() * scale

    return through


def fed_back(x: torch.Tensor, moments: torch.Tensor) -> torch.Tensor:
    """e4m3, an element after the other, each error made good in those to come, as far as E[q qᵀ] says that q·k then stays (Frantar et
    al. 2023, GPTQ, of a vector instead of a weight matrix). x [1, kv_heads, tokens, head_dim], moments [kv_heads, head_dim, head_dim]."""
    size = x.shape[-1]
    damped = moments + 0.01 * moments.diagonal(dim1=-2, dim2=-1).mean(-1)[:, None, None] * torch.eye(size)
    upper = torch.linalg.cholesky(torch.linalg.inv(damped), upper=True)
    scale, left, stored = largest_size(x) / E4M3.largest, x.clone(), torch.empty_like(x)
    for i in range(size):
        now = left[..., i : i + 1]
        stored[..., i : i + 1] = E4M3.round((now / scale).clamp(-E4M3.largest, E4M3.largest)) * scale
        error = (now - stored[..., i : i + 1]) / upper[None, :, i, i, None, None]
        left[..., i:] -= error * upper[None, :, i, None, i:]
    return stored


def power_of_two(scale: torch.Tensor) -> torch.Tensor:
    """The next one up."""
    return scale.log2().ceil().exp2()


@dataclass(frozen=True)
class Variant:
    """One line of the table."""

    name: str
    store: StoreKV
    costs: str
    """Beside what dynamic scales cost."""


def both(k: Store, v: Store) -> StoreKV:
    return lambda layer, key, value: (k(key), v(value))


def less_mean(k: Store, v: Store, means: Calibration, *, of_v: bool = False) -> StoreKV:
    """K (and V) less a constant, which softmax does not see (and V's is added to attention's output)."""

    def store(layer: int, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        k_mean = means.k_mean[layer]
        v_mean = means.v_mean[layer] if of_v else torch.zeros(())
        return k(key - k_mean) + k_mean, v(value - v_mean) + v_mean

    return store


def with_scales(k: Callable[[int], torch.Tensor], v: Callable[[int], torch.Tensor]) -> StoreKV:
    """e4m3 under constant scales: half as much again as the largest that calibration saw."""

    def one(x: torch.Tensor, largest: torch.Tensor) -> torch.Tensor:
        return fixed(E4M3)(x * (E4M3.largest / 1.5 / largest)) * (1.5 * largest / E4M3.largest)

    return lambda layer, key, value: (one(key, k(layer)), one(value, v(layer)))


def all_variants(c: Calibration, own: Calibration) -> list[Variant]:
    """The table's lines. ``own``: calibrated on the very text, a bound for means."""
    e4m3, int8 = dynamic(E4M3), dynamic(INT8)

    def feedback(mean: bool) -> StoreKV:
        def store(layer: int, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            shift = c.k_mean[layer] if mean else torch.zeros(())
            return fed_back(key - shift, c.q_moments[layer]) + shift, e4m3(value)

        return store

    nothing, turn, constant = "nothing", "a fast transform of each k and q", "calibration; a subtraction of each k"
    return [
        Variant("e4m3", both(e4m3, e4m3), nothing),
        Variant("e4m3 of K, V exact", both(e4m3, exact), "-"),
        Variant("e4m3 of V, K exact", both(exact, e4m3), "-"),
        Variant("e4m3, K and q turned by Hadamard", both(rotated(e4m3), e4m3), turn),
        Variant("int8", both(int8, int8), nothing),
        Variant("int8, K and q turned by Hadamard", both(rotated(int8), int8), turn),
        Variant("e4m3, K less its mean", less_mean(e4m3, e4m3, c), constant),
        Variant("e4m3, turned, K less its mean", less_mean(rotated(e4m3), e4m3, c), f"{constant}; {turn}"),
        Variant("e4m3 static, turned", both(rotated(fixed(E4M3)), fixed(E4M3)), f"{turn}; no scales"),
        Variant("int8 of K, e4m3 of V", both(int8, e4m3), "two formats"),
        Variant("int8, K less its mean", less_mean(int8, int8, c), constant),
        Variant("e4m3 of the signed square", both(squared(fixed(E4M3, 1 / E4M3.largest)), e4m3), "a square root of each number read"),
        Variant("e4m3, turned by blocks of 16", both(rotated(e4m3, 16), e4m3), turn),
        Variant("e4m3, K and V less their means", less_mean(e4m3, e4m3, c, of_v=True), "the same, and an addition to the output"),
        Variant("e4m3, K less this text's own mean", less_mean(e4m3, e4m3, own), "not to be had"),
        Variant("e4m3, scale a power of two", both(dynamic(E4M3, power_of_two), dynamic(E4M3, power_of_two)), "less: scales of 1 byte"),
        Variant("e4m3, best of 8 scales", both(fitted(E4M3), fitted(E4M3)), "8 trials of each k and v when it is stored"),
        Variant("e4m3, best of 8 scales, turned", both(rotated(fitted(E4M3)), fitted(E4M3)), f"the same; {turn}"),
        Variant(
            "e4m3, calibrated scale of the layer", with_scales(lambda i: c.k_largest[i].max(), lambda i: c.v_largest[i].max()), "no scales"
        ),
        Variant(
            "e4m3, calibrated scale of the channel", with_scales(c.k_largest.__getitem__, c.v_largest.__getitem__), "a product of each q"
        ),
        Variant("e4m3 of K with error feedback", feedback(False), "calibration; head_dim² / 2 products of each k"),
        Variant("… and less its mean", feedback(True), "the same"),
    ]
