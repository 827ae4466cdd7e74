"""Mistral: Llama's layer; version 0.1 sees a sliding window in every layer."""

from __future__ import annotations

from octavo.models.decoder import Decoder


class Mistral(Decoder):
    """Jiang et al. 2023, Mistral 7B."""
