"""What a benchmark asks of an engine: which requests, of which lengths, when. The same for the same seed.

``load_workload`` (octavo.bench.workload.file) reads a Workload from TOML; ``random_requests`` makes the plainest one at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from octavo.bench.workload.arrivals import Arrivals
from octavo.bench.workload.lengths import Lengths, pick
from octavo.bench.workload.prompts import Part, Writer
from octavo.bench.workload.text import PromptText
from octavo.bench.workload.tokens import Tokens
from octavo.bench.workload.trace import Trace
from octavo.errors import InvalidRequestError
from octavo.request import EngineCoreRequest
from octavo.sampling_params import SamplingParams

_ARRIVALS, _REQUESTS, _OUTPUTS, _PREFIXES, _PROMPTS, _BLOCKS = range(6)
"""Random streams of their own, so that a change of one part of a workload leaves the others as they were."""


@dataclass(frozen=True, kw_only=True)
class Tenant:
    """Somebody who sends requests. Tenants share no cached prefix."""

    name: str
    weight: float = 1.0
    """Its share of the requests, by weight."""


@dataclass(frozen=True, kw_only=True)
class SharedPrefix:
    """What many prompts begin with: a system prompt, a document. Every tenant has its own."""

    tokens: int
    count: int = 1
    """Different prefixes."""
    zipf: float = 0.0
    """The k-th prefix is as popular as k ** -zipf; 0: all alike."""

    def as_toml(self) -> dict[str, Any]:
        return {"tokens": self.tokens, "count": self.count, "zipf": self.zipf}


@dataclass(frozen=True, kw_only=True)
class RequestKind:
    """Requests of one sort, such as chat."""

    name: str
    prompt_tokens: Lengths
    """After the shared prefix, if there is one."""
    output_tokens: Lengths
    """How long the answer really is, up to max_tokens; no server knows it beforehand."""
    max_tokens: Lengths
    """What the client states."""
    weight: float = 1.0
    tenants: tuple[str, ...] = ()
    """Who sends it; nobody in particular: every tenant."""
    shared_prefix: SharedPrefix | None = None
    prompt: PromptText | None = None
    """What prompts and prefixes are made of; None: random tokens."""

    @property
    def max_model_len(self) -> int:
        """The context that the longest of these may need."""
        prefix = self.shared_prefix.tokens if self.shared_prefix else 0
        return prefix + self.prompt_tokens.high + self.max_tokens.high

    def as_toml(self) -> dict[str, Any]:
        values: dict[str, Any] = {"name": self.name, "weight": self.weight}
        if self.tenants:
            values["tenants"] = list(self.tenants)
        if self.shared_prefix:
            values["shared_prefix"] = self.shared_prefix.as_toml()
        if self.prompt:
            values["prompt"] = self.prompt.as_toml()
        lengths = {"prompt_tokens": self.prompt_tokens, "output_tokens": self.output_tokens, "max_tokens": self.max_tokens}
        return values | {name: length.as_toml() for name, length in lengths.items()}


@dataclass(frozen=True, kw_only=True)
class DrawnRequest:
    """One request of a workload, all its dice thrown."""

    index: int
    arrival: float
    """Seconds after the start; 0 in a closed loop."""
    kind: str
    tenant: str | None
    """Who sends it. Tenants share no cached prefix: over HTTP it is the request's ``cache_salt``, and its ``user``."""
    prompt_token_ids: list[int]
    """Without BOS: a server adds none to ids, and its own to text."""
    max_tokens: int
    output_tokens: int
    """1 to max_tokens: where it ends. Over HTTP, where nobody can end it so, it is what the request states as max_tokens."""
    prompt_text: str | None = None
    """If it was drawn as text: what these ids are the tokens of."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A load, as a file describes it."""

    name: str
    arrivals: Arrivals
    requests: tuple[RequestKind, ...] = ()
    description: str = ""
    seed: int = 0
    num_requests: int = 100
    tenants: tuple[Tenant, ...] = ()
    trace: Trace | None = None
    """Where kinds, tenants and lengths come from instead of ``requests``, which is then empty; and times, if arrivals say so."""

    def __post_init__(self) -> None:
        if self.trace is not None and self.arrivals.process == "trace" and self.num_requests > len(self.trace.rows):
            limit = f"the trace {self.trace.file} has {len(self.trace.rows)} requests in the time that is replayed"
            raise InvalidRequestError(f"num_requests = {self.num_requests}: {limit}", field="num_requests")

    @property
    def max_model_len(self) -> int:
        """The context that its longest request may need: prompt and max_tokens."""
        if self.trace is not None:
            return self.trace.max_model_len
        return max(kind.max_model_len for kind in self.requests)

    @property
    def needs_tokenizer(self) -> bool:
        """Whether prompts are made of text."""
        return any(kind.prompt for kind in self.requests) or (self.trace is not None and self.trace.prompt is not None)

    def without_text(self) -> Workload:
        """The same of random tokens, which need no tokenizer: where no model reads them, only their lengths and what they share count."""
        requests = tuple(dataclasses.replace(kind, prompt=None) for kind in self.requests)
        trace = self.trace and dataclasses.replace(self.trace, prompt=None)
        return dataclasses.replace(self, requests=requests, trace=trace)

    def draw(self, tokens: Tokens, *, as_text: bool = False, salt: str = "") -> list[DrawnRequest]:
        """All requests, in order of arrival. The first n are the same whatever ``num_requests``, unless a ramp is stretched over them.

        ``as_text``: each has a ``prompt_text`` too, for a server that takes no ids; prompts of random tokens are then random words.
        ``salt``: another, and prompts have other tokens, with the same lengths and the same sharing, so that no cache knows them.

        Raises:
            InvalidRequestError: text is wanted, and there is no tokenizer.
        """
        writer = Writer(tokens, self.seed, as_text, salt)
        return [self._draw(i, arrival, writer) for i, arrival in enumerate(self._arrivals())]

    def as_toml(self) -> dict[str, Any]:
        """The tables of a file that describes this workload."""
        values = {
            "name": self.name,
            "description": self.description,
            "seed": self.seed,
            "num_requests": self.num_requests,
            "arrivals": self.arrivals.as_toml(),
        }
        if self.trace is not None:
            return values | {"trace": self.trace.as_toml()}
        return values | {
            "tenants": [{"name": tenant.name, "weight": tenant.weight} for tenant in self.tenants],
            "requests": [kind.as_toml() for kind in self.requests],
        }

    def _arrivals(self) -> list[float]:
        if self.trace is not None and self.arrivals.process == "trace":
            return [row.time / self.trace.speedup for row in self.trace.rows[: self.num_requests]]
        drawn: list[float] = self.arrivals.draw(np.random.default_rng([self.seed, _ARRIVALS]), self.num_requests).tolist()
        return drawn

    def _draw(self, index: int, arrival: float, writer: Writer) -> DrawnRequest:
        if self.trace is not None:
            return _replay(self.trace, index, arrival, writer)
        random = np.random.default_rng([self.seed, _REQUESTS, index])
        place = pick(random, tuple(kind.weight for kind in self.requests))
        kind = self.requests[place]
        allowed = [(i, tenant) for i, tenant in enumerate(self.tenants) if not kind.tenants or tenant.name in kind.tenants]
        tenant_place, tenant = allowed[pick(random, tuple(t.weight for _, t in allowed))] if allowed else (0, None)
        parts: list[Part] = []
        if (shared := kind.shared_prefix) is not None:
            which = pick(random, tuple((k + 1) ** -shared.zipf for k in range(shared.count)))
            parts.append(Part((_PREFIXES, place, tenant_place, which), shared.tokens))
        max_tokens = kind.max_tokens.draw(random)
        parts.append(Part((_PROMPTS, index), kind.prompt_tokens.draw(random), index))
        output_tokens = kind.output_tokens.draw(np.random.default_rng([self.seed, _OUTPUTS, index]))
        ids, text = writer.write(parts, kind.prompt)
        return DrawnRequest(
            index=index,
            arrival=arrival,
            kind=kind.name,
            tenant=tenant.name if tenant else None,
            prompt_token_ids=ids,
            prompt_text=text,
            max_tokens=max_tokens,
            output_tokens=min(output_tokens, max_tokens),
        )


def _replay(trace: Trace, index: int, arrival: float, writer: Writer) -> DrawnRequest:
    """A request as the trace has it; from the first one again when there are no more."""
    row = trace.rows[index % len(trace.rows)]
    parts = [Part((_BLOCKS, block), trace.block_size) for block in row.blocks]
    rest = row.input_tokens - trace.block_size * len(parts)
    if rest > 0:
        parts.append(Part((_PROMPTS, index), rest, index))
    elif rest < 0:
        parts[-1] = Part(parts[-1].key, parts[-1].tokens + rest)
    ids, text = writer.write(parts, trace.prompt)
    return DrawnRequest(
        index=index,
        arrival=arrival,
        kind=row.kind,
        tenant=row.tenant,
        prompt_token_ids=ids,
        prompt_text=text,
        max_tokens=row.max_tokens,
        output_tokens=row.output_tokens,
    )


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
