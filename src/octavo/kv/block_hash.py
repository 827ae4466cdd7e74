"""Hashes of full blocks, chained, so that one stands for a whole prefix.

    root     = SHA-256("octavo kv root" ‖ typed fields: block size, numerics id, tenant salt, adapter)
    hash[0]  = SHA-256(root ‖ tokens of block 0)
    hash[i]  = SHA-256(hash[i-1] ‖ tokens of block i)            a token is a uint32, little-endian

Each field of the root is written as its name, a mark for None or a value, and the value's length and bytes: a salt and an
adapter of the same spelling differ, and no field runs into the next. SHA-256 makes finding two prefixes of one hash infeasible,
which is what keeps one tenant from being served another's blocks; there is no weaker hash to choose.
"""

from __future__ import annotations

from hashlib import sha256

import numpy as np

from octavo.kv.interfaces import BlockHash


def root_hash(block_size: int, numerics_id: str, cache_salt: str | None, adapter: str | None) -> BlockHash:
    """What a chain starts from: everything but tokens that shapes a block's content, or who may see it."""
    digest = sha256(b"octavo kv root")
    fields = {"block_size": str(block_size), "numerics_id": numerics_id, "cache_salt": cache_salt, "adapter": adapter}
    for name, value in fields.items():
        digest.update(name.encode() + (b"\x00" if value is None else b"\x01"))
        encoded = (value or "").encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return BlockHash(digest.digest())


def extend_chain(chain: list[BlockHash], token_ids: list[int], num_blocks: int, block_size: int) -> None:
    """Append to ``chain``, which starts with the root, until it ends with the hash of the first ``num_blocks`` blocks of ``token_ids``.

    ``chain[i + 1]`` is the hash of block i: each block is hashed once.
    """
    done = len(chain) - 1
    if done >= num_blocks:
        return
    tokens = np.array(token_ids[done * block_size : num_blocks * block_size], "<u4").tobytes()
    parent = chain[-1]
    stride = 4 * block_size
    for start in range(0, len(tokens), stride):
        parent = BlockHash(sha256(parent + tokens[start : start + stride]).digest())
        chain.append(parent)
