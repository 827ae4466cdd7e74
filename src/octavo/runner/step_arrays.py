"""A step's inputs in arrays that are kept: each step writes what is new in it over what the last one left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from octavo.ops.spec import StepInputs

Int32Array = npt.NDArray[np.int32]
IndexArray = npt.NDArray[np.intp]

FEW = 4
"""So few requests are counted on one by one: a step leaves little of numpy's code in the caches."""


class TableRow(Protocol):
    """A request, as far as the block tables know it."""

    index: int
    num_blocks: list[int]
    place: int
    changed: bool


class StepArrays:
    """Room for a step's inputs. Laying one out writes one entry a token, and a request's blocks only where they changed or moved."""

    def __init__(self, max_num_seqs: int, max_num_tokens: int, block_size: int, blocks: Sequence[Int32Array]) -> None:
        self._size = block_size
        self._groups = range(len(blocks))
        self._query_start = np.zeros(max_num_seqs + 1, np.int32)
        self._counters = np.zeros((2 + len(blocks), max_num_seqs), np.int32)
        """Of each request: the position of its token, if it is one, its length, and its token's slot in each group."""
        self._tables: list[Int32Array] = [np.zeros(group.shape, np.int32) for group in blocks]  # zeros_like would write their pages
        self._owners: list[TableRow | None] = [None] * max_num_seqs
        """Whose blocks are in each row of the tables."""
        self._token_ids = self._positions = np.zeros(0, np.int32)
        self._slots: list[Int32Array] = []
        self._ramp = self._block_of = self._offset = np.zeros(0, np.int32)
        self._steps_left = 0
        """Steps of a token each that all requests of the last one may go on for within their blocks."""
        self._reserve_tokens(max(max_num_tokens, max_num_seqs))
        self._reserve_positions(blocks[0].shape[1] * block_size if blocks else 0)

    def lay_out(
        self,
        rows: Sequence[TableRow],
        counts: Int32Array,
        first: Int32Array,
        indices: IndexArray,
        tokens: Int32Array,
        blocks: Sequence[Int32Array],
    ) -> StepInputs:
        """Of each of ``rows`` tokens ``first`` … ``first + counts - 1``; ``indices`` are their rows of ``tokens`` and ``blocks`` (one array
        a group). All of the result but ``logits_rows``, which is left empty, is overwritten by the next call."""
        num = len(rows)
        query_start, counters = self._query_start[: num + 1], self._counters[:, :num]
        np.cumsum(counts, out=query_start[1:])
        total = int(query_start[num])
        ones = total == num
        np.add(first, counts, out=counters[1])
        self._reserve_tokens(total)
        self._reserve_positions(int(counters[1].max(initial=0)))
        self._copy_tables(rows, blocks)
        step = StepInputs(
            token_ids=self._token_ids[:total],
            positions=counters[0] if ones else self._positions[:total],
            query_start=query_start,
            seq_lens=counters[1],
            block_tables=[table[:num] for table in self._tables],
            slot_mapping=list(counters[2:]) if ones else [slots[:total] for slots in self._slots],
            logits_rows=np.zeros(0, np.int32),
            block_size=self._size,
        )
        self._steps_left = 0
        if ones:
            self._put_ones(step, slice(0, num), first, indices, tokens, blocks)
            self._steps_left = self._size - 1 - int(self._offset[first].max(initial=0))
        else:
            single = counts == 1
            self._put_ones(step, query_start[:-1][single], first[single], indices[single], tokens, blocks)
            for i in np.flatnonzero(~single).tolist():
                self._put_run(step, int(query_start[i]), int(counts[i]), int(first[i]), indices[i], tokens, blocks)
        return step

    def go_on(self, step: StepInputs, token_ids: Sequence[int]) -> bool:
        """Make ``step``, the last result, the same requests' next token each, which are ``token_ids``; False, and nothing is changed, if
        that takes more than counting on."""
        if self._steps_left == 0:
            return False
        self._steps_left -= 1
        if len(token_ids) <= FEW:
            cells, ids = memoryview(self._counters), memoryview(step.token_ids)  # type: ignore[arg-type]
            for request, token in enumerate(token_ids):
                ids[request] = token
                for counter in range(len(self._counters)):
                    cells[counter, request] += 1
        else:
            counters = self._counters[:, : len(token_ids)]
            np.add(counters, 1, out=counters)
            step.token_ids[:] = token_ids
        return True

    def _put_ones(
        self,
        step: StepInputs,
        at: slice | Int32Array,
        first: Int32Array,
        indices: IndexArray,
        tokens: Int32Array,
        blocks: Sequence[Int32Array],
    ) -> None:
        """A token a request, at the rows ``at`` of the step: all requests at once."""
        step.positions[at] = first
        step.token_ids[at] = tokens[indices, first]
        for group in self._groups:
            step.slot_mapping[group][at] = blocks[group][indices, self._block_of[first]] * np.int32(self._size) + self._offset[first]

    def _put_run(
        self, step: StepInputs, start: int, count: int, position: int, index: np.intp, tokens: Int32Array, blocks: Sequence[Int32Array]
    ) -> None:
        """``count`` tokens of one request, at rows ``start`` and on of the step."""
        rows, run = slice(start, start + count), slice(position, position + count)
        step.positions[rows] = self._ramp[run]
        step.token_ids[rows] = tokens[index, run]
        for group in self._groups:
            slots = step.slot_mapping[group][rows]
            np.take(blocks[group][index], self._block_of[run], out=slots, mode="clip")  # "raise" would need a copy
            slots *= np.int32(self._size)
            slots += self._offset[run]

    def _copy_tables(self, rows: Sequence[TableRow], blocks: Sequence[Int32Array]) -> None:
        for group in self._groups:
            if self._tables[group].shape[1] < blocks[group].shape[1]:
                self._tables[group] = widened(self._tables[group], blocks[group].shape[1])
        for place, row in enumerate(rows):
            if row.place == place and self._owners[place] is row and not row.changed:
                continue
            for group in self._groups:
                count = row.num_blocks[group]
                self._tables[group][place, :count] = blocks[group][row.index, :count]
            row.place, row.changed, self._owners[place] = place, False, row

    def _reserve_tokens(self, count: int) -> None:
        if count > len(self._token_ids):
            self._token_ids, self._positions = np.zeros(count, np.int32), np.zeros(count, np.int32)
            self._slots = [np.zeros(count, np.int32) for _ in self._groups]

    def _reserve_positions(self, length: int) -> None:
        if length > len(self._ramp):
            self._ramp = np.arange(length, dtype=np.int32)
            self._block_of, self._offset = np.divmod(self._ramp, np.int32(self._size))


def widened(array: Int32Array, columns: int) -> Int32Array:
    """A copy with at least ``columns`` columns, and at least twice as many as before; the new ones are 0."""
    wider = np.zeros((array.shape[0], max(columns, 2 * array.shape[1])), np.int32)
    wider[:, : array.shape[1]] = array
    return wider
