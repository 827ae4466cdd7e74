"""What a step costs at least: bytes that must be read, operations that must be done; and how near to that it came."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from octavo.bench.machine import MachineRates
from octavo.config import EngineArgs


@dataclass(frozen=True)
class GroupCosts:
    """One group of layers with like KV needs."""

    kv_bytes_per_token: float
    """K and V of one token in all layers of the group."""
    flops_per_pair: float
    """Operations for one token that attends to one position: q·k and p·v in all layers."""
    window: int
    """Positions a token sees; 0: all."""

    def seen(self, position: int) -> int:
        """How many positions the token at ``position`` attends to, its own included."""
        return min(position + 1, self.window) if self.window else position + 1


@dataclass(frozen=True)
class ModelCosts:
    """What one step of a model costs; see octavo.runner.interface, RunnerInfo."""

    weight_bytes: int
    matmul_params: Mapping[str, int]
    head_params: Mapping[str, int]
    groups: tuple[GroupCosts, ...]
    attention_arithmetic: str

    @classmethod
    def from_info(cls, info: Mapping[str, Any], args: EngineArgs) -> ModelCosts:
        """From RunnerInfo as a dict, of an engine with these settings."""
        details = info["details"]
        groups = tuple(
            GroupCosts(group["bytes_per_block"] / args.block_size, flops, group["window"])
            for group, flops in zip(info["groups"], details["attention_flops_per_pair"], strict=True)
        )
        bf16 = args.kv_cache_dtype in ("bf16", "bfloat16") or (args.kv_cache_dtype == "auto" and args.dtype != "float32")
        return cls(details["weight_bytes_per_step"], details["matmul_params"], details["head_params"], groups, "bf16" if bf16 else "f32")

    def decode_bytes(self, position: int) -> float:
        """Bytes that decoding the token at ``position`` of one sequence must read: all weights, and the KV it attends to."""
        return self.weight_bytes + sum(g.kv_bytes_per_token * g.seen(position) for g in self.groups)

    def prefill_ops(self, tokens: int) -> dict[str, float]:
        """Operations, by arithmetic, of prefilling ``tokens`` from position 0 with one row of logits."""
        ops = {kind: 2.0 * params * tokens for kind, params in self.matmul_params.items()}
        for kind, params in self.head_params.items():
            ops[kind] = ops.get(kind, 0.0) + 2.0 * params
        pairs_flops = sum(g.flops_per_pair * sum(g.seen(p) for p in range(tokens)) for g in self.groups)
        ops[self.attention_arithmetic] = ops.get(self.attention_arithmetic, 0.0) + pairs_flops
        return ops


def percent_of_bandwidth(costs: ModelCosts, rates: MachineRates, first: int, steps: int, seconds: float) -> float:
    """Of ``steps`` decode steps from position ``first`` on, which took ``seconds``: their least bytes over what memory could have given."""
    least = sum(costs.decode_bytes(position) for position in range(first, first + steps))
    return 100 * least / (rates.read_bytes_s * seconds)


def percent_of_compute(costs: ModelCosts, rates: MachineRates, tokens: int, seconds: float) -> float:
    """Of a prefill of ``tokens`` which took ``seconds``: the time its operations need at the measured rates, over that."""
    least = sum(ops / rates.of(kind) for kind, ops in costs.prefill_ops(tokens).items())
    return 100 * least / seconds
