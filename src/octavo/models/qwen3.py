"""Qwen3: Llama's layer with a norm over each head's q and k in place of Qwen2's biases."""

from __future__ import annotations

from octavo.models.decoder import Decoder


class Qwen3(Decoder):
    """Yang et al. 2025, Qwen3 Technical Report. The norms follow from ModelConfig.qk_norm."""
