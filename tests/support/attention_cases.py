"""Paged K and V for native attention tests: sequences in random blocks, written and attended in any cut of steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from octavo import _native
from octavo.ops.kv_format import KVFormat
from octavo.ops.reference import attend, store_vectors
from octavo.ops.spec import AttentionSpec, StepInputs
from support.native_cases import POOL


@dataclass(frozen=True)
class Shape:
    """What an attention layer is."""

    heads: int
    kv_heads: int
    head_dim: int
    window: int = 0
    softcap: float = 0.0
    sinks: bool = False
    dtype: str = "bf16"
    scales: str = "none"
    layer_scales: tuple[float, float] = (1.0, 1.0)
    """K's and V's."""
    bf16_products: bool = False
    spread: float = 0.0
    """Vectors of K and V are multiplied with e to the power of this times a normal number."""

    @property
    def format(self) -> KVFormat:
        return KVFormat(self.dtype, self.scales, bf16_products=self.bf16_products)

    @property
    def scale(self) -> float:
        return float(np.float32(self.head_dim**-0.5))


@dataclass
class PagedSequence:
    """One sequence's q [n, heads, d], k and v [n, kv_heads, d], and its blocks."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    table: np.ndarray

    @property
    def length(self) -> int:
        return len(self.k)


@dataclass
class PagedCase:
    """``lengths`` sequences of ``shape`` in random blocks of one KV storage. All numbers depend on ``seed`` and the lengths alone."""

    shape: Shape
    lengths: Sequence[int]
    isa: str
    block_size: int = 16
    seed: int = 0
    placement: int = 0
    """Seed of which blocks are whose."""
    pool: _native.ThreadPool = POOL
    out_kind: str = "f32"
    logits_rows: Sequence[int] | None = None
    """Of each step; if given, rows before a sequence's first may be left as they are."""
    sequences: list[PagedSequence] = field(init=False)

    def __post_init__(self) -> None:
        shape, rng = self.shape, np.random.default_rng(self.seed)
        sizes = [-(-n // self.block_size) for n in self.lengths]
        self.num_blocks = sum(sizes) + 3
        free = np.random.default_rng(self.placement).permutation(self.num_blocks)
        self.sequences = []
        for n, size in zip(self.lengths, sizes, strict=True):
            table, free = free[:size].astype(np.int32), free[size:]
            q = rng.standard_normal((n, shape.heads, shape.head_dim)).astype(np.float32)
            k, v = rng.standard_normal((2, n, shape.kv_heads, shape.head_dim)).astype(np.float32)
            if shape.spread:
                k, v = (x * np.exp(shape.spread * rng.standard_normal((n, shape.kv_heads, 1))).astype(np.float32) for x in (k, v))
            self.sequences.append(PagedSequence(q, k, v, table))
        self.sinks = np.random.default_rng(self.seed + 1).standard_normal(shape.heads).astype(np.float32) if shape.sinks else None
        scales = [*shape.layer_scales, *shape.layer_scales] if shape.scales in ("static", "guarded") else []
        self.kv = _native.KVStorage(
            self.isa,
            2,
            self.num_blocks,
            self.block_size,
            shape.kv_heads,
            shape.head_dim,
            shape.dtype,
            shape.scales,
            scales,
            shape.bf16_products,
        )
        self._build()

    def _build(self) -> None:
        shape = self.shape
        width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.program = program = _native.Program(self.isa, self.pool)
        self.q, self.k, self.v = (program.add_buffer("f32", n, "tokens") for n in (width, kv_width, kv_width))
        self.out = program.add_buffer(self.out_kind, width, "tokens")
        program.add_op("kv_write", [self.k, self.v], [], [], [1, 0], [])
        ints = [1, 0, shape.heads, shape.window, int(self.logits_rows is not None)]
        program.add_op("attention", [self.q], [self.out], [self.sinks], ints, [shape.scale, shape.softcap])
        dummy = program.add_buffer("f32", width, "tokens")
        program.add_op("add", [self.q, self.q], [dummy], [], [], [])  # a program's result is fp32

    def step(self, parts: Sequence[tuple[int, int, int]]) -> np.ndarray:
        """Writes and attends positions [first, first + count) of each (sequence, first, count); the outputs [tokens, heads * d]."""
        rows = [(self.sequences[s], slice(first, first + count)) for s, first, count in parts]
        tokens = sum(count for _, _, count in parts)
        for buffer, name in ((self.q, "q"), (self.k, "k"), (self.v, "v")):
            values = np.concatenate([getattr(sequence, name)[part] for sequence, part in rows])
            self.program.write(buffer, values.reshape(tokens, -1))
        inputs = self.inputs(parts)
        self.program.run(
            self.kv, inputs.token_ids, inputs.positions, inputs.query_start, inputs.seq_lens, inputs.block_tables,
            inputs.slot_mapping, inputs.logits_rows,
        )  # fmt: skip
        return self.program.read(self.out)

    def inputs(self, parts: Sequence[tuple[int, int, int]]) -> StepInputs:
        size = self.block_size
        tables = [self.sequences[s].table for s, _, _ in parts]
        table = np.full((len(parts), max(map(len, tables))), -1, np.int32)
        for row, blocks in zip(table, tables, strict=True):
            row[: len(blocks)] = blocks
        for row, (_, first, _) in zip(table, parts, strict=True):  # blocks that the window left behind may be anybody's
            row[: max(0, first + 1 - self.shape.window) // size if self.shape.window else 0] = -1
        positions = np.concatenate([np.arange(first, first + count, dtype=np.int32) for _, first, count in parts])
        owner = np.repeat(np.arange(len(parts)), [count for _, _, count in parts])
        return StepInputs(
            token_ids=np.zeros(len(positions), np.int32),
            positions=positions,
            query_start=np.cumsum([0, *(count for _, _, count in parts)]).astype(np.int32),
            seq_lens=np.asarray([first + count for _, first, count in parts], np.int32),
            block_tables=[table],
            slot_mapping=[(table[owner, positions // size] * size + positions % size).astype(np.int32)],
            logits_rows=np.asarray(self.logits_rows or (), np.int32),
            block_size=size,
        )

    def whole(self, sequence: int, chunk: int | None = None) -> np.ndarray:
        """All outputs of a sequence [n, heads * d], alone in steps of ``chunk`` tokens."""
        n = self.sequences[sequence].length
        steps = [self.step([(sequence, first, min(chunk or n, n - first))]) for first in range(0, n, chunk or n)]
        return np.concatenate(steps)

    def oracle(self, sequence: int, first: int = 0) -> np.ndarray:
        """The same from ``first`` on, by octavo.ops.reference in float64 on K and V as stored."""
        s, shape = self.sequences[sequence], self.shape
        stored_k, stored_v = (store_vectors(x, shape.format, scale) for x, scale in zip((s.k, s.v), shape.layer_scales, strict=True))
        spec = AttentionSpec(shape.heads, shape.scale, shape.window, shape.softcap)
        wide = [x.astype(np.float64) for x in (s.q[first:], stored_k.values, stored_v.values)]
        sinks = None if self.sinks is None else self.sinks.astype(np.float64)
        positions = np.arange(first, s.length, dtype=np.int32)
        scales = None if shape.scales == "none" else stored_v.scales
        return attend(*wide, positions, spec, sinks, shape.bf16_products, scales).reshape(s.length - first, -1)
