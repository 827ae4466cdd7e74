"""How K and V are stored: the number type, and of 8-bit types whose scale a number is multiplied with."""

from __future__ import annotations

from dataclasses import dataclass

NUMBER_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "fp8_e4m3": 1, "fp8_e5m2": 1, "int8": 1}
"""Bytes of a number of each type."""
OWN_SCALE_BYTES = 2
"""Of the bf16 scale that each vector has under "dynamic" and "guarded"."""


@dataclass(frozen=True)
class KVFormat:
    """A vector is one token's K, or V, of one head; ``scales`` says what its codes are multiplied with."""

    dtype: str
    """"bf16", "fp16", "fp32", "fp8_e4m3", "fp8_e5m2" or "int8"."""
    scales: str = "none"
    """"none" of the wide types. "static": the layer's scale. "dynamic": the vector's own. "guarded": the layer's, or the vector's own
    where the layer's clips or errs too much (the drift guard, csrc/kernels/kv_write.hpp)."""
    layer_scales: tuple[tuple[float, float], ...] = ()
    """K's and V's scale of each of the model's layers; (): all 1."""
    bf16_products: bool = False
    """Attention multiplies in bf16, which holds the numbers of "bf16" and of 8-bit types exactly, and adds in fp32. q times its scale is
    rounded to bf16, and so are the weights exp(score - largest), by splits of 128 positions, each against its own largest, times V's scale
    where there are scales. Their sum is of the rounded ones without scales, of exact ones with."""

    def of_layer(self, index: int) -> tuple[float, float]:
        """K's and V's scale of a layer."""
        return self.layer_scales[index] if self.layer_scales else (1.0, 1.0)

    def vector_bytes(self, head_dim: int) -> int:
        """Bytes of a vector, its scale included."""
        return head_dim * NUMBER_BYTES[self.dtype] + (OWN_SCALE_BYTES if self.scales in ("dynamic", "guarded") else 0)
