"""ModelConfig from a Hugging Face config.json (of transformers 4 or 5) and generation_config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octavo.errors import ModelFileError
from octavo.models.config import ModelConfig
from octavo.ops.spec import Activation

ARCHITECTURES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "Gemma3ForCausalLM": "gemma3",
}
ACTIVATIONS = {"silu": Activation.SILU, "swish": Activation.SILU, "gelu_pytorch_tanh": Activation.GELU_TANH}


def from_hf(config: Mapping[str, Any]) -> ModelConfig:
    """The config that config.json states (``generation_config`` may stand inside it). Raises ModelFileError naming the field."""
    names = config.get("architectures") or ["(none)"]
    if (architecture := ARCHITECTURES.get(names[0])) is None:
        raise ModelFileError(f"config.json: architecture {names[0]!r} is not supported; supported are {', '.join(ARCHITECTURES)}")
    if config.get("mlp_bias"):
        raise ModelFileError("config.json: mlp_bias = true: feed-forward biases are not supported")
    hidden, heads, layers = (_size(config, k) for k in ("hidden_size", "num_attention_heads", "num_hidden_layers"))
    window = config.get("sliding_window") or 0
    return ModelConfig(
        architecture=architecture,
        vocab_size=_size(config, "vocab_size"),
        hidden_size=hidden,
        intermediate_size=_size(config, "intermediate_size"),
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=_size(config, "num_key_value_heads", heads),
        head_dim=_size(config, "head_dim", hidden // heads),
        rms_norm_eps=float(config.get("rms_norm_eps", 1e-6)),
        max_position_embeddings=_size(config, "max_position_embeddings", 2048),
        activation=_activation(config),
        tie_word_embeddings=bool(config.get("tie_word_embeddings", architecture == "gemma3")),
        attention_bias=bool(config.get("attention_bias", False)) or architecture == "qwen2",
        output_bias=bool(config.get("attention_bias", False)) and architecture != "qwen2",
        qk_norm=architecture in ("qwen3", "gemma3"),
        sliding_window=int(window),
        sliding_layers=_sliding_layers(config, architecture, layers, int(window)),
        bos_token_id=config.get("bos_token_id"),
        eos_token_ids=_eos(config),
        **_rope(config, architecture),
        **(_gemma3(config, hidden) if architecture == "gemma3" else {}),
    )


def _size(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = config.get(key)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**31:
        raise ModelFileError(f"config.json: {key} = {value!r}: a positive integer is needed")
    return value


def _activation(config: Mapping[str, Any]) -> Activation:
    name = config.get("hidden_activation") or config.get("hidden_act") or "silu"
    if name not in ACTIVATIONS:
        raise ModelFileError(f"config.json: hidden_act = {name!r}: supported are {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def _sliding_layers(config: Mapping[str, Any], architecture: str, layers: int, window: int) -> tuple[bool, ...]:
    if not window or config.get("use_sliding_window") is False:
        return ()
    if (types := config.get("layer_types")) is not None:
        return tuple(t == "sliding_attention" for t in types)
    if architecture == "gemma3":
        every = _size(config, "sliding_window_pattern", 6)
        return tuple((i + 1) % every != 0 for i in range(layers))
    if architecture in ("qwen2", "qwen3"):
        first = config.get("max_window_layers", layers)
        return tuple(i >= first for i in range(layers))
    return (True,) * layers


def _rope(config: Mapping[str, Any], architecture: str) -> dict[str, Any]:
    """transformers 5 writes rope_parameters (Gemma 3's per kind of layer), transformers 4 rope_theta and rope_scaling."""
    parameters = dict(config.get("rope_parameters") or {})
    local = dict(parameters.get("sliding_attention") or {})
    scaling = dict(parameters.get("full_attention") or parameters or config.get("rope_scaling") or {})
    theta = scaling.pop("rope_theta", None) or config.get("rope_theta") or 10000.0
    found: dict[str, Any] = {"rope_theta": float(theta), "rope_scaling": scaling}
    if architecture == "gemma3":
        found["local_rope_theta"] = float(local.get("rope_theta") or config.get("rope_local_base_freq") or 10000.0)
    return found


def _eos(config: Mapping[str, Any]) -> tuple[int, ...]:
    """End-of-sequence ids of config.json and generation_config.json together, each once."""
    found: list[int] = []
    for source in (config, config.get("generation_config") or {}):
        value = source.get("eos_token_id")
        found += value if isinstance(value, list) else [] if value is None else [value]
    return tuple(dict.fromkeys(found))


def _gemma3(config: Mapping[str, Any], hidden: int) -> dict[str, Any]:
    return {
        "embedding_scale": float(hidden) ** 0.5,
        "attention_scale": float(config.get("query_pre_attn_scalar") or config.get("head_dim", 256)) ** -0.5,
        "attention_softcap": float(config.get("attn_logit_softcapping") or 0.0),
        "logits_softcap": float(config.get("final_logit_softcapping") or 0.0),
    }
