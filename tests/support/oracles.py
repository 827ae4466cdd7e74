"""transformers' models on the weights that a GGUF file dequantizes to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from octavo.models.config import ModelConfig
from octavo.models.registry import build
from octavo.ops.spec import Activation, RopeStyle
from octavo.runner.loading import read_config
from octavo.weights.dequantize import dequantize
from octavo.weights.source import open_source


def hf_config(config: ModelConfig) -> Any:
    import transformers

    common = {
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "rms_norm_eps": config.rms_norm_eps,
        "max_position_embeddings": config.max_position_embeddings,
        "tie_word_embeddings": config.tie_word_embeddings,
    }
    if config.architecture == "llama":
        assert config.activation == Activation.SILU
        return transformers.LlamaConfig(**common, rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta})
    assert config.architecture == "gemma3"
    kinds = ["sliding_attention" if sliding else "full_attention" for sliding in config.sliding_layers]
    ropes = {
        "full_attention": {"rope_type": "default", "rope_theta": config.rope_theta},
        "sliding_attention": {"rope_type": "default", "rope_theta": config.local_rope_theta},
    }
    return transformers.Gemma3TextConfig(
        **common, layer_types=kinds, sliding_window=config.sliding_window, query_pre_attn_scalar=config.head_dim, rope_parameters=ropes
    )


def transformers_model(path: Path) -> Any:
    """In fp32 and eval mode; GGUF's own conventions (permuted heads, norms with their 1 added) undone by hand."""
    import torch
    import transformers

    source = open_source(path)
    config = read_config(source)
    state = {}
    for p in build(config).parameters():
        values = dequantize(source.weight(p.gguf, p.name)).astype(np.float32)
        if config.rope_style == RopeStyle.INTERLEAVED and p.name.endswith(("attn.q", "attn.k")):
            values = values.reshape(-1, config.head_dim // 2, 2, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
        state[p.hf] = torch.from_numpy(np.ascontiguousarray(values - np.float32(p.offset)))
    source.close()
    kind = {"llama": transformers.LlamaForCausalLM, "gemma3": transformers.Gemma3ForCausalLM}[config.architecture]
    model = kind._from_config(hf_config(config), attn_implementation="eager").eval()
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}
    model.tie_weights()
    return model
