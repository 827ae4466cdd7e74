"""Settings: bounds, and that each says whether it shapes the output's bits."""

from __future__ import annotations

import dataclasses

import pytest

from octavo.config import AsyncEngineArgs, EngineArgs
from octavo.errors import InvalidRequestError

SHAPES_BITS = {
    "model",
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "kv_scales",
    "enforce_eager",
    "isa",
    "tensor_parallel_size",
}


def test_every_setting_is_classed_as_shaping_bits_or_not() -> None:
    for field in dataclasses.fields(EngineArgs):
        assert {"doc", "numerics", "low", "high", "choices"} <= field.metadata.keys(), f"declare {field.name} with setting()"
        assert field.metadata["doc"].endswith("."), field.name
    assert set(EngineArgs().numerics()) == SHAPES_BITS, "a setting changed class: is that right?"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dtype", "float64"),
        ("quantization", "fp8"),
        ("block_size", 12),
        ("block_size", 128),
        ("max_num_seqs", 0),
        ("max_num_seqs", True),
        ("max_model_len", -1),
        ("gpu_memory_utilization", 1.5),
        ("gpu_memory_utilization", float("nan")),
        ("tensor_parallel_size", 2),
        ("kv_cache_dtype", "fp4"),
        ("kv_scales", "per-block"),
        ("kv_scales", "dynamic"),
        ("isa", "sse2"),
        ("num_threads", 0),
        ("seed", -1),
        ("kv_policy", "best"),
        ("prefix_cache_dir", ""),
        ("prefix_cache_dir", "a\0b"),
    ],
)
@pytest.mark.parametrize("kind", [EngineArgs, AsyncEngineArgs])
def test_a_bad_value_is_refused_by_name(kind: type[EngineArgs], field: str, value: object) -> None:
    with pytest.raises(InvalidRequestError, match=rf"^{field} = ") as caught:
        kind(**{field: value})  # type: ignore[arg-type]
    assert caught.value.field == field


def test_quantizing_what_is_dequantized_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="quantization = int8"):
        EngineArgs(quantization="int8", dtype="float32")


def test_policies_of_the_seams() -> None:
    assert EngineArgs().kv_policies() == {"placement": "paged", "prefix_index": "hash", "eviction": "lru", "admission": "optimistic"}
    assert EngineArgs(enable_prefix_caching=False, kv_prefix_index="hash").kv_policies()["prefix_index"] == "none"
    assert EngineArgs(kv_admission="guaranteed").kv_policies()["admission"] == "guaranteed"


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("max_num_seqs", 1.5, "an integer"),
        ("max_num_seqs", True, "an integer"),
        ("block_size", None, "an integer"),
        ("gpu_memory_utilization", "0.5", "a number"),
        ("gpu_memory_utilization", float("nan"), "0.01 to 1.0"),
        ("enable_prefix_caching", "no", "True or False"),
        ("model", 3, "a string"),
    ],
)
def test_a_value_of_another_type_is_refused(field: str, value: object, said: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"{field} = .*: it must be {said}") as error:
        EngineArgs(**{field: value})
    assert error.value.field == field
