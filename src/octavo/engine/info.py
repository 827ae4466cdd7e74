"""What an engine says of itself once it is ready; crosses to the client, which checks requests against it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(kw_only=True)
class EngineInfo:
    """Facts that hold for an engine's whole life."""

    model: str
    max_model_len: int
    """Most tokens of one sequence, prompt and output."""
    max_num_seqs: int
    max_logprobs: int
    vocab_size: int
    eos_token_ids: list[int]
    numerics_id: str
    block_size: int
    num_blocks: list[int]
    """KV blocks per layer group."""
    pool_tokens: int
    """Most tokens of one sequence that the KV pool holds; a sequence stores all its tokens but the last."""
    pool_bytes: int
    kv_groups: list[str] = field(default_factory=list)
    """Names of the layer groups."""
    kv_windows: list[int] = field(default_factory=list)
    """Of each layer group: positions that a token sees; 0: all."""
    kv_bytes_per_token: float = 0.0
    """K and V of one token in all layers."""
    isa: str = ""
    num_threads: int = 0
    arithmetic: list[str] = field(default_factory=list)
    """What multiplies weights and activations: "int8", "bf16", "fp32"."""
    kv_cache_dtype: str = ""
    """How K and V are stored: what "auto" came to."""
    kv_scales: str = "none"
    """Of 8-bit K and V: "static", "dynamic" or "guarded"."""
    phases: dict[str, float] = field(default_factory=dict)
    """Seconds per phase of starting; they add up to ``start_seconds``."""
    start_seconds: float = 0.0
    details: dict[str, Any] = field(default_factory=dict)
    """The runner's own facts."""

    def describe(self) -> list[str]:
        """Lines for a person: what computes, the pool, and where the time of starting went."""
        phases = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in self.phases.items())
        threads = "1 thread" if self.num_threads == 1 else f"{self.num_threads} threads"
        kv = self.kv_cache_dtype if self.kv_scales == "none" else f"{self.kv_cache_dtype} with {self.kv_scales} scales"
        here = f"{' and '.join(self.arithmetic)} arithmetic on {self.isa}, {threads}; K and V in {kv}"
        return [
            *([here] if self.isa else []),
            f"KV pool: {self.pool_tokens:,} tokens in {self._blocks()} blocks of {self.block_size}, {self.pool_bytes:,} bytes; "
            f"a sequence has at most {self.max_model_len:,} tokens",
            f"Engine ready in {self.start_seconds:.2f} s: {phases}",
        ]

    def _blocks(self) -> str:
        if len(self.num_blocks) == 1:
            return f"{self.num_blocks[0]:,}"
        return " and ".join(f"{count:,} ({name})" for count, name in zip(self.num_blocks, self.kv_groups, strict=True))
