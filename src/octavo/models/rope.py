"""Rotation frequencies, with the scalings that long-context models state."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.errors import ModelFileError
from octavo.ops.spec import Rope, RopeStyle

F64Array = npt.NDArray[np.float64]


def make_rope(theta: float, rotary_dim: int, scaling: dict[str, Any], style: RopeStyle) -> Rope:
    """Frequencies theta ** (-2j / rotary_dim), then scaled as ``scaling`` (Hugging Face's rope_scaling) says.

    Raises ModelFileError for a kind of scaling that is not supported.
    """
    pairs = np.arange(rotary_dim // 2, dtype=np.float64)
    inv_freq = theta ** (-2.0 * pairs / rotary_dim)
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "linear":
        inv_freq = inv_freq / float(scaling["factor"])
    elif kind == "llama3":
        inv_freq = _llama3(inv_freq, scaling)
    elif kind == "freq_factors":
        inv_freq = inv_freq / np.asarray(scaling["freq_factors"], np.float64)
    elif kind != "default":
        raise ModelFileError(f"rope scaling of type {kind!r}: supported are default, linear and llama3")
    return Rope(tuple(float(f) for f in inv_freq), style)


def _llama3(inv_freq: F64Array, scaling: dict[str, Any]) -> F64Array:
    """Llama 3.1's: low frequencies divided by ``factor``, high ones kept, a linear blend between (its reference model's rule)."""
    factor, low, high = (float(scaling[key]) for key in ("factor", "low_freq_factor", "high_freq_factor"))
    turns = float(scaling["original_max_position_embeddings"]) * inv_freq / (2 * math.pi)
    blend = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return inv_freq * (blend + (1 - blend) / factor)
