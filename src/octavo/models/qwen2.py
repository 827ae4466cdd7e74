"""Qwen2 and Qwen2.5: Llama's layer with biases on q, k and v."""

from __future__ import annotations

from octavo.models.decoder import Decoder


class Qwen2(Decoder):
    """Yang et al. 2024, Qwen2 Technical Report. The biases follow from ModelConfig.attention_bias."""
