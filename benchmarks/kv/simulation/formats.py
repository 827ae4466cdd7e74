"""8-bit numbers and their scales, in torch: what a vector (one token's K, or V, of one head) is after it was stored and read again.

Every function maps vectors [..., head_dim] to vectors of that shape.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

Store = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Format:
    """A number type: how numbers up to its largest are rounded, and what a vector's own scale and the guard go by."""

    tops: tuple[float, ...]
    """Where a vector's largest number may be put: at the type's own, and for floats at numbers with each of the other fractions."""
    round: Store
    bound: float
    """Root of the mean square of a vector's error over that of the vector; past it the layer's scale does not fit."""

    @property
    def largest(self) -> float:
        """The type's largest number."""
        return self.tops[0]


FORMATS = {
    "fp8_e4m3": Format((448, 416, 384, 352, 320, 288, 256, 240), lambda x: x.to(torch.float8_e4m3fn).float(), 1 / 32),
    "fp8_e5m2": Format((57344, 49152, 40960, 32768), lambda x: x.to(torch.float8_e5m2).float(), 1 / 16),
    "int8": Format((127,), torch.round, 1 / 64),
}


def exact(x: torch.Tensor) -> torch.Tensor:
    """As it is."""
    return x


def bf16(x: torch.Tensor) -> torch.Tensor:
    """Rounded to bfloat16."""
    return x.bfloat16().float()


def largest_size(x: torch.Tensor) -> torch.Tensor:
    """Largest |x| of each vector, [..., 1]."""
    return x.abs().amax(-1, keepdim=True).clamp(min=1e-30)


def fixed(format: Format, scale: float = 1.0) -> Store:
    """All vectors with one scale; what is beyond the largest number is held there."""
    return lambda x: format.round((x / scale).clamp(-format.largest, format.largest)) * scale


def dynamic(format: Format, round_scale: Store = bf16) -> Store:
    """Each vector with a scale of its own, which puts its largest number at the type's largest."""
    return lambda x: _over(format, x, round_scale(largest_size(x) / format.largest))


def fitted(format: Format) -> Store:
    """The same, but its largest number is put at the one of ``tops`` that makes the vector err least."""

    def store(x: torch.Tensor) -> torch.Tensor:
        stored = torch.stack([_over(format, x, bf16(largest_size(x) / top)) for top in format.tops])
        best = (stored - x).square().sum(-1, keepdim=True).argmin(0, keepdim=True)
        return stored.gather(0, best.expand(1, *x.shape))[0]

    return store


def _over(format: Format, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return format.round((x / scale).clamp(-format.largest, format.largest)) * scale


def guarded(format: Format) -> Store:
    """Scale 1, but a scale of its own for a vector that this clips, or that errs by more than the bound."""

    def store(x: torch.Tensor) -> torch.Tensor:
        plain = fixed(format)(x)
        clips = (x.abs() > format.largest).any(-1, keepdim=True)
        errs = (plain - x).square().sum(-1, keepdim=True) > format.bound**2 * x.square().sum(-1, keepdim=True)
        return torch.where(clips | errs, fitted(format)(x), plain)

    return store


def ways() -> dict[tuple[str, str | None], Store]:
    """Every KV dtype and scale mode of the engine."""
    found: dict[tuple[str, str | None], Store] = {("bf16", None): bf16, ("fp16", None): lambda x: x.half().float()}
    for name, format in FORMATS.items():
        found |= {(name, "static"): fixed(format), (name, "dynamic"): fitted(format), (name, "guarded"): guarded(format)}
    return found
