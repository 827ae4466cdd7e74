"""Static placement: slots of max_model_len tokens each, cut from the pool at the start: the pre-allocated workspace."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from octavo.errors import InvalidRequestError
from octavo.kv.interfaces import BlockIds, PoolSpec
from octavo.kv.placement.reserved_run import ReservedRunPlacement, Run


class StaticPlacement(ReservedRunPlacement):
    """A request gets a slot, whatever its length; max_num_seqs slots, or as many as the pool has room for.

    Blocks that belong to no slot are free, and no request can use them.

    Raises:
        InvalidRequestError: if the pool does not hold one slot.
    """

    def __init__(self, spec: PoolSpec) -> None:
        super().__init__()
        self._num_blocks = spec.num_blocks
        self._slot_blocks = -(-spec.max_model_len // spec.block_size) if spec.max_model_len else spec.num_blocks
        num_slots = min(spec.max_num_seqs, spec.num_blocks // self._slot_blocks)
        if not num_slots:
            raise InvalidRequestError(
                f"kv_placement = 'static': a slot holds max_model_len = {spec.max_model_len} tokens, and the whole KV pool "
                f"{spec.num_blocks * spec.block_size}; lower max_model_len or give KV more memory",
                field="kv_placement",
            )
        self._num_outside = spec.num_blocks - num_slots * self._slot_blocks
        self._slots = [slot * self._slot_blocks for slot in reversed(range(num_slots))]  # first blocks of free slots, a stack

    @property
    def num_free(self) -> int:
        return len(self._slots) * self._slot_blocks + self._num_outside

    @property
    def largest_free_run(self) -> int:
        return self.num_free if self._slots else 0

    @property
    def max_request_blocks(self) -> int:
        return self._slot_blocks

    def has_room(self, reserve: int, without: Collection[str] = ()) -> bool:
        return reserve <= self._slot_blocks and bool(self._slots or without)

    def free_blocks(self) -> BlockIds:
        slots = [np.arange(start, start + self._slot_blocks) for start in self._slots]
        outside = np.arange(self._num_blocks - self._num_outside, self._num_blocks)
        return np.concatenate([outside, *slots]).astype(np.int32)

    def check_integrity(self) -> None:
        self._check_runs(self.free_blocks(), self._num_blocks)

    def _reserve(self, owner: str, num_blocks: int) -> Run | None:
        if num_blocks > self._slot_blocks or not self._slots:
            return None
        return Run(owner, self._slots.pop(), self._slot_blocks)

    def _give_back(self, run: Run) -> None:
        self._slots.append(run.start)
