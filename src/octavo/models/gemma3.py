"""Gemma 3 (text): norms before and after each half of a layer, local layers with a sliding window and a rope base of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from octavo.models.decoder import Decoder, LayerParameters
from octavo.ops.spec import Ops

T = TypeVar("T")


class Gemma3(Decoder):
    """Gemma Team 2025, Gemma 3 Technical Report. Norm weights are stored as their distance from 1 in Hugging Face files."""

    norm_offset = 1.0
    hf_mlp_norm = "pre_feedforward_layernorm"

    def layer(self, ops: Ops[T], x: T, index: int) -> T:
        """One layer; each half's output is normed before it is added."""
        p, eps = self.layers[index], self.config.rms_norm_eps
        assert p.attention_out_norm is not None
        assert p.mlp_out_norm is not None
        h = self.attention(ops, ops.rms_norm(x, p.input_norm, eps), index)
        x = ops.add(x, ops.rms_norm(h, p.attention_out_norm, eps))
        h = self.mlp(ops, ops.rms_norm(x, p.mlp_norm, eps), index)
        return ops.add(x, ops.rms_norm(h, p.mlp_out_norm, eps))

    def layer_parameters(self, i: int) -> LayerParameters:
        size = self.config.hidden_size
        return replace(
            super().layer_parameters(i),
            attention_out_norm=self._layer_norm(i, "attention_out_norm", size, "post_attention_norm", "post_attention_layernorm"),
            mlp_out_norm=self._layer_norm(i, "mlp_out_norm", size, "post_ffw_norm", "post_feedforward_layernorm"),
        )
