"""One model with its KV stored in several ways side by side, below the scheduler: what octavo.bench.kv_report measures."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from octavo.config import EngineArgs
from octavo.errors import InvalidRequestError

if TYPE_CHECKING:
    from octavo.runner.scoring import ScoringRunner


@dataclass(frozen=True)
class KVVariant:
    """A way to store K and V: settings of EngineArgs."""

    dtype: str
    scales: str | None = None
    """Of 8-bit types."""

    def __str__(self) -> str:
        return f"{self.dtype}/{self.scales}" if self.scales else self.dtype

    def settings(self, args: EngineArgs) -> EngineArgs:
        """``args`` with K and V stored this way."""
        return dataclasses.replace(args, kv_cache_dtype=self.dtype, kv_scales=self.scales or "auto")


class Scorer:
    """One sequence of given tokens under one variant."""

    def __init__(self, variant: KVVariant, runner: ScoringRunner, block_size: int) -> None:
        info = runner.info()
        self.variant = variant
        self.numerics_id = info.numerics_id
        self.block_bytes = sum(group.bytes_per_block for group in info.groups)
        self.bytes_per_token = self.block_bytes / block_size
        self._runner = runner

    def run(self, token_ids: npt.NDArray[np.int32], start: int, num_logits: int) -> npt.NDArray[np.float32]:
        """Compute tokens at positions ``start`` and on, and store their K and V; the tokens before them must have been computed.

        Returns the logits [num_logits, vocab] after the last ``num_logits`` of them: a view, valid until any scorer's next run.
        """
        return self._runner.run(token_ids, start, num_logits)

    def guarded_share(self) -> list[float]:
        """Of the K and V vectors written so far, by layer, those that the guard gave a scale of their own; 0 to 1."""
        writes = self._runner.kv_writes()
        parts = zip(writes.vectors, writes.guarded_k, writes.guarded_v, strict=True)
        return [(k + v) / (2 * vectors) for vectors, k, v in parts]


class Variants:
    """A loaded model and a scorer for each way to store its K and V; ``allocate`` before they run."""

    def __init__(self, args: EngineArgs, runners: Sequence[ScoringRunner], variants: Sequence[KVVariant]) -> None:
        info = runners[0].info()
        self.scorers = [Scorer(variant, runner, args.block_size) for variant, runner in zip(variants, runners, strict=True)]
        self.max_model_len, self.vocab_size = info.max_model_len, info.vocab_size
        self.isa, self.num_threads = info.isa, info.num_threads
        self._args, self._runners, self._available = args, runners, info.available_kv_bytes

    def allocate(self, tokens: int) -> None:
        """KV for ``tokens`` tokens in each variant.

        Raises:
            InvalidRequestError: all of it is more than gpu_memory_utilization allows.
        """
        num_blocks = -(-tokens // self._args.block_size)
        needed = num_blocks * sum(scorer.block_bytes for scorer in self.scorers)
        if needed > self._available:
            raise InvalidRequestError(
                f"tokens = {tokens}: KV in {len(self.scorers)} ways takes {needed:,} bytes, and gpu_memory_utilization = "
                f"{self._args.gpu_memory_utilization} allows {self._available:,}; take fewer tokens or dtypes",
                field="tokens",
            )
        for runner in self._runners:
            runner.allocate_kv([num_blocks] * len(runner.info().groups))


@contextmanager
def open_variants(args: EngineArgs, variants: Sequence[KVVariant]) -> Iterator[Variants]:
    """Load the model of ``args`` once for all ``variants``. Raises InvalidRequestError or ModelFileError, naming what is wrong."""
    from octavo.runner.scoring import ScoringRunner

    first, *others = [variant.settings(args) for variant in variants]
    runner = ScoringRunner(first)
    try:
        yield Variants(args, [runner, *(runner.sibling(other) for other in others)], variants)
    finally:
        runner.close()
