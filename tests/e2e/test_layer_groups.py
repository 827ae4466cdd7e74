"""Models whose layers have sliding windows: giving away what is behind the window changes no bits, and saves what it should."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from octavo import EngineArgs, SamplingParams
from octavo.engine.core import EngineCore
from octavo.outputs import EngineStats
from octavo.request import EngineCoreRequest
from support.tiny_models import VOCAB, make

WINDOW = 16  # of the small models
Bits = dict[str, list[tuple[int, float]]]


def requests() -> list[EngineCoreRequest]:
    """Ten, most of them longer than the window; some have a prefix in common, and the last two are asked a second time."""
    rng = random.Random(4)
    shared = [rng.randrange(3, VOCAB) for _ in range(100)]
    prompts = [[*shared[: rng.choice([0, 40, 64, 100])], *(rng.randrange(3, VOCAB) for _ in range(rng.randint(1, 80)))] for _ in range(8)]
    params = [SamplingParams(max_tokens=rng.randint(1, 50), temperature=0.8, seed=i, ignore_eos=True, logprobs=0) for i in range(8)]
    order = [*range(8), 6, 7]
    return [EngineCoreRequest(f"{place}: {i}", prompts[i], params[i]) for place, i in enumerate(order)]


def serve(core: EngineCore, asked: list[EngineCoreRequest]) -> Bits:
    found: Bits = {}
    for request in asked:
        core.add_request(request)
    while core.has_unfinished_requests:
        for output in core.step().outputs:
            assert output.error is None
            pairs = zip(output.new_token_ids, output.new_logprobs or (), strict=True)
            found.setdefault(output.request_id, []).extend((token, scores.logprobs[0]) for token, scores in pairs)
        core.scheduler.check_integrity()
    return found


def run(folder: Path, lag: int = 0, **settings: Any) -> tuple[Bits, EngineStats]:
    """All at once."""
    core = EngineCore(EngineArgs(model=str(folder), max_model_len=256, quantization="int8", **settings), lag=lag)
    try:
        return serve(core, requests()), core.stats()
    finally:
        core.close()


@pytest.fixture(scope="module", params=["gemma3", "mistral"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers of three, or all of them, see a window."""
    folder = tmp_path_factory.mktemp(request.param)
    make(request.param, folder)
    return folder


@pytest.fixture(scope="module")
def alone(folder: Path) -> Bits:
    """Each by itself, on one thread, its prompt computed in one step, in a slot that keeps everything."""
    args = EngineArgs(
        model=str(folder), max_model_len=256, quantization="int8", kv_policy="static", num_gpu_blocks_override=16, num_threads=1
    )
    core = EngineCore(args)
    try:
        return {name: bits for request in requests() for name, bits in serve(core, [request]).items()}
    finally:
        core.close()


@pytest.mark.parametrize(
    "settings",
    [
        {"num_gpu_blocks_override": 17, "max_num_batched_tokens": 32, "max_num_seqs": 8},
        {"num_gpu_blocks_override": 17, "max_num_batched_tokens": 32, "max_num_seqs": 8, "lag": 1},
        {"num_gpu_blocks_override": 60, "max_num_batched_tokens": 7, "max_num_seqs": 7, "block_size": 8, "kv_prefix_index": "radix"},
        {"num_gpu_blocks_override": 17, "max_num_batched_tokens": 40, "max_num_seqs": 8, "preemption_mode": "swap", "kv_eviction": "cost"},
        {"num_gpu_blocks_override": 30, "kv_policy": "contiguous", "max_num_batched_tokens": 256},
        {"num_gpu_blocks_override": 16, "block_size": 32, "kv_cache_dtype": "bf16", "kv_admission": "predicted"},
    ],
)
def test_lt_02_giving_blocks_away_behind_a_window_changes_no_bits(folder: Path, alone: Bits, settings: dict[str, Any]) -> None:
    found, stats = run(folder, **settings)
    assert found == alone
    if "kv_policy" not in settings:
        assert stats.prefix_hits > 0
    if settings["num_gpu_blocks_override"] == 17 and "kv_policy" not in settings and folder.name.startswith("gemma3"):
        assert stats.preemptions > 0, "the pool was too large to prove anything"


def test_a_second_turn_finds_its_prefix_in_every_group(folder: Path) -> None:
    """Tokens cached are as many as without windows, though most of the first turn's blocks are behind the window by then."""
    core = EngineCore(EngineArgs(model=str(folder), max_model_len=256, num_gpu_blocks_override=64))
    try:
        params = SamplingParams(max_tokens=20, temperature=0.0, seed=0, ignore_eos=True)
        prompt = [3 + 7 * i % 150 for i in range(150)]
        core.add_request(EngineCoreRequest("first", prompt, params))
        while core.has_unfinished_requests:
            core.step()
        core.add_request(EngineCoreRequest("second", prompt, params))
        outputs = [output for _ in range(20) for output in core.step().outputs]
        assert outputs[-1].num_cached_tokens == 149 // 16 * 16
        groups = " in 64 (full) and 64 (window16) blocks of 16" if folder.name.startswith("gemma3") else " in 64 blocks of 16"
        assert groups in core.info.describe()[1]
    finally:
        core.close()


@pytest.mark.slow
def test_gemma3_at_8k_context_holds_less_than_26_percent(gemma3_path: Path) -> None:
    core = EngineCore(EngineArgs(model=str(gemma3_path), max_model_len=8256, max_num_seqs=1, enable_prefix_caching=False))
    try:
        params = SamplingParams(max_tokens=16, temperature=0.0, seed=0, ignore_eos=True)
        core.add_request(EngineCoreRequest("long", [1000 + 7 * i % 5000 for i in range(8192)], params))
        shares = []
        while core.has_unfinished_requests:
            core.step()
            groups = core.kv.usage().groups
            assert [group.name for group in groups] == ["full", "window512"]
            if core.scheduler.running and core.scheduler.running[0].num_output_tokens:
                whole = groups[0].held // 16 * core.info.kv_bytes_per_token * 16
                shares.append(sum(group.nbytes(group.held) for group in groups) / whole)
        assert len(shares) == 15 and 0.21 < min(shares) <= max(shares) < 0.26
    finally:
        core.close()
