"""Config readers: what real files state, and clear errors for what they must not."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.errors import ModelFileError
from octavo.models.gguf_config import from_gguf
from octavo.models.hf_config import from_hf
from octavo.models.registry import build
from octavo.models.rope import make_rope
from octavo.ops.spec import Activation, RopeStyle

GGUF = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.context_length": 64,
    "llama.embedding_length": 32,
    "llama.feed_forward_length": 64,
    "llama.attention.head_count": 4,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "tokenizer.ggml.eos_token_id": 2,
}
HF = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 64,
}


def shapes(**tensors: tuple[int, ...]) -> Any:
    table = {"token_embd.weight": (100, 32)} | {name.replace("__", "."): shape for name, shape in tensors.items()}
    return table.get


def test_gguf_defaults() -> None:
    config = from_gguf(GGUF, shapes())
    assert (config.num_kv_heads, config.head_dim, config.vocab_size) == (4, 8, 100)
    assert config.rope_style == RopeStyle.INTERLEAVED and config.tie_word_embeddings and config.eos_token_ids == (2,)
    assert not from_gguf(GGUF, shapes(output__weight=(100, 32))).tie_word_embeddings


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"general.architecture": "mamba"}, "mamba"),
        ({"llama.block_count": None}, "llama.block_count"),
        ({"llama.block_count": 0}, "llama.block_count = 0"),
        ({"llama.block_count": "2"}, "a number is needed"),
        ({"llama.embedding_length": 2**40}, "llama.embedding_length"),
        ({"llama.attention.head_count": 1.5}, "llama.attention.head_count"),
        ({"llama.attention.head_count_kv": 3}, "4 attention heads cannot share 3 KV heads"),
        *[({"llama.rope.dimension_count": n}, f"{n} rotated dimensions of a head of 8") for n in (1, 7, 10)],
        *[({"llama.rope.freq_base": value}, "rope_theta") for value in (0.0, -1.0, float("nan"), float("inf"))],
        ({"llama.attention.layer_norm_rms_epsilon": float("nan")}, "rms_norm_eps = nan"),
    ],
)
def test_gguf_errors_name_the_key(change: dict[str, Any], words: str) -> None:
    metadata = {key: value for key, value in (GGUF | change).items() if value is not None}
    with pytest.raises(ModelFileError, match=words):
        from_gguf(metadata, shapes())


def test_gguf_without_an_embedding() -> None:
    with pytest.raises(ModelFileError, match=r"token_embd\.weight"):
        from_gguf(GGUF, {}.get)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"architectures": ["MambaForCausalLM"]}, "MambaForCausalLM"),
        ({"architectures": None}, "none"),
        ({"hidden_size": "32"}, "hidden_size"),
        ({"vocab_size": -1}, "vocab_size = -1"),
        ({"hidden_act": "relu"}, "relu"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"num_key_value_heads": 3}, "3 KV heads"),
        ({"head_dim": 7}, "7 rotated dimensions"),
        ({"rope_theta": -5.0}, "rope_theta = -5.0"),
        ({"sliding_window": 8, "layer_types": ["sliding_attention"]}, "1 kinds of attention are listed for 2 layers"),
    ],
)
def test_hf_errors_name_the_field(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelFileError, match=words):
        from_hf(HF | change)


def test_both_spellings_of_rope_are_read() -> None:
    old = from_hf(HF | {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}})
    new = from_hf(HF | {"rope_parameters": {"rope_type": "linear", "rope_theta": 5e5, "factor": 2.0}})
    assert build(old)._rope == build(new)._rope
    gemma = {"architectures": ["Gemma3ForCausalLM"], "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 8, "head_dim": 8}
    old = from_hf(HF | gemma | {"rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window_pattern": 2})
    ropes = {
        "full_attention": {"rope_type": "default", "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    new = from_hf(HF | gemma | {"rope_parameters": ropes, "layer_types": ["sliding_attention", "full_attention"]})
    assert (old.rope_theta, old.local_rope_theta, old.sliding_layers) == (new.rope_theta, new.local_rope_theta, new.sliding_layers)
    assert new.activation == Activation.GELU_TANH and new.tie_word_embeddings


def test_api_30_every_end_of_sequence_id_is_known() -> None:
    assert from_hf(HF | {"eos_token_id": 2, "generation_config": {"eos_token_id": [2, 7]}}).eos_token_ids == (2, 7)


def test_unknown_rope_scaling_is_refused() -> None:
    with pytest.raises(ModelFileError, match="dynamic"):
        make_rope(1e4, 8, {"rope_type": "dynamic"}, RopeStyle.HALF)
