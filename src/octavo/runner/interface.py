"""What the engine needs of whatever runs a step: the real ModelRunner, or a scripted one in tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from octavo.config import EngineArgs
from octavo.outputs import ResourceCounts
from octavo.scheduler.output import RunnerOutput, SchedulerOutput


@dataclass(frozen=True)
class LayerGroup:
    """Layers with like KV needs: they share one block table."""

    name: str
    num_layers: int
    bytes_per_block: int
    """K and V of one block in all layers of the group, scales included."""
    window: int = 0
    """If > 0, a query reads no more than this many positions, its own included."""


@dataclass
class RunnerInfo:
    """What the runner found out at load; crosses to the client as a dict."""

    max_model_len: int
    vocab_size: int
    eos_token_ids: tuple[int, ...]
    numerics_id: str
    """Hex digest of all that shapes the output's bits."""
    groups: list[LayerGroup]
    available_kv_bytes: int
    """What gpu_memory_utilization allows now."""
    isa: str = ""
    num_threads: int = 0
    arithmetic: tuple[str, ...] = ()
    """What multiplies weights and activations here, e.g. ("int8", "fp32"): the weights' formats decide."""
    kv_cache_dtype: str = ""
    """What "auto" came to: how K and V are stored."""
    kv_scales: str = "none"
    """What the numbers of 8-bit K and V are multiplied with (octavo.ops.kv_format)."""
    load_phases: dict[str, float] = field(default_factory=dict)
    """Seconds per phase of loading."""
    details: dict[str, Any] = field(default_factory=dict)
    """For ``inspect`` and ``bench``; ModelRunner's has at least, of one step:

    weight_bytes_per_step     bytes of packed weights that a decode step reads (of an untied embedding one row)
    matmul_params             weights each token is multiplied with, by arithmetic: {"q8": …, "bf16": …, "f32": …}
    head_params               the same for each row of logits: the head, and of the last layer what follows its attention
    attention                 by window, over the layers that have it: [{"window": 0, "flops_per_pair": operations for one token that
                              attends to one position, "kv_elements_per_token": numbers stored for one token}]
    """


class Runner(Protocol):
    """Runs scheduled steps on one device. Built from EngineArgs; used by one thread."""

    def __init__(self, args: EngineArgs) -> None:
        """Load the model. Raises ModelFileError or InvalidRequestError."""

    def info(self) -> RunnerInfo:
        """Facts about the loaded model; may be called before ``allocate_kv``."""

    def allocate_kv(self, num_blocks: list[int]) -> None:
        """Allocate KV storage, per group, and whatever else the largest step needs; called once, before the first ``execute``.

        Raises MemoryError where there is none for KV, InvalidRequestError where there is none for the rest.
        """

    def resources(self) -> ResourceCounts:
        """What this process has made so far. Called every step."""

    def execute(self, scheduled: SchedulerOutput) -> RunnerOutput:
        """Run one step. Never raises for one request's sake (see RunnerOutput.errors)."""

    def close(self) -> None:
        """Free threads and memory. Idempotent."""
