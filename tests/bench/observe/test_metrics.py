"""/metrics of four engines, as they send it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.bench.observe.metrics import DIALECTS, Values, read_values, recognise
from octavo.bench.observe.observation import SERIES

LLAMA = """# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed, excluding cached tokens
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 182
# HELP llamacpp:prompt_tokens_cached_total Number of prompt tokens reused from the cache
# TYPE llamacpp:prompt_tokens_cached_total counter
llamacpp:prompt_tokens_cached_total 180
# TYPE llamacpp:prompt_seconds_total counter
llamacpp:prompt_seconds_total 5.68371
# TYPE llamacpp:tokens_predicted_total counter
llamacpp:tokens_predicted_total 40
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 1
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred 2
"""
"""From llama-server b11434: 181 prompt tokens, asked twice."""

VLLM = """# HELP python_gc_objects_collected_total Objects collected during gc
# TYPE python_gc_objects_collected_total counter
python_gc_objects_collected_total{generation="0"} 12843.0
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="smollm2"} 3.0
vllm:num_requests_running{engine="1",model_name="smollm2"} 1.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="smollm2"} 2.0
# TYPE vllm:num_requests_waiting_by_reason gauge
vllm:num_requests_waiting_by_reason{engine="0",model_name="smollm2",reason="capacity"} 2.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="smollm2"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="smollm2"} 0.75
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="smollm2"} 362.0
# TYPE vllm:prefix_cache_queries_created gauge
vllm:prefix_cache_queries_created{engine="0",model_name="smollm2"} 1.79e+09
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{engine="0",model_name="smollm2"} 128.0
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{engine="0",model_name="smollm2"} 5.0
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="smollm2"} 362.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="smollm2"} 40.0
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.001",model_name="smollm2"} 0.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="smollm2"} 2.0
"""
"""From vLLM 0.32.0, which was asked the same; gauges and a second engine by hand."""

SGLANG = """# HELP sglang:prompt_tokens_total Number of prefill tokens processed.
# TYPE sglang:prompt_tokens_total counter
sglang:prompt_tokens_total{model_name="m",tp_rank="0"} 900.0
sglang:prompt_tokens_total{model_name="m",tp_rank="1"} 900.0
# TYPE sglang:generation_tokens_total counter
sglang:generation_tokens_total{model_name="m",tp_rank="0"} 70.0
# TYPE sglang:token_usage gauge
sglang:token_usage{model_name="m",tp_rank="0"} 0.28
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{model_name="m",tp_rank="0"} 7.0
sglang:num_running_reqs{model_name="m",tp_rank="1"} 7.0
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{model_name="m",tp_rank="0"} 4.0
# TYPE sglang:cached_tokens_total counter
sglang:cached_tokens_total{model_name="m",cache_source="device"} 200.0
sglang:cached_tokens_total{model_name="m",cache_source="host"} 25.0
# TYPE sglang:num_retracted_requests_total counter
sglang:num_retracted_requests_total{model_name="m"} 1.0
"""

OCTAVO = """# TYPE octavo_num_requests_running gauge
octavo_num_requests_running{model_name="m"} 3.0
octavo_num_requests_waiting{model_name="m"} 1.0
octavo_kv_cache_usage_perc{model_name="m"} 0.5
octavo_kv_bytes_live{group="full",model_name="m"} 60.0
octavo_kv_bytes_live{group="window",model_name="m"} 15.0
octavo_kv_bytes_held{group="full",model_name="m"} 80.0
octavo_kv_bytes_held{group="window",model_name="m"} 20.0
octavo_kv_fragmentation{group="full",model_name="m"} 0.0
octavo_kv_fragmentation{group="window",model_name="m"} 0.25
octavo_num_preemptions_total{model_name="m"} 2.0
octavo_prefix_cache_queries_total{model_name="m"} 10.0
octavo_prefix_cache_hits_total{model_name="m"} 4.0
octavo_prompt_tokens_total{model_name="m"} 10.0
octavo_generation_tokens_total{model_name="m"} 6.0
octavo_engine_gc_seconds_total{model_name="m"} 0.5
octavo_server_gc_seconds_total 0.25
"""

EXPECTED: dict[str, tuple[str, dict[str, float]]] = {
    "llama.cpp": (
        LLAMA,
        {"running": 1, "waiting": 2, "prefix_queries": 362, "prefix_hits": 180, "prompt_tokens": 362, "generation_tokens": 40},
    ),
    "vllm": (
        VLLM,
        {"running": 4, "waiting": 2, "kv_usage": 0.5, "preemptions": 5, "prefix_queries": 362, "prefix_hits": 128}
        | {"prompt_tokens": 362, "generation_tokens": 40},
    ),
    "sglang": (
        SGLANG,
        {"running": 7, "waiting": 4, "kv_usage": 0.28, "preemptions": 1, "prefix_queries": 900, "prefix_hits": 225}
        | {"prompt_tokens": 900, "generation_tokens": 70},
    ),
    "octavo": (
        OCTAVO,
        {"running": 3, "waiting": 1, "kv_usage": 0.5, "kv_efficiency": 0.75, "fragmentation": 0.25, "preemptions": 2}
        | {"prefix_queries": 10, "prefix_hits": 4, "prompt_tokens": 10, "generation_tokens": 6, "gc_seconds": 0.75},
    ),
}


def read(text: str) -> tuple[str | None, dict[str, Any], int]:
    dialect = recognise(text)
    if dialect is None:
        return None, {}, 0
    values, broken = read_values(text, dialect)
    return dialect.engine, {name: read(values) for name, read in dialect.reads.items()}, broken


@pytest.mark.parametrize("engine", EXPECTED)
def test_each_engine_is_recognised_and_understood(engine: str) -> None:
    text, expected = EXPECTED[engine]
    found, told, broken = read(text)
    assert (found, broken) == (engine, 0)
    assert told == pytest.approx(dict.fromkeys(told) | expected) and told.keys() <= set(SERIES)


def test_older_names_of_vllm_are_known() -> None:
    text = 'vllm:gpu_cache_usage_perc{model_name="m"} 0.5\nvllm:gpu_prefix_cache_queries_total 8.0\nvllm:gpu_prefix_cache_hits_total 2.0\n'
    _, told, _ = read(text)
    assert (told["kv_usage"], told["prefix_queries"], told["prefix_hits"], told["running"]) == (0.5, 8, 2, None)


def test_an_idle_pool_has_no_efficiency() -> None:
    _, told, _ = read('octavo_kv_bytes_live{group="all"} 0.0\noctavo_kv_bytes_held{group="all"} 0.0\n')
    assert told["kv_efficiency"] is None


def test_foreign_text_is_of_nobody() -> None:
    for text in ("", "mock:running 1\n", "# about vllm: nothing\n", "process_cpu_seconds_total 5\n", "<html>"):
        assert recognise(text) is None


def test_broken_lines_are_counted_and_the_rest_stands() -> None:
    torn = (
        VLLM.replace('waiting{engine="0",model_name="smollm2"} 2.0', 'waiting{engine="0",model_name="smo').rstrip() + "\nvllm:num_preempt"
    )
    _, told, broken = read(torn)
    assert broken >= 1
    assert (told["running"], told["waiting"], told["preemptions"]) == (4, None, 5)


def test_numbers_that_are_none_are_left_out() -> None:
    values = Values()
    values.add("a", {}, float("nan"))
    values.add("a", {}, float("inf"))
    assert not values


@given(st.sampled_from([text for text, _ in EXPECTED.values()]), st.integers(0, 3000), st.binary(max_size=8), st.integers(0, 40))
def test_no_text_breaks_the_reader(text: str, place: int, inserted: bytes, removed: int) -> None:
    torn = text.encode()[:place] + inserted + text.encode()[place + removed :]
    read(torn.decode("utf-8", "replace"))


def test_every_dialect_says_only_what_a_sample_holds() -> None:
    for dialect in DIALECTS:
        assert set(dialect.reads) <= set(SERIES)
