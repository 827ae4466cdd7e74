"""Any stored format to fp32: the oracle that packing and kernels are tested against."""

from __future__ import annotations

import numpy as np

from octavo.weights.formats import F32Array, Weight


def dequantize(weight: Weight) -> F32Array:
    """A weight's values in fp32, of its shape. Quantized blocks are decoded by the `gguf` package."""
    name = weight.format.name
    if name == "F32":
        values = weight.data.view(np.float32)
    elif name == "F16":
        values = weight.data.view(np.float16).astype(np.float32)
    elif name == "BF16":
        values = (weight.data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    else:
        from gguf.constants import GGMLQuantizationType  # Slow to import, and a packed model runs without it.
        from gguf.quants import dequantize as decode

        values = decode(weight.data, GGMLQuantizationType[name])
    return values.reshape(weight.shape)
