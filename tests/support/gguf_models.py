"""Small random Llama models as GGUF files of one weight format, with transformers' model on the weights before they were quantized.

The gguf package writes the files and quantizes what it can; K-quants, which it only reads, are packed here by the layouts of the GGUF
specification: plainly, each group's range cut evenly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

VOCAB = 160
HIDDEN, HEADS, KV_HEADS, HEAD_DIM, LAYERS, CONTEXT = 256, 4, 2, 64, 2, 128
GAIN = 0.7
"""Of a matrix: the size of its outputs over that of its inputs."""

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""transformers' names of Llama's tensors → GGUF's."""


def make_llama(path: Path, kind: str, change: Callable[[dict[str, np.ndarray]], None] | None = None) -> Any:
    """Write ``path`` with all matrices stored as ``kind`` and return transformers' model, in fp32 on the unquantized weights.

    The embedding has unit size and a layer adds somewhat less to it, as in trained models: so 4 bits a weight leave most of the logits.
    ``change`` may alter the weights, by transformers' names, in place, before the file is written.
    """
    import torch
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        max_position_embeddings=CONTEXT,
        initializer_range=GAIN / HIDDEN**0.5,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM._from_config(config, attn_implementation="eager").eval()
    state = {name: values.numpy() for name, values in model.state_dict().items()}
    state["model.embed_tokens.weight"] *= HIDDEN**0.5 / GAIN
    if change is not None:
        change(state)
    write_llama(path, state, kind)
    return model


def write_llama(path: Path, state: Mapping[str, np.ndarray], kind: str) -> None:
    """A GGUF file of Llama's weights, given under transformers' names; vectors are stored as F32."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(2 * HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    for name, values in state.items():
        data, stored = (values, "F32") if values.ndim == 1 else (_quantized(_permuted(name, values), kind), kind)
        writer.add_tensor(_gguf_name(name), data, raw_dtype=gguf.GGMLQuantizationType[stored])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _gguf_name(name: str) -> str:
    stem = name.removesuffix(".weight")
    if stem in NAMES:
        return f"{NAMES[stem]}.weight"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{NAMES[part]}.weight"


def _permuted(name: str, values: np.ndarray) -> np.ndarray:
    """Rows of q and k as llama.cpp's converter orders them: the two halves of a head interleaved."""
    if "q_proj" not in name and "k_proj" not in name:
        return values
    return values.reshape(-1, 2, HEAD_DIM // 2, values.shape[1]).swapaxes(1, 2).reshape(values.shape)


def _quantized(values: np.ndarray, kind: str) -> np.ndarray:
    """Bytes [rows, row_bytes]."""
    pack = {"Q4_K": to_q4_k, "Q6_K": to_q6_k}.get(kind)
    if pack is not None:
        return pack(values)
    return gguf.quants.quantize(values, gguf.GGMLQuantizationType[kind])


def to_q4_k(values: np.ndarray) -> np.ndarray:
    """Of 256 weights: fp16 d and dmin, eight 6-bit scales and minima in 12 bytes, 4-bit codes; w = d · scale · code - dmin · minimum."""
    x = values.reshape(-1, 8, 32)
    low = np.minimum(x.min(-1), 0)
    d, scale = _six_bits((x.max(-1) - low) / 15)
    dmin, minimum = _six_bits(-low)
    step = d.astype(np.float32) * scale
    offset = dmin.astype(np.float32) * minimum
    codes = _codes((x + offset[..., None]), step, 0, 15).reshape(-1, 4, 2, 32)
    first, second = slice(0, 4), slice(4, 8)
    coded = [scale[:, first] | scale[:, second] >> 4 << 6, minimum[:, first] | minimum[:, second] >> 4 << 6]
    coded.append(scale[:, second] & 15 | (minimum[:, second] & 15) << 4)
    quants = (codes[:, :, 0] | codes[:, :, 1] << 4).reshape(-1, 128)
    return np.hstack([d.view(np.uint8), dmin.view(np.uint8), *coded, quants]).reshape(len(values), -1)


def to_q6_k(values: np.ndarray) -> np.ndarray:
    """Of 256 weights: low 4 bits and high 2 bits of the codes, sixteen int8 scales, fp16 d; w = d · scale · (code - 32)."""
    x = values.reshape(-1, 16, 16)
    wanted = np.abs(x).max(-1) / 31
    d = (wanted.max(-1, keepdims=True) / 127).astype(np.float16)
    scale = np.rint(wanted / d.astype(np.float32)).astype(np.int8)
    codes = _codes(x, d.astype(np.float32) * scale, -32, 31, zero=32).reshape(-1, 2, 4, 32)  # in each half: four rows of 32
    low = np.concatenate([codes[:, :, :2] & 15 | (codes[:, :, 2:] & 15) << 4], axis=2).reshape(-1, 128)
    high = sum(codes[:, :, row] >> 4 << 2 * row for row in range(4)).reshape(-1, 64)
    return np.hstack([low, high.astype(np.uint8), scale.view(np.uint8), d.view(np.uint8)]).reshape(len(values), -1)


def _six_bits(wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers ≥ 0 [blocks, 8] as an fp16 unit [blocks, 1] times 6-bit factors."""
    unit = (wanted.max(-1, keepdims=True) / 63).astype(np.float16)
    wide = unit.astype(np.float32)
    return unit, np.clip(np.rint(np.divide(wanted, wide, out=np.zeros_like(wanted), where=wide > 0)), 0, 63).astype(np.uint8)


def _codes(x: np.ndarray, step: np.ndarray, low: int, high: int, zero: int = 0) -> np.ndarray:
    """The nearest multiples of each group's ``step``, from ``low`` to ``high``, plus ``zero``."""
    step = step[..., None]
    codes = np.rint(np.divide(x, step, out=np.zeros_like(x), where=step != 0))
    return (np.clip(codes, low, high) + zero).astype(np.uint8)
