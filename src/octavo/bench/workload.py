"""Requests to measure with: random prompts of given lengths, the same for the same seed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from octavo.request import EngineCoreRequest
from octavo.sampling_params import SamplingParams


def random_requests(
    count: int, input_len: int, output_len: int, vocab_size: int, seed: int, name: str = "bench"
) -> Iterator[EngineCoreRequest]:
    """``count`` requests of ``input_len`` uniformly random tokens, greedy, that end after ``output_len`` tokens and not before."""
    random = np.random.default_rng(seed)
    for i in range(count):
        yield EngineCoreRequest(
            request_id=f"{name}-{i}",
            prompt_token_ids=random.integers(0, vocab_size, input_len).tolist(),
            sampling_params=SamplingParams(temperature=0, max_tokens=output_len, ignore_eos=True, detokenize=False, seed=seed),
        )
