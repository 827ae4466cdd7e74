"""Helpers that lay out steps for a model without the engine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from octavo.ops.spec import Model, StepInputs

GROUPS = 2
"""Layer groups that a model may have here; all have the same blocks."""


def num_groups(model: Model) -> int:
    """How many layer groups it has."""
    return 1 + max(layer.group for layer in model.kv_layers())


def single_sequence_step(token_ids: Sequence[int], start: int, table: Sequence[int], block_size: int = 16) -> StepInputs:
    """Tokens at positions start, start + 1, … of one sequence; logits of every row."""
    n = len(token_ids)
    blocks = np.asarray([table], np.int32)
    positions = np.arange(start, start + n, dtype=np.int32)
    return StepInputs(
        token_ids=np.asarray(token_ids, np.int32),
        positions=positions,
        query_start=np.asarray([0, n], np.int32),
        seq_lens=np.asarray([start + n], np.int32),
        block_tables=[blocks] * GROUPS,
        slot_mapping=[blocks[0][positions // block_size] * np.int32(block_size) + positions % block_size] * GROUPS,
        logits_rows=np.arange(n, dtype=np.int32),
        block_size=block_size,
    )


def mixed_step(sequences: Sequence[tuple[Sequence[int], int, int]], tables: Sequence[Sequence[int]], block_size: int = 16) -> StepInputs:
    """Several sequences in one step: (token ids of the whole sequence, first position, count) each; logits of each one's last row."""
    width = max(len(table) for table in tables)
    blocks = np.asarray([[*table, *[0] * (width - len(table))] for table in tables], np.int32)
    positions = np.concatenate([np.arange(first, first + count) for _, first, count in sequences]).astype(np.int32)
    owner = np.repeat(np.arange(len(sequences)), [count for _, _, count in sequences])
    query_start = np.concatenate([[0], np.cumsum([count for _, _, count in sequences])]).astype(np.int32)
    return StepInputs(
        token_ids=np.concatenate([np.asarray(ids[first : first + count]) for ids, first, count in sequences]).astype(np.int32),
        positions=positions,
        query_start=query_start,
        seq_lens=np.asarray([first + count for _, first, count in sequences], np.int32),
        block_tables=[blocks] * GROUPS,
        slot_mapping=[(blocks[owner, positions // block_size] * block_size + positions % block_size).astype(np.int32)] * GROUPS,
        logits_rows=(query_start[1:] - 1).astype(np.int32),
        block_size=block_size,
    )
