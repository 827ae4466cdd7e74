"""How many KV blocks an engine gets, and how long a sequence they can hold."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from octavo.config import EngineArgs
from octavo.errors import InvalidRequestError
from octavo.runner.interface import RunnerInfo

logger = logging.getLogger(__name__)

_SHARE = "gpu_memory_utilization"


@dataclass(frozen=True)
class PoolPlan:
    """The pool as it will be allocated; every layer group has ``num_blocks``."""

    num_blocks: int
    tokens: int
    nbytes: int
    max_model_len: int

    def too_large(self, args: EngineArgs) -> InvalidRequestError:
        """What to say when this machine does not have the memory, under the setting that asked for it."""
        asked = next((name for name in ("num_gpu_blocks_override", "kv_cache_memory_bytes") if getattr(args, name) is not None), _SHARE)
        return InvalidRequestError(f"{asked} = {getattr(args, asked)}: this machine has no {self.nbytes:,} bytes for KV", field=asked)


def plan_pool(args: EngineArgs, info: RunnerInfo) -> PoolPlan:
    """Size the KV pool: num_gpu_blocks_override, else kv_cache_memory_bytes, both exactly; else the runner's share of free memory,
    but no more than max_num_seqs sequences of max_model_len need.

    A pool that cannot hold one sequence of max_model_len lowers max_model_len, with a warning.

    Raises:
        InvalidRequestError: if max_model_len is more than the model's own; if the pool holds no block, or not one sequence of
            a max_model_len that was asked for. (With num_gpu_blocks_override that is a warning: the pool then limits each request.)
    """
    limit = _model_limit(args, info)
    block_bytes = sum(group.bytes_per_block for group in info.groups)
    num_blocks = _count_blocks(args, info, block_bytes, limit)
    tokens = num_blocks * args.block_size
    if tokens < limit:
        limit = _lower_limit(args, limit, tokens, block_bytes)
    return PoolPlan(num_blocks, tokens, num_blocks * block_bytes, limit)


def _model_limit(args: EngineArgs, info: RunnerInfo) -> int:
    if args.max_model_len is not None and args.max_model_len > info.max_model_len:
        raise InvalidRequestError(
            f"max_model_len = {args.max_model_len}: the model was made for at most {info.max_model_len} tokens", field="max_model_len"
        )
    return args.max_model_len or info.max_model_len


def _count_blocks(args: EngineArgs, info: RunnerInfo, block_bytes: int, limit: int) -> int:
    if args.num_gpu_blocks_override is not None:
        return args.num_gpu_blocks_override
    if args.kv_cache_memory_bytes is not None:
        source, num_blocks = f"kv_cache_memory_bytes = {args.kv_cache_memory_bytes}", args.kv_cache_memory_bytes // block_bytes
    else:
        source = f"{_SHARE} = {args.gpu_memory_utilization} allows {info.available_kv_bytes} bytes"
        needed = args.max_num_seqs * -(-limit // args.block_size)
        num_blocks = min(info.available_kv_bytes // block_bytes, needed)
    if num_blocks < 1:
        field = source.split()[0]
        raise InvalidRequestError(f"{source}: one KV block of {args.block_size} tokens takes {block_bytes} bytes", field=field)
    return num_blocks


def _lower_limit(args: EngineArgs, limit: int, tokens: int, block_bytes: int) -> int:
    """The max_model_len of a pool that holds fewer ``tokens`` than ``limit``."""
    needed = -(-limit // args.block_size) * block_bytes
    found = f"max_model_len = {limit}: such a sequence needs {needed} bytes of KV, and the pool holds {tokens} tokens"
    if args.max_model_len is None:
        logger.warning("%s; max_model_len is lowered to %d", found, tokens)
        return tokens
    if args.num_gpu_blocks_override is not None:
        logger.warning("%s; longer requests will be refused", found)
        return limit
    raise InvalidRequestError(
        f"{found}; lower max_model_len to {tokens}, or raise gpu_memory_utilization or kv_cache_memory_bytes", field="max_model_len"
    )
