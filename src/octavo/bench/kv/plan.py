"""What is compared: policies by name, block sizes, and the engine settings that a trial of them comes to."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from octavo.bench.workload.requests import Workload
from octavo.config import EngineArgs
from octavo.errors import InvalidRequestError
from octavo.kv.policies import choose

POLICIES: dict[str, dict[str, Any]] = {
    "static": {"kv_policy": "static"},
    "contiguous": {"kv_policy": "contiguous"},
    "contiguous-best": {"kv_policy": "contiguous", "kv_placement": "contiguous-best"},
    "contiguous-compact": {"kv_policy": "contiguous", "kv_compaction": True},
    "paged": {"kv_policy": "paged"},
    "paged-unshared": {"kv_policy": "paged", "kv_prefix_index": "none"},
    "paged-guaranteed": {"kv_policy": "paged", "kv_admission": "guaranteed"},
    "paged-predicted": {"kv_policy": "paged", "kv_admission": "predicted"},
}
"""Settings of EngineArgs by the name in the result; ``paged`` is optimistic and shares prefixes."""
SEAMS = ("placement", "prefix_index", "eviction", "admission")
"""A policy that is none of POLICIES is one choice a seam, by slashes: paged/radix/cost/predicted; plugins are chosen so, too."""
BLOCK_SIZE = 16
"""Compared under every policy."""
BLOCK_SIZES = (8, 16, 32, 64)
"""Compared under paged."""
POOL_OF_LONGEST = 4
"""The pool holds so many of the longest requests, unless --pool-tokens says otherwise."""

VARIED = ("kv_policy", "kv_placement", "kv_prefix_index", "kv_admission", "kv_compaction", "enable_prefix_caching", "block_size")
SIZED = ("num_gpu_blocks_override", "kv_cache_memory_bytes")


@dataclass(frozen=True)
class Trial:
    """One run."""

    policy: str
    block_size: int


def available_policies() -> list[str]:
    """Those of POLICIES whose settings this engine has."""
    known = {spec.name for spec in dataclasses.fields(EngineArgs)}
    return [name for name, settings in POLICIES.items() if settings.keys() <= known]


def plan_trials(policies: Sequence[str] | None, block_sizes: Sequence[int] | None) -> list[Trial]:
    """Each policy at each block size; without ``block_sizes`` at BLOCK_SIZE, and ``paged`` at BLOCK_SIZES.

    Raises:
        InvalidRequestError: for a policy that is unknown or whose choices do not go together, or a block size that no kernel has.
    """
    available = available_policies()
    for name in policies or ():
        if name not in available:
            _check_seams(name, available)
    for size in block_sizes or ():
        if size not in BLOCK_SIZES:
            raise InvalidRequestError(f"block_sizes = {size}: choose among {', '.join(map(str, BLOCK_SIZES))}", field="block_sizes")
    trials = [
        Trial(name, size) for name in policies or available for size in block_sizes or (BLOCK_SIZES if name == "paged" else (BLOCK_SIZE,))
    ]
    return list(dict.fromkeys(trials))


def _check_seams(name: str, available: list[str]) -> None:
    chosen = name.split("/")
    if len(chosen) != len(SEAMS):
        known = f"choose among {', '.join(available)}, or name one choice a seam: {'/'.join(SEAMS)}"
        raise InvalidRequestError(f"policies = {name!r}: {known}", field="policies")
    choose(dict(zip(SEAMS, chosen, strict=True)))


def _settings(policy: str) -> dict[str, Any]:
    """Settings of EngineArgs for a policy that plan_trials accepted."""
    if policy in POLICIES:
        return POLICIES[policy]
    return {f"kv_{seam}": name for seam, name in zip(SEAMS, policy.split("/"), strict=True)}


def check_args(args: EngineArgs) -> None:
    """Refuse settings that this benchmark chooses itself.

    Raises:
        InvalidRequestError: naming the setting, and the flag to use instead.
    """
    for spec in dataclasses.fields(EngineArgs):
        value = getattr(args, spec.name)
        if spec.name in VARIED + SIZED and value != spec.default:
            instead = "--pool-tokens" if spec.name in SIZED else "--policies and --block-sizes"
            raise InvalidRequestError(f"{spec.name} = {value}: this benchmark varies it; use {instead}", field=spec.name)
    if args.prefix_cache_dir is not None:
        message = f"prefix_cache_dir = {args.prefix_cache_dir!r}: under one policy requests would find there what another left"
        raise InvalidRequestError(message, field="prefix_cache_dir")


def pool_tokens(asked: int | None, workload: Workload) -> int:
    """Tokens of the pool, a multiple of the largest block.

    Raises:
        InvalidRequestError: for one that does not hold the longest request, which static placement needs.
    """
    largest, longest = BLOCK_SIZES[-1], workload.max_model_len
    if asked is None:
        return -(-POOL_OF_LONGEST * longest // largest) * largest
    if asked // largest * largest < longest:
        needed = -(-longest // largest) * largest
        raise InvalidRequestError(
            f"pool_tokens = {asked}: the longest request of {workload.name} may need {longest} tokens; at least {needed}",
            field="pool_tokens",
        )
    return asked // largest * largest


def trial_args(args: EngineArgs, trial: Trial, workload: Workload, tokens: int) -> EngineArgs:
    """The settings of one trial's engine. max_model_len, which static slots are made of, is what the workload needs if not given.

    Raises:
        InvalidRequestError: if a given max_model_len is too short.
    """
    limit = args.max_model_len or workload.max_model_len
    if limit < workload.max_model_len:
        raise InvalidRequestError(
            f"max_model_len = {limit}: the longest request of {workload.name} may need {workload.max_model_len} tokens",
            field="max_model_len",
        )
    settings = _settings(trial.policy) | {"block_size": trial.block_size, "num_gpu_blocks_override": tokens // trial.block_size}
    return dataclasses.replace(args, **settings, max_model_len=limit)
