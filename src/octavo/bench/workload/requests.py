"""What a benchmark asks of an engine: which requests, of which lengths, when. The same for the same seed.

``load_workload`` (octavo.bench.workload.file) reads a Workload from TOML; ``random_requests`` makes the plainest one at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from octavo.bench.workload.arrivals import Arrivals
from octavo.bench.workload.lengths import Lengths, pick
from octavo.request import EngineCoreRequest
from octavo.sampling_params import SamplingParams

_ARRIVALS, _REQUESTS, _OUTPUTS, _PREFIXES = range(4)
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
    prompt_token_ids: list[int]
    max_tokens: int
    output_tokens: int
    """1 to max_tokens: where it ends."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A load, as a file describes it."""

    name: str
    arrivals: Arrivals
    requests: tuple[RequestKind, ...]
    description: str = ""
    seed: int = 0
    num_requests: int = 100
    tenants: tuple[Tenant, ...] = ()

    @property
    def max_model_len(self) -> int:
        """The context that its longest request may need: prompt and max_tokens."""
        return max(kind.max_model_len for kind in self.requests)

    def draw(self, vocab_size: int) -> list[DrawnRequest]:
        """All requests, in order of arrival. The first n are the same whatever ``num_requests``; prompts are of uniform random tokens."""
        arrivals = self.arrivals.draw(np.random.default_rng([self.seed, _ARRIVALS]), self.num_requests)
        return [self._draw(i, float(arrival), vocab_size) for i, arrival in enumerate(arrivals)]

    def as_toml(self) -> dict[str, Any]:
        """The tables of a file that describes this workload."""
        return {
            "name": self.name,
            "description": self.description,
            "seed": self.seed,
            "num_requests": self.num_requests,
            "arrivals": self.arrivals.as_toml(),
            "tenants": [{"name": tenant.name, "weight": tenant.weight} for tenant in self.tenants],
            "requests": [kind.as_toml() for kind in self.requests],
        }

    def _draw(self, index: int, arrival: float, vocab_size: int) -> DrawnRequest:
        random = np.random.default_rng([self.seed, _REQUESTS, index])
        place = pick(random, tuple(kind.weight for kind in self.requests))
        kind = self.requests[place]
        allowed = [(i, tenant) for i, tenant in enumerate(self.tenants) if not kind.tenants or tenant.name in kind.tenants]
        tenant_place, tenant = allowed[pick(random, tuple(t.weight for _, t in allowed))] if allowed else (0, None)
        prefix: list[int] = []
        if (shared := kind.shared_prefix) is not None:
            which = pick(random, tuple((k + 1) ** -shared.zipf for k in range(shared.count)))
            prefix = _tokens(np.random.default_rng([self.seed, _PREFIXES, place, tenant_place, which]), shared.tokens, vocab_size)
        max_tokens = kind.max_tokens.draw(random)
        own = _tokens(random, kind.prompt_tokens.draw(random), vocab_size)
        output_tokens = kind.output_tokens.draw(np.random.default_rng([self.seed, _OUTPUTS, index]))
        return DrawnRequest(
            index=index,
            arrival=arrival,
            kind=kind.name,
            tenant=tenant.name if tenant else None,
            prompt_token_ids=prefix + own,
            max_tokens=max_tokens,
            output_tokens=min(output_tokens, max_tokens),
        )


def random_requests(
    count: int, input_len: int, output_len: int, vocab_size: int, seed: int, name: str = "bench"
) -> Iterator[EngineCoreRequest]:
    """``count`` requests of ``input_len`` uniformly random tokens, greedy, that end after ``output_len`` tokens and not before."""
    random = np.random.default_rng(seed)
    for i in range(count):
        yield EngineCoreRequest(
            request_id=f"{name}-{i}",
            prompt_token_ids=_tokens(random, input_len, vocab_size),
            sampling_params=SamplingParams(temperature=0, max_tokens=output_len, ignore_eos=True, detokenize=False, seed=seed),
        )


def _tokens(random: np.random.Generator, count: int, vocab_size: int) -> list[int]:
    tokens: list[int] = random.integers(0, vocab_size, count).tolist()
    return tokens
