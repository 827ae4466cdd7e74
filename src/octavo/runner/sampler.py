"""From logits to tokens: one call for the whole batch, native where the native module is there."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from octavo.outputs import TokenLogprobs
from octavo.runner import sampling_reference
from octavo.runner.sampling_state import SamplingState

if TYPE_CHECKING:
    from octavo._native import ThreadPool

F32Array = npt.NDArray[np.float32]
Int32Array = npt.NDArray[np.int32]
LogprobFacts = tuple[Int32Array, F32Array, F32Array, Int32Array]

LOGPROB_FLOOR = -9999.0
"""Stands for the log of zero, which neither JSON nor a sum can carry."""


@dataclass(slots=True)
class SamplerOutput:
    """One entry a row. A failed row has token id -1, no logprobs, and a text in ``errors``."""

    token_ids: list[int]
    logprobs: list[TokenLogprobs | None]
    errors: dict[int, str] = field(default_factory=dict)
    """By row."""
    native_seconds: float = 0.0


class Sampler:
    """Samples one token a row. Log-probabilities are of the model's own logits, before any mask, bias, penalty or temperature."""

    def __init__(self, pool: ThreadPool | None = None, isa: str | None = None, vocab_size: int = 0) -> None:
        """With a thread pool the native kernels of ``isa`` (None: the best) sample; without one the reference does, slowly.

        Memory is kept for ``vocab_size`` tokens. Used by one thread.
        """
        self._choose: Callable[[F32Array, Sequence[SamplingState]], list[int]] = _choose_reference
        self._facts: Callable[[F32Array, Int32Array, int], LogprobFacts] = sampling_reference.logprobs
        self._native_seconds = 0.0
        self._vocab_size = vocab_size
        self._copies = np.empty((0, vocab_size), np.float32)
        if pool is not None:
            self._use_native(pool, isa, vocab_size)

    def reserve(self, max_rows: int) -> None:
        """Make room for copies of so many rows: of logits that penalties and masks change, or of some of a step's rows."""
        self._copies = np.empty((max_rows, self._vocab_size), np.float32)

    def sample(self, logits: F32Array, rows: Sequence[SamplingState]) -> SamplerOutput:
        """Sample from ``logits`` [rows, V], which are not changed; ``rows`` get no token appended here."""
        self._native_seconds = 0.0
        adjusted = logits
        if any(state.adjusts for state in rows):
            adjusted = self._room(logits, len(rows))
            np.copyto(adjusted, logits)
            for row, state in zip(adjusted, rows, strict=True):
                if state.adjusts:
                    state.adjust(row)
        token_ids = self._choose(adjusted, rows)
        errors = {row: _why_nothing(adjusted[row]) for row, token in enumerate(token_ids) if token < 0}
        return SamplerOutput(token_ids, self._logprobs(logits, rows, token_ids), errors, self._native_seconds)

    def pick(self, logits: F32Array, rows: Sequence[int]) -> F32Array:
        """``rows`` of ``logits``: a view where it may be, else a copy that the next call overwrites."""
        if len(rows) == len(logits):
            return logits
        return np.take(logits, rows, axis=0, out=self._room(logits, len(rows)), mode="clip")  # "raise" would copy once more

    def _room(self, logits: F32Array, num_rows: int) -> F32Array:
        if num_rows > len(self._copies) or logits.shape[1] != self._copies.shape[1]:
            self._copies = np.empty((num_rows, logits.shape[1]), np.float32)
        return self._copies[:num_rows]

    def prompt_logprobs(self, logits: F32Array, token_ids: Sequence[int], num: int) -> list[TokenLogprobs]:
        """Log-probabilities of prompt tokens: row i of ``logits`` [rows, V] is what the model expected where ``token_ids[i]`` stands."""
        ids = np.asarray(token_ids, np.int32)
        return _pack(ids, self._facts(np.ascontiguousarray(logits), ids, num), [num] * len(ids))

    def _logprobs(self, logits: F32Array, rows: Sequence[SamplingState], token_ids: list[int]) -> list[TokenLogprobs | None]:
        found: list[TokenLogprobs | None] = [None] * len(rows)
        asking = [i for i, state in enumerate(rows) if state.params.logprobs is not None and token_ids[i] >= 0]
        if asking:
            counts = [rows[i].params.logprobs or 0 for i in asking]
            chosen = np.array([token_ids[i] for i in asking], np.int32)
            facts = self._facts(self.pick(logits, asking), chosen, max(counts))
            for i, entry in zip(asking, _pack(chosen, facts, counts), strict=True):
                found[i] = entry
        return found

    def _use_native(self, pool: ThreadPool, isa: str | None, vocab_size: int) -> None:
        from octavo import _native

        scratch = _native.SamplingScratch(pool, vocab_size)
        batch: list[SamplingState] = []
        rules = _native.SamplingRules(*_rules(batch))

        def choose(logits: F32Array, rows: Sequence[SamplingState]) -> list[int]:
            nonlocal batch, rules
            if batch != rows:
                batch, rules = list(rows), _native.SamplingRules(*_rules(rows))
            indices = [len(state.output_token_ids) for state in rows]
            start = time.perf_counter()
            ids = _native.sample(pool, logits, rules, indices, isa, scratch)
            self._native_seconds += time.perf_counter() - start
            return ids

        def facts(logits: F32Array, chosen: Int32Array, num: int) -> LogprobFacts:
            start = time.perf_counter()
            found = _native.logprobs(pool, logits, chosen, num, isa, scratch)
            self._native_seconds += time.perf_counter() - start
            return found

        self._choose, self._facts = choose, facts


def _why_nothing(row: F32Array) -> str:
    """Why no token can be sampled from a row, whose largest logit is not a finite number."""
    return "every token is forbidden" if np.isneginf(row).all() else "the model's logits are not finite numbers"


def _choose_reference(logits: F32Array, rows: Sequence[SamplingState]) -> list[int]:
    """What ``octavo._native.sample`` does, row by row."""
    chosen = np.argmax(logits, axis=1)
    for i, (temperature, top_k, top_p, min_p, seed) in enumerate(zip(*_rules(rows), strict=True)):
        if not np.isfinite(logits[i, chosen[i]]):
            chosen[i] = -1
        elif not rows[i].params.greedy:
            index = len(rows[i].output_token_ids)
            chosen[i] = sampling_reference.sample_row(logits[i], _f32(temperature), top_k, _f32(top_p), _f32(min_p), seed, index)
    return [int(token) for token in chosen]


def _rules(rows: Sequence[SamplingState]) -> tuple[list[float], list[int], list[float], list[float], list[int]]:
    """temperature, top_k, top_p, min_p and seeds."""
    params = [state.params for state in rows]
    return (
        [p.temperature for p in params],
        [p.top_k for p in params],
        [p.top_p for p in params],
        [p.min_p for p in params],
        [state.seed for state in rows],
    )


def _f32(number: float) -> float:
    """As the native rules hold it."""
    return float(np.float32(number))


def _pack(chosen: Int32Array, facts: LogprobFacts, counts: Sequence[int]) -> list[TokenLogprobs]:
    """Wire records from arrays; row i keeps its ``counts[i]`` likeliest."""
    top, top_logprobs, chosen_logprobs, ranks = facts
    top_floored, chosen_floored = np.maximum(top_logprobs, LOGPROB_FLOOR), np.maximum(chosen_logprobs, LOGPROB_FLOOR)
    return [
        TokenLogprobs(
            [int(chosen[i]), *top[i, :count].tolist()],
            [float(chosen_floored[i]), *top_floored[i, :count].tolist()],
            int(ranks[i]),
        )
        for i, count in enumerate(counts)
    ]
