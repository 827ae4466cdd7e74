"""What the decoder-only architectures share: their parameters, and the attention and feed-forward halves of a layer.

An architecture file subclasses ``Decoder`` and writes its layer's forward pass; everything is in terms of octavo.ops.spec.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from octavo.models.config import ModelConfig
from octavo.models.rope import make_rope
from octavo.ops.spec import AttentionSpec, KVLayer, Ops, Parameter, Rope

T = TypeVar("T")


@dataclass(frozen=True)
class LayerParameters:
    """One layer's parameters; those an architecture does not have are None."""

    input_norm: Parameter
    q: Parameter
    k: Parameter
    v: Parameter
    o: Parameter
    mlp_norm: Parameter
    gate: Parameter
    up: Parameter
    down: Parameter
    q_bias: Parameter | None = None
    k_bias: Parameter | None = None
    v_bias: Parameter | None = None
    o_bias: Parameter | None = None
    q_norm: Parameter | None = None
    k_norm: Parameter | None = None
    attention_out_norm: Parameter | None = None
    mlp_out_norm: Parameter | None = None

    def all(self) -> list[Parameter]:
        return [p for p in vars(self).values() if p is not None]


class Decoder:
    """Embedding, layers, final norm and head (octavo.ops.spec.Model). Subclasses give ``layer`` and may widen ``layer_parameters``."""

    norm_offset = 0.0
    """Added to norm weights of Hugging Face files."""
    hf_mlp_norm = "post_attention_layernorm"

    def __init__(self, config: ModelConfig) -> None:
        self.config = config
        vocab = (config.vocab_size, config.hidden_size)
        self.embedding = Parameter("embedding", vocab, ("vocab", "embed"), "token_embd.weight", "model.embed_tokens.weight")
        self.final_norm = self._norm("final_norm", config.hidden_size, "output_norm.weight", "model.norm.weight")
        self.head = self.embedding
        if not config.tie_word_embeddings:
            self.head = Parameter("head", vocab, ("vocab", "embed"), "output.weight", "lm_head.weight")
        self.layers = [self.layer_parameters(i) for i in range(config.num_layers)]
        self._kv = self._kv_layers()
        self._rope = self.rope(config.rope_theta, scaled=True)
        self._local_rope = self.rope(config.local_rope_theta, scaled=False) if config.local_rope_theta else self._rope

    def parameters(self) -> list[Parameter]:
        """Every weight, each once."""
        found = [self.embedding, self.final_norm, *(p for layer in self.layers for p in layer.all())]
        return found if self.head is self.embedding else [*found, self.head]

    def kv_layers(self) -> list[KVLayer]:
        """Its layers' KV, in the order of the layers: one group for those that see everything, one for each sliding window."""
        return self._kv

    def _kv_layers(self) -> list[KVLayer]:
        windows = [self.attention_spec(i).window for i in range(self.config.num_layers)]
        groups = sorted(set(windows))
        return [
            KVLayer(windows[:i].count(window), groups.index(window), self.config.num_kv_heads, self.config.head_dim, window)
            for i, window in enumerate(windows)
        ]

    def forward(self, ops: Ops[T]) -> T:
        """Logits [logits rows, vocab] of a step."""
        x = ops.embed(self.embedding, self.config.embedding_scale)
        for index in range(self.config.num_layers):
            x = self.layer(ops, x, index)
        x = ops.rms_norm(ops.gather(x), self.final_norm, self.config.rms_norm_eps)
        logits = ops.linear(x, self.head)
        return ops.softcap(logits, self.config.logits_softcap) if self.config.logits_softcap else logits

    def layer(self, ops: Ops[T], x: T, index: int) -> T:
        """One layer: pre-normed attention and feed-forward, each added to the stream (Touvron et al. 2023, LLaMA)."""
        p = self.layers[index]
        h = ops.rms_norm(x, p.input_norm, self.config.rms_norm_eps)
        x = ops.add(x, self.attention(ops, h, index))
        h = ops.rms_norm(x, p.mlp_norm, self.config.rms_norm_eps)
        return ops.add(x, self.mlp(ops, h, index))

    def attention(self, ops: Ops[T], h: T, index: int) -> T:
        """Self-attention over the paged KV cache, with per-head norms where the architecture has them."""
        c, p, kv = self.config, self.layers[index], self._kv[index]
        q = ops.linear(h, p.q, p.q_bias)
        k = ops.linear(h, p.k, p.k_bias)
        v = ops.linear(h, p.v, p.v_bias)
        if p.q_norm is not None and p.k_norm is not None:
            q = ops.rms_norm(q, p.q_norm, c.rms_norm_eps, c.num_heads)
            k = ops.rms_norm(k, p.k_norm, c.rms_norm_eps, c.num_kv_heads)
        rope = self._local_rope if self.sliding(index) else self._rope
        q = ops.rope(q, c.num_heads, rope)
        k = ops.rope(k, c.num_kv_heads, rope)
        ops.kv_write(k, v, kv)
        return ops.linear(ops.attention(q, kv, self.attention_spec(index)), p.o, p.o_bias)

    def mlp(self, ops: Ops[T], h: T, index: int) -> T:
        """Gated feed-forward (Shazeer 2020, GLU variants)."""
        p = self.layers[index]
        gated = ops.gated_act(ops.linear(h, p.gate), ops.linear(h, p.up), self.config.activation)
        return ops.linear(gated, p.down)

    def sliding(self, index: int) -> bool:
        """Whether a layer sees only the sliding window."""
        return bool(self.config.sliding_layers) and self.config.sliding_layers[index]

    def attention_spec(self, index: int) -> AttentionSpec:
        c = self.config
        scale = c.head_dim**-0.5 if c.attention_scale is None else c.attention_scale
        return AttentionSpec(c.num_heads, scale, c.sliding_window if self.sliding(index) else 0, c.attention_softcap)

    def rope(self, theta: float, *, scaled: bool) -> Rope:
        c = self.config
        return make_rope(theta, c.rotary_dim or c.head_dim, c.rope_scaling if scaled else {}, c.rope_style)

    def layer_parameters(self, i: int) -> LayerParameters:
        """Parameters of layer ``i`` under the names that GGUF and Hugging Face files use."""
        c = self.config
        heads, kv_heads, embed, mlp = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim, c.hidden_size, c.intermediate_size

        def matrix(name: str, shape: tuple[int, int], axes: tuple[str, str], gguf: str, hf: str) -> Parameter:
            return Parameter(f"layers.{i}.{name}", shape, axes, f"blk.{i}.{gguf}.weight", f"model.layers.{i}.{hf}.weight")

        def bias(present: bool, name: str, size: int, axis: str, gguf: str, hf: str) -> Parameter | None:
            names = (f"blk.{i}.{gguf}.bias", f"model.layers.{i}.{hf}.bias")
            return Parameter(f"layers.{i}.{name}", (size,), (axis,), *names) if present else None

        return LayerParameters(
            input_norm=self._layer_norm(i, "input_norm", embed, "attn_norm", "input_layernorm"),
            q=matrix("attn.q", (heads, embed), ("heads", "embed"), "attn_q", "self_attn.q_proj"),
            k=matrix("attn.k", (kv_heads, embed), ("kv_heads", "embed"), "attn_k", "self_attn.k_proj"),
            v=matrix("attn.v", (kv_heads, embed), ("kv_heads", "embed"), "attn_v", "self_attn.v_proj"),
            o=matrix("attn.o", (embed, heads), ("embed", "heads"), "attn_output", "self_attn.o_proj"),
            mlp_norm=self._layer_norm(i, "mlp_norm", embed, "ffn_norm", self.hf_mlp_norm),
            gate=matrix("mlp.gate", (mlp, embed), ("mlp", "embed"), "ffn_gate", "mlp.gate_proj"),
            up=matrix("mlp.up", (mlp, embed), ("mlp", "embed"), "ffn_up", "mlp.up_proj"),
            down=matrix("mlp.down", (embed, mlp), ("embed", "mlp"), "ffn_down", "mlp.down_proj"),
            q_bias=bias(c.attention_bias, "attn.q_bias", heads, "heads", "attn_q", "self_attn.q_proj"),
            k_bias=bias(c.attention_bias, "attn.k_bias", kv_heads, "kv_heads", "attn_k", "self_attn.k_proj"),
            v_bias=bias(c.attention_bias, "attn.v_bias", kv_heads, "kv_heads", "attn_v", "self_attn.v_proj"),
            o_bias=bias(c.output_bias, "attn.o_bias", embed, "embed", "attn_output", "self_attn.o_proj"),
            q_norm=self._layer_norm(i, "q_norm", c.head_dim, "attn_q_norm", "self_attn.q_norm") if c.qk_norm else None,
            k_norm=self._layer_norm(i, "k_norm", c.head_dim, "attn_k_norm", "self_attn.k_norm") if c.qk_norm else None,
        )

    def _layer_norm(self, i: int, name: str, size: int, gguf: str, hf: str) -> Parameter:
        return self._norm(f"layers.{i}.{name}", size, f"blk.{i}.{gguf}.weight", f"model.layers.{i}.{hf}.weight")

    def _norm(self, name: str, size: int, gguf: str, hf: str) -> Parameter:
        return Parameter(name, (size,), ("embed",), gguf, hf, offset=self.norm_offset)
