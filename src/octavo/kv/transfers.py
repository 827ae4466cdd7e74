"""Whole blocks on the move: from block to block, and between blocks and memory outside the pool.

The KV core asks for transfers, a step carries them in order, and the runner carries them out, in that order, before anything else of the
step. So each sees all that earlier steps wrote and earlier transfers moved, and a block whose content was saved may be given away in
the same step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from octavo.kv.interfaces import BlockIds

BlockBytes = npt.NDArray[np.uint8]
"""[blocks, bytes_per_block]: a block is one run of plain bytes."""


@dataclass(slots=True, eq=False)
class HostBlocks:
    """Blocks' bytes outside the pool."""

    data: BlockBytes | None = None
    """None until they have been saved."""
    failed: bool = False
    """They could not be saved."""
    room: BlockBytes | None = None
    """Where to save them, if that memory is there: fresh memory costs more than the copy."""

    def fill(self, data: BlockBytes) -> None:
        """They have been saved."""
        self.data = data

    def fail(self) -> None:
        """They could not be saved."""
        self.failed = True


@dataclass(frozen=True, slots=True, eq=False)
class StoredPrefix:
    """The blocks of a request's first ``num_tokens`` tokens, kept outside the pool."""

    num_tokens: int
    parts: tuple[tuple[int, HostBlocks], ...]
    """Per group: the position of the first block that is kept, and the blocks from there on. What lies before it is behind a window."""

    @property
    def failed(self) -> bool:
        """Whether some of it could not be saved."""
        return any(source.failed for _, source in self.parts)


@dataclass(frozen=True, slots=True, eq=False)
class CopyBlocks:
    """Block dst[i] becomes what src[i] was before, also where a block is in both; the blocks of ``dst`` are distinct."""

    group: int
    src: BlockIds
    dst: BlockIds
    request_id: str
    """Whose blocks they are: it fails if this fails."""


@dataclass(frozen=True, slots=True, eq=False)
class SaveBlocks:
    """Keep the bytes of ``blocks`` in ``into``. One that fails says so in ``into``, and no request fails for it."""

    group: int
    blocks: BlockIds
    into: HostBlocks


@dataclass(frozen=True, slots=True, eq=False)
class LoadBlocks:
    """Set the bytes of ``blocks`` to rows first, first + 1, … of ``source``."""

    group: int
    blocks: BlockIds
    source: HostBlocks
    first: int
    request_id: str
    """Whose blocks they are: it fails if this fails."""


Transfer = CopyBlocks | SaveBlocks | LoadBlocks
