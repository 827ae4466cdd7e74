"""What is measured of each request, from the side of the caller: latencies, lengths, how it ended."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, disable_created_metrics

from octavo.metrics.buckets import DURATION_SECONDS, LATENCY_SECONDS, TOKENS
from octavo.metrics.histogram import Histogram
from octavo.outputs import FinishReason

PREFIX = "octavo_"

# A *_created series for each counter would tell when the process started, many times over.
disable_created_metrics()  # type: ignore[no-untyped-call]


class RequestMetrics:
    """Histograms and counters of requests; one per application, in its own registry."""

    def __init__(self, registry: CollectorRegistry, model_name: str) -> None:
        def histogram(name: str, doc: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(PREFIX + name, doc, {"model_name": model_name}, buckets, registry)

        self.time_to_first_token = histogram("time_to_first_token_seconds", "Arrival to first token.", DURATION_SECONDS)
        self.inter_token_latency = histogram("inter_token_latency_seconds", "Between two tokens of a sequence.", LATENCY_SECONDS)
        self.time_per_output_token = histogram(
            "request_time_per_output_token_seconds", "A request's mean time per token after its first.", LATENCY_SECONDS
        )
        self.e2e_latency = histogram("e2e_request_latency_seconds", "Arrival to last token.", DURATION_SECONDS)
        self.queue_time = histogram("request_queue_time_seconds", "Waiting before the first step.", DURATION_SECONDS)
        self.prefill_time = histogram("request_prefill_time_seconds", "First step to first token.", DURATION_SECONDS)
        self.decode_time = histogram("request_decode_time_seconds", "First token to last.", DURATION_SECONDS)
        self.inference_time = histogram("request_inference_time_seconds", "First step to last token.", DURATION_SECONDS)
        self.prompt_tokens = histogram("request_prompt_tokens", "Tokens of a prompt.", TOKENS)
        self.generation_tokens = histogram("request_generation_tokens", "Tokens generated for a sequence.", TOKENS)
        success = Counter(
            PREFIX + "request_success", "Sequences that ended, by reason.", ["model_name", "finished_reason"], registry=registry
        )
        self._refused = Counter(
            PREFIX + "requests_refused",
            "Requests refused for overload, by the limit that stood in the way.",
            ["model_name", "limit"],
            registry=registry,
        )
        self._model_name = model_name
        self._ended = {reason.value: success.labels(model_name, reason.value) for reason in FinishReason}

    def start(self, arrival: float, num_prompt_tokens: int, num_sequences: int = 1) -> RequestTimer:
        """Follow a request that arrived at ``arrival`` (seconds, any one clock) and asks for ``num_sequences`` completions."""
        self.prompt_tokens.observe(num_prompt_tokens)
        return RequestTimer(self, arrival, num_sequences)

    def refused(self, limit: str) -> None:
        """Count one request that was not let in."""
        self._refused.labels(self._model_name, limit).inc()

    def sequence_ended(self, reason: str, num_tokens: int) -> None:
        """Count one sequence that ended for ``reason``."""
        self._ended[reason].inc()
        self.generation_tokens.observe(num_tokens)


class RequestTimer:
    """Follows one request's sequences from arrival to end; ``close`` counts what has not ended as aborted."""

    def __init__(self, metrics: RequestMetrics, arrival: float, num_sequences: int) -> None:
        self._metrics = metrics
        self._arrival = arrival
        self._first: float | None = None
        self._last = [arrival] * num_sequences
        self._tokens = [0] * num_sequences
        self._open = set(range(num_sequences))
        self._num_expired = 0

    def tokens(self, now: float, index: int, count: int) -> None:
        """Sequence ``index`` received ``count`` tokens at ``now``; several at once share the gap evenly."""
        if count == 0:
            return
        if self._first is None:
            self._first = now
            self._metrics.time_to_first_token.observe(now - self._arrival)
        gaps = count
        if self._tokens[index] == 0:
            gaps = count - 1  # the first token ends no gap: those that come with it took no time after it
            self._last[index] = now
        if gaps:
            self._metrics.inter_token_latency.observe((now - self._last[index]) / count, gaps)
        self._tokens[index] += count
        self._last[index] = now

    def ended(self, index: int, reason: str) -> None:
        """Sequence ``index`` ended for ``reason``, a FinishReason's value."""
        if index in self._open:
            self._open.remove(index)
            self._num_expired += reason == FinishReason.TIMEOUT
            self._metrics.sequence_ended(reason, self._tokens[index])

    @property
    def expired_unanswered(self) -> bool:
        """Whether the deadline of every sequence passed before its first token."""
        return self._num_expired == len(self._tokens) and self._first is None

    def finished(self, now: float, times: Mapping[str, float]) -> None:
        """The request is complete; ``times`` are the engine's ``queued``, ``scheduled``, ``first_token`` and ``finished``."""
        metrics = self._metrics
        metrics.e2e_latency.observe(now - self._arrival)
        longest = max(self._tokens)
        if self._first is not None and longest > 1:
            metrics.time_per_output_token.observe((max(self._last) - self._first) / (longest - 1))
        phases = (
            (metrics.queue_time, "queued", "scheduled"),
            (metrics.prefill_time, "scheduled", "first_token"),
            (metrics.decode_time, "first_token", "finished"),
            (metrics.inference_time, "scheduled", "finished"),
        )
        for histogram, start, end in phases:
            if start in times and end in times:
                histogram.observe(max(0.0, times[end] - times[start]))

    def close(self, reason: str = FinishReason.ABORT) -> None:
        """Count the sequences that have not ended under ``reason``. Idempotent."""
        for index in self._open:
            self._metrics.sequence_ended(reason, self._tokens[index])
        self._open.clear()
