"""The same GGUF file in transformers, in fp32: config made from the header, weights dequantized by the gguf package. No Octavo code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gguf import GGUFReader, dequantize
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM

F32Array = npt.NDArray[np.float32]

TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "post_ffw_norm": "post_feedforward_layernorm",
}
"""Middle of a tensor's name, GGUF to transformers. ``ffn_norm`` depends on the architecture."""


def load(path: Path) -> torch.nn.Module:
    """The model, ready to run. Raises ValueError for an architecture other than llama and gemma3."""
    reader = GGUFReader(path)
    architecture = str(reader.fields["general.architecture"].contents())
    header = {key.removeprefix(f"{architecture}."): f.contents() for key, f in reader.fields.items() if key.startswith(f"{architecture}.")}
    vocab_size = next(int(t.shape[1]) for t in reader.tensors if t.name == "token_embd.weight")
    if architecture == "llama":
        model: torch.nn.Module = LlamaForCausalLM(_llama_config(header, vocab_size))
    elif architecture == "gemma3":
        model = Gemma3ForCausalLM(_gemma3_config(header, vocab_size))
    else:
        raise ValueError(f"{path}: architecture {architecture}: this reference knows llama and gemma3")
    state = {_hf_name(t.name, architecture): torch.from_numpy(_values(t, architecture, header)) for t in reader.tensors}
    state.setdefault("lm_head.weight", state["model.embed_tokens.weight"])
    model.load_state_dict(state, strict=True)
    return model.eval()


def logprobs(model: torch.nn.Module, token_ids: list[int]) -> F32Array:
    """Log-softmax of the logits after each token: [tokens, vocab]."""
    with torch.inference_mode():
        logits = model(torch.tensor([token_ids])).logits[0]
    return torch.log_softmax(logits, -1).numpy()


def _common(header: dict[str, Any], vocab_size: int) -> dict[str, Any]:
    return {
        "vocab_size": vocab_size,
        "hidden_size": header["embedding_length"],
        "intermediate_size": header["feed_forward_length"],
        "num_hidden_layers": header["block_count"],
        "num_attention_heads": header["attention.head_count"],
        "num_key_value_heads": header["attention.head_count_kv"],
        "max_position_embeddings": header["context_length"],
        "rms_norm_eps": header["attention.layer_norm_rms_epsilon"],
        "tie_word_embeddings": True,
        "attn_implementation": "eager",
    }


def _llama_config(header: dict[str, Any], vocab_size: int) -> LlamaConfig:
    rope = {"rope_type": "default", "rope_theta": header["rope.freq_base"]}
    return LlamaConfig(**_common(header, vocab_size), rope_parameters=rope)


def _gemma3_config(header: dict[str, Any], vocab_size: int) -> Gemma3TextConfig:
    """Every sixth layer sees everything, the others a window, with a rope base of their own (Gemma 3 technical report, section 2)."""
    rope = {
        "full_attention": {"rope_type": "default", "rope_theta": header["rope.freq_base"]},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
    }
    types = ["full_attention" if (i + 1) % 6 == 0 else "sliding_attention" for i in range(header["block_count"])]
    return Gemma3TextConfig(
        **_common(header, vocab_size),
        head_dim=header["attention.key_length"],
        query_pre_attn_scalar=header["attention.key_length"],
        sliding_window=header["attention.sliding_window"],
        layer_types=types,
        rope_parameters=rope,
    )


def _hf_name(name: str, architecture: str) -> str:
    if not name.startswith("blk."):
        return TOP_NAMES[name]
    _, layer, middle, suffix = name.split(".")
    if middle == "ffn_norm":
        middle = "post_attention_layernorm" if architecture == "llama" else "pre_feedforward_layernorm"
    else:
        middle = LAYER_NAMES[middle]
    return f"model.layers.{layer}.{middle}.{suffix}"


def _values(tensor: Any, architecture: str, header: dict[str, Any]) -> F32Array:
    """The tensor in fp32, as transformers orders it."""
    values = np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
    if architecture == "llama" and ".attn_q." in tensor.name:
        return _halves(values, header["attention.head_count"])
    if architecture == "llama" and ".attn_k." in tensor.name:
        return _halves(values, header["attention.head_count_kv"])
    if architecture == "gemma3" and "norm" in tensor.name:
        return values - 1  # transformers multiplies by 1 + weight
    return values


def _halves(values: F32Array, heads: int) -> F32Array:
    """Rows of each head from interleaved rope pairs (0, 1), (2, 3), … to halves (0, n/2), (1, n/2 + 1), …"""
    rows, columns = values.shape
    pairs = values.reshape(heads, rows // heads // 2, 2, columns)
    return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(rows, columns))
