"""Small random models of each architecture, made with transformers and saved as Hugging Face folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

VOCAB = 160

COMMON: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 512,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "initializer_range": 0.3,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {"tie_word_embeddings": False}),
    "llama-mha-bias": ("Llama", {"num_key_value_heads": 4, "attention_bias": True, "tie_word_embeddings": True}),
    "llama3-rope": ("Llama", {"rope_parameters": LLAMA3_ROPE, "tie_word_embeddings": True}),
    "llama-linear-rope": ("Llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}}),
    "mistral": ("Mistral", {"sliding_window": 16}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3", {"tie_word_embeddings": False}),
    "gemma3": (
        "Gemma3Text",
        {
            "sliding_window": 16,
            "query_pre_attn_scalar": 24,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "attn_logit_softcapping": 20.0,
            "final_logit_softcapping": 15.0,
        },
    ),
}
"""Name → (transformers' config class without "Config", what differs from COMMON)."""


def make(variant: str, folder: Path, seed: int = 0, dtype: str = "float32", **others: Any) -> Any:
    """Save the variant to ``folder`` and return transformers' own model, in fp32 and eval mode. Norms and biases are random too.

    ``others`` go into the config.
    """
    import torch
    import transformers

    kind, changes = VARIANTS[variant]
    if "attn_logit_softcapping" in changes:
        honour_attention_softcap()
    config = getattr(transformers, f"{kind}Config")(**(COMMON | changes | others))
    torch.manual_seed(seed)
    name = kind.removesuffix("Text") + "ForCausalLM"
    model = getattr(transformers, name)._from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.normal_(0.0 if kind.startswith("Gemma") else 1.0, 0.2)
    model.to(getattr(torch, dtype)).save_pretrained(folder)
    return model.float()


def honour_attention_softcap() -> None:
    """transformers' Gemma 3 reads attn_logit_softcapping but does not hand it to its attention; make it do so, for the whole process."""
    from transformers.models.gemma3 import modeling_gemma3

    plain = modeling_gemma3.eager_attention_forward
    if getattr(plain, "honours_softcap", False):
        return

    def capped(module: Any, *args: Any, **kwargs: Any) -> Any:
        return plain(module, *args, **(kwargs | {"softcap": module.attn_logit_softcapping}))

    capped.honours_softcap = True  # type: ignore[attr-defined]
    modeling_gemma3.eager_attention_forward = capped
