"""Carries out a step's block transfers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from octavo.kv.transfers import BlockBytes, CopyBlocks, LoadBlocks, SaveBlocks, Transfer
from octavo.ops.spec import Int32Array


class BlockMover(Protocol):
    """KV storage as blocks of bytes, per layer group. Ids are checked: IndexError or ValueError, before anything is moved."""

    def copy_blocks(self, group: int, src: Int32Array, dst: Int32Array) -> None:
        """Block dst[i] becomes what src[i] was before the call."""

    def export_blocks(self, group: int, blocks: Int32Array, room: BlockBytes | None = None) -> BlockBytes:
        """A copy of their bytes [blocks, bytes_per_block], in ``room`` if that is of use."""

    def import_blocks(self, group: int, blocks: Int32Array, data: BlockBytes) -> None:
        """Set their bytes."""


def carry_out(transfers: Sequence[Transfer], mover: BlockMover) -> dict[str, str]:
    """Do them in order; of each request that cannot go on because one failed, what went wrong."""
    errors: dict[str, str] = {}
    for transfer in transfers:
        try:
            _move(transfer, mover)
        except (IndexError, ValueError, MemoryError) as error:
            if isinstance(transfer, SaveBlocks):
                transfer.into.fail()
            else:
                kind = "copied" if isinstance(transfer, CopyBlocks) else "loaded"
                errors.setdefault(transfer.request_id, f"its KV blocks could not be {kind}: {error}")
    return errors


def _move(transfer: Transfer, mover: BlockMover) -> None:
    match transfer:
        case CopyBlocks(group, src, dst):
            mover.copy_blocks(group, src, dst)
        case SaveBlocks(group, blocks, into):
            into.fill(mover.export_blocks(group, blocks, into.room))
        case LoadBlocks(group, blocks, source, first):
            if source.data is None:
                raise ValueError("they were never saved")
            mover.import_blocks(group, blocks, source.data[first : first + len(blocks)])
