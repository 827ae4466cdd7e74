"""What the load client saw: one record a request, and the run as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Failure = Literal["refused", "failed", "expired"]
"""refused: the server said no (429, 503). expired: a deadline passed, the client's or the server's. failed: anything else."""


class Chunk(NamedTuple):
    """One event of a stream that carried text or tokens."""

    time: float
    """Arrival, in seconds after the run's start."""
    tokens: int
    """Tokens it brought: 1 or more."""


@dataclass(slots=True, frozen=True)
class Usage:
    """The server's own count; what it leaves out is by plan, or as it came."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None = None
    """Of the prompt, found in a prefix cache; None: the server does not say."""


@dataclass(slots=True, kw_only=True)
class RequestRecord:
    """One request. Times are seconds after the run's start, on one monotonic clock."""

    index: int
    kind: str
    tenant: str | None
    prompt_tokens: int
    """As planned."""
    prompt_as_text: bool = False
    """Then the server may add to it: a BOS, a chat's template."""
    output_tokens: int
    """Asked for."""
    scheduled: float
    """When it was to be sent: latency counts from here. In a closed loop, when its client became free."""
    queued: float = 0.0
    """Seconds of its latency that it waited in the client, because of the cap on what is in flight."""
    sent: float | None = None
    """When it was; None: it never was."""
    first_text: float | None = None
    """When its first text came: known while the run goes on, when there are no chunks yet."""
    chunks: list[Chunk] = field(default_factory=list)
    """With text or tokens, in order; a chunk that brings a role or usage alone is none."""
    ended: float | None = None
    """When the stream was over, well or not; None in spite of ``sent``: the run stopped before."""
    failure: Failure | None = None
    message: str = ""
    """Of a failure."""
    status: int | None = None
    """HTTP."""
    finish_reason: str | None = None
    usage: Usage | None = None
    counted: str = ""
    """How its tokens were: see octavo.bench.load.credit."""

    @property
    def exact(self) -> bool:
        """Of as many tokens as asked for."""
        return self.received_tokens == self.output_tokens

    @property
    def completed(self) -> bool:
        """Ended well, with an answer."""
        return self.failure is None and self.ended is not None and bool(self.chunks)

    @property
    def ttft(self) -> float:
        """Seconds from the scheduled send to the first text. Needs a chunk."""
        return self.chunks[0].time - self.scheduled

    @property
    def ttft_from_send(self) -> float | None:
        """The same from when it really was sent: without what was late, or waited, in the client."""
        return None if self.sent is None else self.chunks[0].time - self.sent

    @property
    def received_tokens(self) -> int:
        return sum(chunk.tokens for chunk in self.chunks)

    @property
    def gaps(self) -> list[float]:
        """Seconds between neighbouring tokens as they arrived: one fewer than tokens. Further tokens of a chunk come after 0 s."""
        gaps = [0.0] * (self.chunks[0].tokens - 1) if self.chunks else []
        for before, chunk in zip(self.chunks, self.chunks[1:], strict=False):
            gaps += [chunk.time - before.time, *[0.0] * (chunk.tokens - 1)]
        return gaps

    @property
    def tpot(self) -> float | None:
        """Seconds from the first token to the last, a token after the first; None for fewer than two."""
        tokens = self.received_tokens
        return (self.chunks[-1].time - self.chunks[0].time) / (tokens - 1) if tokens > 1 else None

    @property
    def e2e(self) -> float:
        """Seconds from the scheduled send to the last text. Needs a chunk."""
        return self.chunks[-1].time - self.scheduled


@dataclass(slots=True, kw_only=True)
class ClientHealth:
    """Whether the client kept up."""

    cpu_share: float
    """Of one core, over the run."""
    send_lag: list[float]
    """Seconds from scheduled to sent, but for those queued, of each request sent in an open loop."""
    loop_lag: list[tuple[float, float]]
    """(seconds after the start, seconds late): how late the client's own heartbeat was."""
    peak_in_flight: int
    bottleneck: str | None = None
    """Why the figures tell of the client and not of the server; None: they tell of the server."""


@dataclass(slots=True, kw_only=True)
class LoadRun:
    """All that one run saw."""

    records: list[RequestRecord]
    """In the order of scheduled sends: all that were planned, sent or not."""
    started: float
    """Time 0 of the records, in seconds since the epoch."""
    seconds: float
    """The window: from time 0 to the end of the last request."""
    open_loop: bool
    client: ClientHealth
    interrupted: str | None = None
    """Why the run stopped early: what there is then is partial."""


StopWhen = Callable[[Sequence[RequestRecord], float], str | None]
"""Asked now and then while a run goes on, with all its records, which have no chunks yet, and the seconds so far: a reason ends it."""
