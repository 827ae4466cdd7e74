"""A model's shape, the same whether it came from a GGUF header or from a Hugging Face config.json."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from octavo.ops.spec import Activation, RopeStyle


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Hyperparameters of a decoder; see octavo.models.hf_config and octavo.models.gguf_config for where they come from."""

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
