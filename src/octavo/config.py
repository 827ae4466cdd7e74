"""Every setting of an engine: its default, its bounds, what it does, and whether it shapes the output's bits.

``EngineArgs`` is what a user writes (names are vLLM's); the command line derives its flags from it. A field is
declared with ``setting``, which must say whether the field is part of numerics_id: so a new field cannot be
forgotten in the digest (a test walks them).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from octavo.errors import InvalidRequestError

KV_POLICIES: dict[str, dict[str, str]] = {
    "paged": {"placement": "paged", "prefix_index": "hash", "eviction": "lru", "admission": "optimistic"},
    "contiguous": {"placement": "contiguous", "prefix_index": "none", "eviction": "lru", "admission": "guaranteed"},
    "static": {"placement": "static", "prefix_index": "none", "eviction": "lru", "admission": "guaranteed"},
}
"""What ``--kv-policy`` names: one choice a seam."""
KV_8_BIT = ("fp8", "fp8_e4m3", "fp8_e5m2", "int8")
"""Values of kv_cache_dtype that have scales."""
KV_DTYPE_ALIASES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "fp8": "fp8_e4m3"}
"""Values of kv_cache_dtype that are other names of one type."""


def setting(
    default: Any,
    doc: str,
    *,
    numerics: bool,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] | None = None,
) -> Any:
    """A config field with its help text, bounds, and whether it shapes the output's bits."""
    metadata = {"doc": doc, "numerics": numerics, "low": low, "high": high, "choices": choices}
    return field(default=default, metadata=metadata)


@dataclass(kw_only=True)
class EngineArgs:
    """Settings of one engine.

    Raises:
        InvalidRequestError: on construction, naming the field, its value and its limit.
    """

    model: str = setting("smollm2", "An alias, a .gguf file, a folder with safetensors, or a Hugging Face id.", numerics=True)
    tokenizer: str | None = setting(None, "Where the tokenizer comes from, when not from the model.", numerics=False)
    dtype: str = setting(
        "auto",
        "Arithmetic: auto keeps the file's formats; float32 dequantizes everything.",
        numerics=True,
        choices=("auto", "bfloat16", "float32"),
    )
    quantization: str | None = setting(None, "Quantize full-precision weights at load.", numerics=True, choices=("int8", "int4"))
    max_model_len: int | None = setting(
        None,
        "Most tokens of one sequence, prompt and output; by default what the model was trained for.",
        numerics=False,
        low=1,
        high=2**24,
    )
    max_num_seqs: int = setting(256, "Most sequences in one step.", numerics=False, low=1, high=65536)
    max_num_batched_tokens: int = setting(
        512, "Most tokens in one step; a longer prompt is prefilled in chunks.", numerics=False, low=1, high=2**20
    )
    enable_chunked_prefill: bool = setting(True, "Spread a long prefill over steps, so that decodes go on beside it.", numerics=False)
    scheduling_policy: str = setting(
        "fcfs", "Order of the waiting: by arrival, or by priority first.", numerics=False, choices=("fcfs", "priority")
    )
    itl_slo_ms: float | None = setting(
        None,
        "Milliseconds between a request's tokens that steps are planned for: prefill is cut to fit beside the decodes, and a request "
        "starts only where the batch stays inside. By default --max-num-batched-tokens alone bounds a step.",
        numerics=False,
        low=1,
        high=1e6,
    )
    ttft_slo_ms: float | None = setting(
        None,
        "Milliseconds to the first token: the server refuses (429) a request that would wait longer, by what is ahead of it.",
        numerics=False,
        low=1,
        high=1e7,
    )
    max_queued_requests: int | None = setting(
        None,
        "Requests that may wait; the server refuses (429) one more. By default as many as come.",
        numerics=False,
        low=0,
        high=2**31 - 1,
    )
    block_size: int = setting(16, "Tokens in a KV block.", numerics=False, low=8, high=64)
    kv_cache_dtype: str = setting(
        "auto",
        "How K and V are stored; auto is bfloat16 (float32 under --dtype float32), fp8 is fp8_e4m3.",
        numerics=True,
        choices=("auto", "bfloat16", "bf16", "fp16", "float16", "fp32", "float32", *KV_8_BIT),
    )
    kv_scales: str = setting(
        "auto",
        "Scales of 8-bit K and V: static, one a layer, from the checkpoint or 1.0; dynamic, one a token and head; guarded, static but "
        "where that clips or errs too much. auto is guarded for fp8, dynamic for int8.",
        numerics=True,
        choices=("auto", "static", "dynamic", "guarded"),
    )
    gpu_memory_utilization: float = setting(
        0.4,
        "The share of the machine's free memory that KV may take (the name is vLLM's; it holds for a CPU too).",
        numerics=False,
        low=0.01,
        high=1.0,
    )
    kv_cache_memory_bytes: int | None = setting(
        None, "KV memory in bytes, exactly; overrides gpu_memory_utilization.", numerics=False, low=1, high=2**50
    )
    num_gpu_blocks_override: int | None = setting(
        None, "KV blocks of each layer group, exactly; overrides both.", numerics=False, low=1, high=2**31 - 1
    )
    kv_prefault: bool | None = setting(
        None, "Take the KV pool's memory from the system before it is needed, in the background; by default serve does.", numerics=False
    )
    enable_prefix_caching: bool = setting(True, "Share computed KV blocks between equal prefixes.", numerics=False)
    prefix_cache_dir: str | None = setting(
        None, "A folder for KV blocks that the prefix cache has no room for: they are found again, after a restart too.", numerics=False
    )
    prefix_cache_disk_gb: float = setting(
        10.0, "Most GB (10^9 bytes) in --prefix-cache-dir; what was used longest ago goes first.", numerics=False, low=0.001, high=2**20
    )
    kv_policy: str = setting("paged", "A set of KV policies, one a seam.", numerics=False, choices=tuple(KV_POLICIES))
    kv_placement: str | None = setting(None, "Override which free blocks a request gets.", numerics=False)
    kv_prefix_index: str | None = setting(None, "Override how shared prefixes are found.", numerics=False)
    kv_eviction: str | None = setting(None, "Override which idle cached block goes first.", numerics=False)
    kv_admission: str | None = setting(None, "Override when a waiting request may start.", numerics=False)
    preemption_mode: str = setting(
        "recompute",
        "What becomes of a preempted request's KV: computed again, or kept in host memory as far as --swap-space goes.",
        numerics=False,
        choices=("recompute", "swap"),
    )
    swap_space: float = setting(
        4.0, "GiB of host memory for preempted requests, under --preemption-mode swap.", numerics=False, low=0, high=2**20
    )
    preemption_victim: str = setting(
        "last", "Who is preempted: last (in rank), cheapest (fewest tokens to compute again), or a plugin's.", numerics=False
    )
    kv_compaction: bool = setting(
        False, "Move blocks together between steps when a waiting request lacks a run (contiguous placements).", numerics=False
    )
    kv_compaction_blocks: int = setting(32, "Most blocks that compaction moves in a step.", numerics=False, low=1, high=2**20)
    enforce_eager: bool = setting(False, "Run the ops one by one, unfused.", numerics=True)
    num_threads: int | None = setting(
        None, "Compute threads; by default from CPU affinity and the cgroup's quota.", numerics=False, low=1, high=1024
    )
    isa: str | None = setting(
        None,
        "Force an instruction set; by default the best this CPU has.",
        numerics=True,
        choices=("avx512", "avx2", "neon_i8mm", "neon_dotprod", "neon", "generic"),
    )
    seed: int | None = setting(None, "Makes the seeds drawn for unseeded requests repeatable.", numerics=False, low=0, high=2**63 - 1)
    tensor_parallel_size: int = setting(1, "Devices a model is split over; this build has one.", numerics=True, low=1, high=1)
    max_logprobs: int = setting(20, "Most logprobs a request may ask for.", numerics=False, low=0, high=100)
    runner_cls: str = setting("octavo.runner.model_runner:ModelRunner", "The class that runs a step, as module:name.", numerics=False)

    def __post_init__(self) -> None:
        for spec in dataclasses.fields(self):
            _check_type(spec, getattr(self, spec.name))
            _check(spec.name, getattr(self, spec.name), spec.metadata)
        if self.block_size not in (8, 16, 32, 64):
            raise InvalidRequestError(f"block_size = {self.block_size}: it must be 8, 16, 32 or 64", field="block_size")
        if self.kv_scales != "auto" and self.kv_cache_dtype not in KV_8_BIT:
            raise InvalidRequestError(
                f"kv_scales = {self.kv_scales}: kv_cache_dtype = {self.kv_cache_dtype} has no scales; {', '.join(KV_8_BIT)} have",
                field="kv_scales",
            )
        if self.prefix_cache_dir is not None and (not self.prefix_cache_dir or "\0" in self.prefix_cache_dir):
            raise InvalidRequestError(f"prefix_cache_dir = {self.prefix_cache_dir!r}: it must name a folder", field="prefix_cache_dir")
        if self.prefix_cache_dir is not None and self.kv_policies()["prefix_index"] == "none":
            raise InvalidRequestError(
                f"prefix_cache_dir = {self.prefix_cache_dir!r}: nothing is cached with prefix index none", field="prefix_cache_dir"
            )
        if self.quantization and self.dtype == "float32":
            raise InvalidRequestError(
                f"quantization = {self.quantization}: dtype float32 dequantizes every weight; choose one", field="quantization"
            )

    def kv_policies(self) -> dict[str, str]:
        """The policy chosen for each seam: placement, prefix_index, eviction, admission."""
        chosen = dict(KV_POLICIES[self.kv_policy])
        for seam in chosen:
            if (override := getattr(self, f"kv_{seam}")) is not None:
                chosen[seam] = override
        if not self.enable_prefix_caching:
            chosen["prefix_index"] = "none"
        return chosen

    def numerics(self) -> dict[str, Any]:
        """The settings that shape the output's bits."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.metadata["numerics"]}


@dataclass(kw_only=True)
class AsyncEngineArgs(EngineArgs):
    """EngineArgs for AsyncLLMEngine; the name is vLLM's."""


_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "bool": ((bool,), "True or False"),
    "int": ((int,), "an integer"),
    "float": ((int, float), "a number"),
    "str": ((str,), "a string"),
}


def _check_type(spec: dataclasses.Field[Any], value: Any) -> None:
    kind, _, none = str(spec.type).partition(" | ")
    if value is None and none:
        return
    classes, said = _TYPES[kind]
    if not isinstance(value, classes) or (isinstance(value, bool) and kind != "bool"):
        raise InvalidRequestError(f"{spec.name} = {value!r}: it must be {said}", field=spec.name)


def _check(name: str, value: Any, rule: Any) -> None:
    if value is None:
        return
    low, high, choices = rule["low"], rule["high"], rule["choices"]
    if choices is not None and value not in choices:
        raise InvalidRequestError(f"{name} = {value!r}: choose one of {', '.join(choices)}", field=name)
    if low is not None and not low <= value <= high:
        raise InvalidRequestError(f"{name} = {value!r}: it must be {low if low == high else f'{low} to {high}'}", field=name)
