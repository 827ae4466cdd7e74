"""What GET /admin/kv and LLM.kv_usage() tell of the KV pool: its accounting, who has which block, and the last steps.

    version   of this form
    policy    the KV policy of each seam, now: a built-in one where a plugin has failed (octavo.kv.block_pool)
    groups    per layer group: name, block_size, slots and bytes (octavo.kv.usage), efficiency, fragmentation, and blocks: of each block its
              owner's place in owners, -1 if it is free, -2 if only the prefix index keeps it (octavo.kv.block_map)
    owners    request ids
    steps     the last steps, oldest first (octavo.engine.step_log)
    writes    where K and V are of 8 bits: what writing them met since the start, by layer (octavo.outputs.KVWrites)

besides what KVUsage.as_dict() has over all groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from octavo.engine.step_log import StepLog
from octavo.kv.kv_cache_manager import KVCacheManager
from octavo.outputs import KVWrites
from octavo.request import Request

VERSION = 1


def kv_report(
    kv: KVCacheManager, policy: Mapping[str, str], head: Request | None, log: StepLog, writes: KVWrites | None = None
) -> dict[str, Any]:
    """The report, with each map of blocks as an int32 array.

    ``policy``: as chosen. ``head``: of the queue, see KVCacheManager.usage.
    """
    usage = kv.usage(head).as_dict()
    owners, maps = kv.block_map()
    groups = [group | {"blocks": blocks} for group, blocks in zip(usage.pop("groups"), maps, strict=True)]
    in_use = dict(policy)
    for pool in kv.pools:
        in_use |= pool.replaced
    report = {"version": VERSION, "policy": in_use, "groups": groups, "owners": owners, "steps": log.as_list(), **usage}
    return report if writes is None else report | {"writes": msgspec.structs.asdict(writes)}


def with_lists(report: dict[str, Any]) -> dict[str, Any]:
    """The same with maps of blocks as lists; they may be arrays, or an array's bytes as they cross between processes."""
    groups = [group | {"blocks": np.frombuffer(group["blocks"], np.int32).tolist()} for group in report["groups"]]
    return report | {"groups": groups}
