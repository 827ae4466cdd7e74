"""A model's shape, the same whether it came from a GGUF header or from a Hugging Face config.json."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from octavo.errors import ModelFileError
from octavo.ops.spec import Activation, RopeStyle


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Hyperparameters of a decoder; see octavo.models.hf_config and octavo.models.gguf_config for where they come from.

    Raises:
        ModelFileError: on construction, if they do not fit together.
    """

    architecture: str
    """Key of the registry: "llama", "mistral", "qwen2", "qwen3", "gemma3"."""
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    max_position_embeddings: int
    activation: Activation = Activation.SILU
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    output_bias: bool = False
    qk_norm: bool = False
    rope_theta: float = 10000.0
    rope_scaling: dict[str, Any] = field(default_factory=dict)
    """HF's rope_scaling, e.g. {"rope_type": "llama3", "factor": 8.0, …}; "freq_factors" when the file lists them."""
    rope_style: RopeStyle = RopeStyle.HALF
    rotary_dim: int | None = None
    attention_scale: float | None = None
    """Multiplies q·k; None: head_dim ** -0.5."""
    attention_softcap: float = 0.0
    logits_softcap: float = 0.0
    embedding_scale: float = 1.0
    sliding_window: int = 0
    sliding_layers: tuple[bool, ...] = ()
    """Per layer: whether it sees only the window; empty: all full."""
    local_rope_theta: float | None = None
    """Rope base of the sliding layers, where it differs."""
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            raise ModelFileError(f"{self.num_heads} attention heads cannot share {self.num_kv_heads} KV heads evenly")
        rotary = self.head_dim if self.rotary_dim is None else self.rotary_dim
        if rotary % 2 or not 2 <= rotary <= self.head_dim:
            raise ModelFileError(f"{rotary} rotated dimensions of a head of {self.head_dim}: an even number, at most all, is needed")
        if self.sliding_layers and len(self.sliding_layers) != self.num_layers:
            raise ModelFileError(f"{len(self.sliding_layers)} kinds of attention are listed for {self.num_layers} layers")
        for name in ("rms_norm_eps", "rope_theta", "local_rope_theta", "attention_scale", "embedding_scale"):
            value = getattr(self, name)
            if value is not None and not (0 < value < math.inf):
                raise ModelFileError(f"{name} = {value}: a positive number is needed")
