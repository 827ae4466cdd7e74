"""How many KV blocks an engine gets, and how long a sequence they can hold."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from octavo.config import EngineArgs
from octavo.engine.pool_split import PoolSplit
from octavo.errors import InvalidRequestError
from octavo.kv.policies import placement_reserves
from octavo.kv.reach import Reach
from octavo.runner.interface import RunnerInfo

logger = logging.getLogger(__name__)

_SHARE = "gpu_memory_utilization"


@dataclass(frozen=True)
class PoolPlan:
    """The pool as it will be allocated."""

    num_blocks: list[int]
    """Per layer group."""
    tokens: int
    """Most that one sequence can store."""
    nbytes: int
    max_model_len: int

    def too_large(self, args: EngineArgs) -> InvalidRequestError:
        """What to say when this machine does not have the memory, under the setting that asked for it."""
        asked = next((name for name in ("num_gpu_blocks_override", "kv_cache_memory_bytes") if getattr(args, name) is not None), _SHARE)
        return InvalidRequestError(f"{asked} = {getattr(args, asked)}: this machine has no {self.nbytes:,} bytes for KV", field=asked)


def plan_pool(args: EngineArgs, info: RunnerInfo, max_tokens_in_flight: int | None = None) -> PoolPlan:
    """Size the KV pool: num_gpu_blocks_override, else kv_cache_memory_bytes, both exactly; else the runner's share of free memory,
    but no more than max_num_seqs sequences of max_model_len need. Layer groups share it as octavo.engine.pool_split says.

    A pool that cannot hold one sequence of max_model_len lowers max_model_len, with a warning.
    ``max_tokens_in_flight``: in steps that have not come back; by default those of one step.

    Raises:
        InvalidRequestError: if max_model_len is more than the model's own; if the pool holds no block, or not one sequence of
            a max_model_len that was asked for. (With num_gpu_blocks_override that is a warning: the pool then limits each request.)
    """
    limit = _model_limit(args, info)
    split = PoolSplit(
        block_bytes=[group.bytes_per_block for group in info.groups],
        reaches=_reaches(args, info, max_tokens_in_flight or args.max_num_batched_tokens),
        max_num_seqs=args.max_num_seqs,
        max_blocks=-(-limit // args.block_size),
    )
    num_blocks = _count_blocks(args, info, split)
    nbytes = split.nbytes(num_blocks)
    held = split.longest(num_blocks)
    tokens = limit if held is None else held * args.block_size
    if tokens < limit:
        limit = _lower_limit(args, limit, tokens, split.bytes_for_one(split.max_blocks))
    return PoolPlan(num_blocks, tokens, nbytes, limit)


def _reaches(args: EngineArgs, info: RunnerInfo, max_tokens_in_flight: int) -> list[Reach]:
    gives_back = any(group.window for group in info.groups) and not placement_reserves(args.kv_policies())
    return [Reach.of(args.block_size, group.window, gives_back, max_tokens_in_flight) for group in info.groups]


def _model_limit(args: EngineArgs, info: RunnerInfo) -> int:
    if args.max_model_len is not None and args.max_model_len > info.max_model_len:
        raise InvalidRequestError(
            f"max_model_len = {args.max_model_len}: the model was made for at most {info.max_model_len} tokens", field="max_model_len"
        )
    return args.max_model_len or info.max_model_len


def _count_blocks(args: EngineArgs, info: RunnerInfo, split: PoolSplit) -> list[int]:
    if args.num_gpu_blocks_override is not None:
        return split.by_blocks(args.num_gpu_blocks_override)
    may_lower = args.max_model_len is None
    if args.kv_cache_memory_bytes is not None:
        source = f"kv_cache_memory_bytes = {args.kv_cache_memory_bytes}"
        num_blocks = split.by_bytes(args.kv_cache_memory_bytes, may_lower)
    else:
        source = f"{_SHARE} = {args.gpu_memory_utilization} allows {info.available_kv_bytes} bytes"
        num_blocks = split.at_most_needed(info.available_kv_bytes, may_lower)
    if not all(num_blocks):
        field, needed = source.split()[0], split.bytes_for_one(1)
        raise InvalidRequestError(f"{source}: one KV block of {args.block_size} tokens takes {needed} bytes", field=field)
    return num_blocks


def _lower_limit(args: EngineArgs, limit: int, tokens: int, needed: int) -> int:
    """The max_model_len of a pool that holds fewer ``tokens`` than ``limit``, which takes ``needed`` bytes."""
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
