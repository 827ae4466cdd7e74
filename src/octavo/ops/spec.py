"""The whole vocabulary of a model: typed op signatures, the parameters they name, and a step's inputs.

A model (octavo.models) is a function that calls these ops and nothing else; it never sees a tensor library. Whoever
implements ``Ops`` decides what a value ``T`` is: octavo.ops.reference computes numpy arrays at once, slowly and
plainly (the oracle); octavo.ops.program records the calls into a program for native execution.

All activations are matrices of fp32 rows: [tokens, columns] unless said otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

Int32Array = npt.NDArray[np.int32]
F32Array = npt.NDArray[np.float32]

T = TypeVar("T")


@dataclass(frozen=True)
class Parameter:
    """A weight that a model asks for.

    ``axes`` names its logical axes, outputs first ("vocab", "embed", "heads", "kv_heads", "mlp"): loading, packing, and
    later sharding and adapters derive from them. ``gguf`` and ``hf`` are its names in the two file families.
    """

    name: str
    shape: tuple[int, ...]
    axes: tuple[str, ...]
    gguf: str
    hf: str
    offset: float = 0.0
    """Added to the values of HF files on loading (Gemma's norms are stored as weight - 1)."""

    @property
    def is_matrix(self) -> bool:
        return len(self.shape) == 2


class RopeStyle(IntEnum):
    """Which elements of a head rotate together: i with i + half (HALF), or 2i with 2i + 1 (INTERLEAVED)."""

    HALF = 0
    INTERLEAVED = 1


@dataclass(frozen=True)
class Rope:
    """Rotary position embedding of the first ``2 * len(inv_freq)`` elements of each head.

    Element pair j at position p turns by the angle p * inv_freq[j]; cosines and sines are scaled by ``mscale``.
    Source: Su et al. 2021, RoFormer. Tables are computed in float64 and rounded to fp32.
    """

    inv_freq: tuple[float, ...]
    style: RopeStyle
    mscale: float = 1.0


@dataclass(frozen=True)
class KVLayer:
    """Where a layer keeps its K and V. Layers of like window and size form a group with a block table of its own."""

    index: int
    """Layer of its group's KV storage, 0 … the group's layers - 1."""
    group: int
    num_kv_heads: int
    head_dim: int
    window: int = 0
    """Of the group: if > 0, none of its layers reads more than ``window`` positions back, the query's own included."""


@dataclass(frozen=True)
class AttentionSpec:
    """Causal attention with grouped heads: query head h reads KV head h // (num_heads // num_kv_heads)."""

    num_heads: int
    scale: float
    """Multiplies q·k."""
    window: int = 0
    """If > 0, position p sees only positions p - window + 1 … p."""
    softcap: float = 0.0
    """If > 0, scores become softcap * tanh(score / softcap)."""
    sinks: Parameter | None = None
    """One logit a head that joins the softmax's denominator only."""


class Activation(IntEnum):
    """Of a gated unit: act(gate) * up."""

    SILU = 0
    GELU_TANH = 1


class Ops(Protocol[T]):
    """The ops. None mutates its arguments; only ``kv_write`` has an effect (on the KV storage of the step)."""

    def embed(self, weight: Parameter, scale: float = 1.0) -> T:
        """Rows of ``weight`` [vocab, D] for the step's token ids, times ``scale`` → [tokens, D]."""

    def rms_norm(self, x: T, weight: Parameter, eps: float, heads: int = 1) -> T:
        """Each row, or each of its ``heads`` equal parts, divided by sqrt(mean(x²) + eps), times ``weight`` [columns / heads]."""

    def linear(self, x: T, weight: Parameter, bias: Parameter | None = None) -> T:
        """x [rows, K] times weight [N, K] transposed, plus bias [N] → [rows, N].

        The arithmetic follows the weight's format: quantized weights meet activations quantized to int8, symmetric, per row
        and group of 32 (scale = absmax / 127, round half to even), but for the one value of a group that is larger than three times every
        other, which stays fp32; BF16 weights meet activations rounded to bf16; F32 and F16
        weights meet fp32 activations. Sums are in fp32.
        """

    def rope(self, x: T, heads: int, rope: Rope) -> T:
        """Rotate each head of x [tokens, heads * head_dim] to the step's positions."""

    def kv_write(self, k: T, v: T, layer: KVLayer) -> None:
        """Store k and v [tokens, kv_heads * head_dim] at the step's slots, rounded to the KV dtype."""

    def attention(self, q: T, layer: KVLayer, spec: AttentionSpec) -> T:
        """Attention of q [tokens, heads * head_dim] over all that ``layer`` holds of each token's sequence, as stored."""

    def gated_act(self, gate: T, up: T, activation: Activation) -> T:
        """act(gate) * up, element by element."""

    def add(self, a: T, b: T) -> T:
        """a + b."""

    def softcap(self, x: T, cap: float) -> T:
        """cap * tanh(x / cap)."""

    def gather(self, x: T) -> T:
        """The rows of x [tokens, D] whose logits the step wants → [logits rows, D]."""


@dataclass
class StepInputs:
    """What a step works on: ``S`` sequences with ``T`` tokens in all. Arrays are contiguous; the runner owns and reuses them."""

    token_ids: Int32Array
    """[T]"""
    positions: Int32Array
    """[T] place of each token in its sequence."""
    query_start: Int32Array
    """[S + 1] row of each sequence's first token; the last entry is T."""
    seq_lens: Int32Array
    """[S] tokens each sequence has in KV after this step."""
    block_tables: list[Int32Array]
    """Per group [S, max blocks]: the block that holds position p is row[p // block_size]. Entries wholly behind the group's window of the
    sequence's first query may be anything, -1 too: they are not read."""
    slot_mapping: list[Int32Array]
    """Per group [T]: block * block_size + position % block_size."""
    logits_rows: Int32Array
    """[L] rows (token indices) whose logits are wanted, rising."""
    block_size: int = 16
    """Slots in a block."""


class Model(Protocol):
    """An architecture: the parameters it asks for and its forward pass."""

    def parameters(self) -> list[Parameter]:
        """Every weight, each once (a tied head is the embedding's parameter used twice)."""

    def kv_layers(self) -> list[KVLayer]:
        """Its layers' KV, in the order of the layers."""

    def forward(self, ops: Ops[T]) -> T:
        """Logits [logits rows, vocab] of a step, in terms of ops."""
