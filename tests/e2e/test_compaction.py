"""Compaction under the real model: blocks of running requests move between steps, and nobody's tokens change."""

from __future__ import annotations

from pathlib import Path

from octavo import EngineArgs, SamplingParams
from octavo.engine.core import EngineCore
from octavo.request import EngineCoreRequest

LONG, SHORT = (20, 100), (50, 14)
"""Tokens of prompt and output: of runs of 8 and 4 blocks."""


def generate(path: Path, lag: int, **args: object) -> tuple[dict[str, list[tuple[int, float]]], int]:
    """Each request's tokens with their log-probabilities; and how many blocks were moved. In a pool that the first four fill."""
    core = EngineCore(EngineArgs(model=str(path), max_model_len=128, num_gpu_blocks_override=24, **args), lag=lag)  # type: ignore[arg-type]
    found: dict[str, list[tuple[int, float]]] = {}
    try:
        requests = {"short 1": SHORT, "long 1": LONG, "short 2": SHORT, "long 2": LONG, "waits for 8 blocks": LONG}
        for i, (name, (prompt, output)) in enumerate(requests.items()):
            params = SamplingParams(max_tokens=output, temperature=0.8, seed=i, ignore_eos=True, logprobs=0)
            core.add_request(EngineCoreRequest(name, [1000 + 7 * j * (i + 1) for j in range(prompt)], params))
        while core.has_unfinished_requests:
            for each in core.step().outputs:
                pairs = zip(each.new_token_ids, each.new_logprobs or (), strict=True)
                found.setdefault(each.request_id, []).extend((token, scores.logprobs[0]) for token, scores in pairs)
            core.check_integrity()
        return found, core.stats().kv_moved_blocks
    finally:
        core.close()


def test_kv_18_outputs_are_bit_identical_when_blocks_move_half_way(smollm2_path: Path) -> None:
    """Also with a step in flight while they move."""
    plain, _ = generate(smollm2_path, 0)
    compacted, num_moved = generate(smollm2_path, 1, kv_policy="contiguous", kv_compaction=True, kv_compaction_blocks=1)
    assert num_moved > 1
    assert compacted == plain and len(plain["long 1"]) == 100
