"""Llama 2 and 3 (and SmolLM2, which is one): pre-norm, rotary positions, grouped heads, SiLU-gated feed-forward."""

from __future__ import annotations

from octavo.models.decoder import Decoder


class Llama(Decoder):
    """Touvron et al. 2023, LLaMA; Grattafiori et al. 2024, The Llama 3 Herd of Models."""
