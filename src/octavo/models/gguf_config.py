"""ModelConfig from a GGUF file's metadata."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from octavo.errors import ModelFileError
from octavo.models.config import ModelConfig
from octavo.ops.spec import Activation, RopeStyle

GEMMA3_FULL_EVERY = 6
"""Every sixth layer of Gemma 3 is a full one; older files do not state it."""
GEMMA3_LOCAL_THETA = 10000.0


class _Fields:
    """Typed access to the keys of one architecture, with errors that name the key."""

    def __init__(self, metadata: Mapping[str, Any], architecture: str) -> None:
        self.metadata, self.architecture = metadata, architecture

    def get(self, key: str, default: Any = None) -> Any:
        return self.metadata.get(f"{self.architecture}.{key}", default)

    def number(self, key: str, default: float | None = None) -> float:
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
            raise ModelFileError(f"GGUF key {self.architecture}.{key} = {value!r}: a number is needed")
        return float(value)

    def size(self, key: str, default: int | None = None, low: int = 1) -> int:
        value = self.number(key, default)
        if value != int(value) or not low <= value < 2**31:
            raise ModelFileError(f"GGUF key {self.architecture}.{key} = {value!r}: it must be an integer from {low}")
        return int(value)


def from_gguf(metadata: Mapping[str, Any], tensor_shape: Callable[[str], tuple[int, ...] | None], freq_factors: Any = None) -> ModelConfig:
    """The config that a GGUF header states.

    ``tensor_shape`` gives a tensor's shape ([out, in]) or None: some facts are only there. ``freq_factors`` are the values of
    "rope_freqs.weight", where the file has it. Raises ModelFileError naming the key.
    """
    architecture = metadata.get("general.architecture")
    if architecture not in ("llama", "qwen2", "qwen3", "gemma3"):
        raise ModelFileError(f"GGUF architecture {architecture!r} is not supported; supported are llama, qwen2, qwen3, gemma3")
    fields = _Fields(metadata, architecture)
    hidden, heads, layers = (fields.size(k) for k in ("embedding_length", "attention.head_count", "block_count"))
    embedding = tensor_shape("token_embd.weight")
    if embedding is None:
        raise ModelFileError("tensor token_embd.weight is missing")
    head_dim = fields.size("attention.key_length", hidden // heads)
    eos = metadata.get("tokenizer.ggml.eos_token_id")
    return ModelConfig(
        architecture=architecture,
        vocab_size=embedding[0],
        hidden_size=hidden,
        intermediate_size=fields.size("feed_forward_length"),
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=fields.size("attention.head_count_kv", heads),
        head_dim=head_dim,
        rms_norm_eps=fields.number("attention.layer_norm_rms_epsilon"),
        max_position_embeddings=fields.size("context_length"),
        activation=Activation.GELU_TANH if architecture == "gemma3" else Activation.SILU,
        tie_word_embeddings=tensor_shape("output.weight") is None,
        attention_bias=tensor_shape("blk.0.attn_q.bias") is not None,
        output_bias=tensor_shape("blk.0.attn_output.bias") is not None,
        qk_norm=tensor_shape("blk.0.attn_q_norm.weight") is not None,
        rope_theta=fields.number("rope.freq_base", 10000.0),
        rope_scaling=_rope_scaling(fields, freq_factors),
        rope_style=RopeStyle.INTERLEAVED if architecture == "llama" else RopeStyle.HALF,
        rotary_dim=fields.size("rope.dimension_count", head_dim),
        bos_token_id=metadata.get("tokenizer.ggml.bos_token_id"),
        eos_token_ids=() if eos is None else (int(eos),),
        **(_gemma3(fields, hidden, layers) if architecture == "gemma3" else {}),
    )


def _rope_scaling(fields: _Fields, freq_factors: Any) -> dict[str, Any]:
    if freq_factors is not None:
        return {"rope_type": "freq_factors", "freq_factors": tuple(float(f) for f in freq_factors)}
    kind = fields.get("rope.scaling.type", "none")
    if kind == "none":
        return {}
    return {"rope_type": kind, "factor": fields.number("rope.scaling.factor")}


def _gemma3(fields: _Fields, hidden: int, layers: int) -> dict[str, Any]:
    every = fields.size("attention.sliding_window_pattern", GEMMA3_FULL_EVERY)
    return {
        "embedding_scale": float(hidden) ** 0.5,
        "sliding_window": fields.size("attention.sliding_window"),
        "sliding_layers": tuple((i + 1) % every != 0 for i in range(layers)),
        "local_rope_theta": fields.number("rope.freq_base_swa", GEMMA3_LOCAL_THETA),
        "logits_softcap": fields.number("final_logit_softcapping", 0.0),
        "attention_softcap": fields.number("attn_logit_softcapping", 0.0),
    }
