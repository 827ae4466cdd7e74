"""Counters since the start."""

from __future__ import annotations

from octavo.outputs import EngineStats
from octavo.request import Request


class Totals:
    """What the scheduler counts, in ``stats``; its gauges stay 0 there."""

    def __init__(self) -> None:
        self.stats = EngineStats()

    def started(self, request: Request, found: int, cached: bool) -> None:
        """A request started for the first time, with its first ``found`` tokens computed already; ``cached``: it was looked up."""
        request.num_cached_tokens = min(found, request.num_prompt_tokens)
        self.prompt(request, found)
        if cached and request.sampling_params.prompt_logprobs is None:
            self.stats.prefix_queries += request.num_prompt_tokens
            self.stats.prefix_hits += request.num_cached_tokens

    def prompt(self, request: Request, num_computed: int) -> None:
        """So many tokens of a request are computed: its prompt counts once, however often that happens."""
        done = min(num_computed, request.num_prompt_tokens)
        if done > request.num_prompt_tokens_done:
            self.stats.prompt_tokens += done - request.num_prompt_tokens_done
            request.num_prompt_tokens_done = done

    def planned(self, request: Request, end: int) -> None:
        """A step computes a request's tokens up to ``end``: some perhaps again."""
        if request.num_computed_tokens < request.num_tokens_before_preemption:
            self.stats.recomputed_tokens += min(end, request.num_tokens_before_preemption) - request.num_computed_tokens
