"""Scales of 8-bit K and V that a checkpoint brings along, one a layer for each. What is stored, times the scale, is the value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from octavo.errors import ModelFileError
from octavo.weights.dequantize import dequantize
from octavo.weights.source import WeightSource

_LEAST, _MOST = 2.0**-40, 2.0**40
_NAMES = {
    "k": ("attn.k_scale", "k_scale", "k_proj.k_scale", "qkv_proj.k_scale", "k_proj.output_scale", "kv_scale"),
    "v": ("attn.v_scale", "v_scale", "v_proj.v_scale", "qkv_proj.v_scale", "v_proj.output_scale", "kv_scale"),
}
"""Where checkpoints have them, below model.layers.N.self_attn: vLLM's own place and the ones it reads, those of NVIDIA's Model Optimizer,
of llm-compressor, and the older kv_scale that K and V share."""


@dataclass(frozen=True)
class KVScales:
    """By layer; None where the checkpoint has none."""

    k: tuple[float | None, ...]
    v: tuple[float | None, ...]

    def pairs(self) -> tuple[tuple[float, float], ...]:
        """K's and V's scale of each layer, 1 where there is none; () if there is none at all."""
        if not any(scale is not None for scale in (*self.k, *self.v)):
            return ()
        return tuple((1.0 if k is None else k, 1.0 if v is None else v) for k, v in zip(self.k, self.v, strict=True))

    def missing(self) -> list[int]:
        """Layers that lack K's scale or V's."""
        return [layer for layer, pair in enumerate(zip(self.k, self.v, strict=True)) if None in pair]


def read_kv_scales(source: WeightSource, num_layers: int) -> KVScales:
    """What ``source`` has. Raises ModelFileError for a scale that is not one positive number."""
    present = set(source.names()) if source.kind == "hf" else set()
    k, v = (tuple(_first(source, _candidates(part, layer, present)) for layer in range(num_layers)) for part in ("k", "v"))
    return KVScales(k, v)


def _candidates(part: str, layer: int, present: set[str]) -> Iterator[str]:
    for name in _NAMES[part]:
        if (full := f"model.layers.{layer}.self_attn.{name}") in present:
            yield full


def _first(source: WeightSource, names: Iterator[str]) -> float | None:
    name = next(names, None)
    if name is None:
        return None
    values = dequantize(source.weight(name, name)).reshape(-1)
    if len(values) != 1 or not _LEAST <= values[0] <= _MOST:
        found = f"{len(values)} numbers" if len(values) != 1 else f"{values[0]}"
        raise ModelFileError(f"{source.path}: tensor {name!r} is {found}: a KV scale is one number of 2^-40 to 2^40")
    return float(values[0])
