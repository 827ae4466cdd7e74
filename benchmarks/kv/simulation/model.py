"""A model in transformers whose attention sees K (rotated to its positions) and V as something else than they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from benchmarks.fidelity import reference
from octavo.bench.kv_report.text import read_text
from octavo.tokenizer.load import load_tokenizer
from octavo.weights.hub import resolve

StoreKV = Callable[[int, torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""Layer, K and V [1, kv_heads, tokens, head_dim] → what attention reads."""
Look = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], None]
"""Layer, q [1, heads, tokens, head_dim], K and V, before they are stored."""

NAME = "kv_simulation"


@dataclass
class _Hooks:
    store: StoreKV = lambda layer, k, v: (k, v)
    look: Look = lambda layer, q, k, v: None


hooks = _Hooks()


def _attention(
    module: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Any, scaling: float, **_: Any
) -> tuple[torch.Tensor, None]:
    hooks.look(module.layer_idx, q, k, v)
    k, v = hooks.store(module.layer_idx, k, v)
    out = scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scaling, is_causal=mask is None, enable_gqa=True)
    return out.transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, _attention)
AttentionMaskInterface.register(NAME, sdpa_mask)


@dataclass(frozen=True)
class Simulation:
    """A model and the text it reads."""

    model: torch.nn.Module
    ids: list[int]

    @classmethod
    def open(cls, name: str, tokens: int, text: str | None = None) -> Simulation:
        """The dequantized weights of a GGUF file in fp32, and the first ``tokens`` ids of a text (by default kv-report's own)."""
        path = resolve(name)
        model = reference.load(path)
        model.set_attn_implementation(NAME)
        return cls(model, load_tokenizer(path).encode(read_text(None) if text is None else text)[:tokens])

    def reading(self, ids: list[int]) -> Simulation:
        """The same model on another text."""
        return Simulation(self.model, ids)

    def logprobs(self, store: StoreKV = _Hooks.store, look: Look = _Hooks.look) -> torch.Tensor:
        """Log-softmax of the logits after each token [tokens, vocab], with K and V stored that way."""
        hooks.store, hooks.look = store, look
        with torch.inference_mode():
            return torch.log_softmax(self.model(torch.tensor([self.ids]), use_cache=False).logits[0], -1)


@dataclass(frozen=True)
class Distance:
    """From a reference: KL divergence in nats, mean and 99th percentile over positions; share of positions with the same top token."""

    kl_mean: float
    kl_p99: float
    top1_agreement: float

    def __str__(self) -> str:
        return f"KL {self.kl_mean:.5f}, p99 {self.kl_p99:.4f}, same top token {100 * self.top1_agreement:.2f} %"


def distance(reference: torch.Tensor, other: torch.Tensor) -> Distance:
    """Of log-probabilities [tokens, vocab]."""
    kl = (reference.exp() * (reference - other)).sum(-1)
    same = (reference.argmax(-1) == other.argmax(-1)).float().mean()
    return Distance(float(kl.mean()), float(kl.quantile(0.99)), float(same))
