"""Architectures by name."""

from __future__ import annotations

from octavo.errors import ModelFileError
from octavo.models.config import ModelConfig
from octavo.models.decoder import Decoder
from octavo.models.gemma3 import Gemma3
from octavo.models.llama import Llama
from octavo.models.mistral import Mistral
from octavo.models.qwen2 import Qwen2
from octavo.models.qwen3 import Qwen3

ARCHITECTURES: dict[str, type[Decoder]] = {
    "llama": Llama,
    "mistral": Mistral,
    "qwen2": Qwen2,
    "qwen3": Qwen3,
    "gemma3": Gemma3,
}


def build(config: ModelConfig) -> Decoder:
    """The model of a config. Raises ModelFileError for an architecture that Octavo does not have."""
    if (found := ARCHITECTURES.get(config.architecture)) is None:
        raise ModelFileError(f"architecture {config.architecture!r} is not supported; supported are {', '.join(ARCHITECTURES)}")
    return found(config)
