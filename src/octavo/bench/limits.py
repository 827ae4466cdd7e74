"""What a step costs at least: bytes that must be read, operations that must be done; and how near to that it came."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from octavo.bench.machine import MachineRates
from octavo.config import EngineArgs
from octavo.engine.info import EngineInfo


@dataclass(frozen=True)
class AttentionCosts:
    """Of all layers with one window."""

    kv_bytes_per_token: float
    """K and V of one token."""
    flops_per_pair: float
    """Operations for one token that attends to one position: q·k and p·v."""
    window: int
    """Positions a token sees; 0: all."""

    def seen(self, position: int) -> int:
        """How many positions the token at ``position`` attends to, its own included."""
        return min(position + 1, self.window) if self.window else position + 1


@dataclass(frozen=True)
class ModelCosts:
    """What one step of a model costs; see octavo.runner.interface, RunnerInfo.details."""

    weight_bytes: int
    matmul_params: Mapping[str, int]
    head_params: Mapping[str, int]
    attention: tuple[AttentionCosts, ...]
    attention_arithmetic: str

    @classmethod
    def from_info(cls, info: EngineInfo, args: EngineArgs) -> ModelCosts:
        """From what an engine with these settings says of itself. K and V take bytes in proportion to their elements."""
        details = info.details
        layers = details["attention"]
        element_bytes = info.kv_bytes_per_token / sum(layer["kv_elements_per_token"] for layer in layers)
        attention = tuple(
            AttentionCosts(element_bytes * layer["kv_elements_per_token"], layer["flops_per_pair"], layer["window"]) for layer in layers
        )
        bf16 = args.dtype != "float32" and args.kv_cache_dtype not in ("fp16", "float16", "fp32", "float32")
        arithmetic = "bf16" if bf16 else "f32"
        return cls(details["weight_bytes_per_step"], details["matmul_params"], details["head_params"], attention, arithmetic)

    def decode_bytes(self, position: int) -> float:
        """Bytes that decoding the token at ``position`` of one sequence must read: all weights, and the KV it attends to."""
        return self.weight_bytes + sum(a.kv_bytes_per_token * a.seen(position) for a in self.attention)

    def prefill_ops(self, tokens: int) -> dict[str, float]:
        """Operations, by arithmetic, of prefilling ``tokens`` from position 0 with one row of logits."""
        ops = {kind: 2.0 * params * tokens for kind, params in self.matmul_params.items()}
        for kind, params in self.head_params.items():
            ops[kind] = ops.get(kind, 0.0) + 2.0 * params
        pairs_flops = sum(a.flops_per_pair * sum(a.seen(p) for p in range(tokens)) for a in self.attention)
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
