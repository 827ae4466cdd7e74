"""A workload from flags, named as those of ``vllm bench serve``, or from a file that some of them change.

Light to import: the command line is made of this table.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.bench.workload.bounds import (
    MAX_BURSTINESS,
    MAX_CONCURRENCY,
    MAX_REQUESTS,
    MAX_SEED,
    MAX_TOKENS,
    MIN_BURSTINESS,
    MIN_RATE,
)
from octavo.errors import InvalidRequestError

if TYPE_CHECKING:
    from octavo.bench.workload.arrivals import Arrivals
    from octavo.bench.workload.lengths import Lengths
    from octavo.bench.workload.requests import Workload
    from octavo.bench.workload.text import PromptText

OF_FILES = ("workload", "request_rate", "num_prompts", "seed")
"""Flags that go with --workload."""
NUM_PROMPTS, INPUT_LEN, OUTPUT_LEN = 100, 128, 128


def load_flag(doc: str, low: float | None = None, high: float | None = None) -> Any:
    """A flag that is None where it was not given."""
    return field(default=None, metadata={"doc": doc, "low": low, "high": high, "choices": None})


@dataclass(kw_only=True)
class WorkloadFlags:
    """What the command line says about the load; None: nothing."""

    workload: str | None = load_flag("The load, a TOML file (docs/benchmarking.md); --request-rate, --num-prompts and --seed change it.")
    request_rate: float | None = load_flag("Requests a second, Poisson; inf (the default): all at once.", MIN_RATE, math.inf)
    burstiness: float | None = load_flag(
        "Shape of the gaps' gamma distribution: under 1 in bursts, 1 (the default) Poisson, above it more regular.",
        MIN_BURSTINESS,
        MAX_BURSTINESS,
    )
    num_prompts: int | None = load_flag(f"Requests; by default {NUM_PROMPTS}, or the file's.", 1, MAX_REQUESTS)
    input_len: int | None = load_flag(f"Tokens of each prompt, after --random-prefix-len; by default {INPUT_LEN}.", 1, MAX_TOKENS)
    output_len: int | None = load_flag(f"Tokens of each answer; by default {OUTPUT_LEN}.", 1, MAX_TOKENS)
    random_range_ratio: float | None = load_flag("Spread both lengths uniformly from length × (1 - r) to length × (1 + r).", 0, 0.999)
    random_prefix_len: int | None = load_flag("Tokens that all prompts begin with, beyond --input-len.", 0, MAX_TOKENS)
    max_concurrency: int | None = load_flag("Most requests at a time; without --request-rate, clients in closed loop.", 1, MAX_CONCURRENCY)
    prompt: str | None = load_flag("What prompts are made of: random (the default), text (built in), or a text file.")
    seed: int | None = load_flag("Of arrivals, lengths and prompts; by default 0, or the file's.", 0, MAX_SEED)

    def build(self) -> Workload:
        """The workload.

        Raises:
            InvalidRequestError: a value is out of range, a flag does not go with the file, or the file is not as it should be.
        """
        for spec in dataclasses.fields(self):
            self._check(spec)
        return self._plain() if self.workload is None else self._from_file(Path(self.workload).expanduser())

    def _check(self, spec: dataclasses.Field[Any]) -> None:
        value, low, high = getattr(self, spec.name), spec.metadata["low"], spec.metadata["high"]
        if value is not None and low is not None and not low <= value <= high:  # nan is in no range
            limit = f"it must be at least {low:g}" if high == math.inf else f"it must be from {low:g} to {high:.12g}"
            raise InvalidRequestError(f"{spec.name} = {value}: {limit}", field=spec.name)

    def _from_file(self, path: Path) -> Workload:
        from octavo.bench.workload.file import load_workload

        for spec in dataclasses.fields(self):
            value = getattr(self, spec.name)
            if value is not None and spec.name not in OF_FILES:
                raise InvalidRequestError(f"{spec.name} = {value}: the workload file {path} says that; change it there", field=spec.name)
        load = load_workload(path)
        if self.seed is not None:
            load = dataclasses.replace(load, seed=self.seed)
        if self.request_rate is not None:
            load = dataclasses.replace(load, arrivals=at_rate(load.arrivals, self.request_rate))
        if self.num_prompts is None:
            return load
        try:
            return dataclasses.replace(load, num_requests=self.num_prompts)
        except InvalidRequestError as error:
            raise InvalidRequestError(str(error).replace("num_requests", "num_prompts", 1), field="num_prompts") from None

    def _plain(self) -> Workload:
        from octavo.bench.workload.lengths import Fixed
        from octavo.bench.workload.requests import RequestKind, SharedPrefix, Workload

        prefix = self.random_prefix_len or 0
        output = self._lengths(self.output_len or OUTPUT_LEN)
        kind = RequestKind(
            name="flags",
            prompt_tokens=self._lengths(self.input_len or INPUT_LEN),
            output_tokens=output,
            max_tokens=Fixed(output.high),
            shared_prefix=SharedPrefix(tokens=prefix) if prefix else None,
            prompt=self._prompt(),
        )
        return Workload(
            name="flags",
            seed=self.seed or 0,
            num_requests=self.num_prompts or NUM_PROMPTS,
            arrivals=self._arrivals(),
            requests=(kind,),
        )

    def _lengths(self, mean: int) -> Lengths:
        """As vLLM spreads them: from the floor of the low end to the ceiling of the high one, each as likely, and none under 1."""
        from octavo.bench.workload.lengths import Fixed, Uniform

        ratio = self.random_range_ratio or 0.0
        return Uniform(max(1, math.floor(mean * (1 - ratio))), math.ceil(mean * (1 + ratio))) if ratio else Fixed(mean)

    def _prompt(self) -> PromptText | None:
        from octavo.bench.workload.text import BUILT_IN, RANDOM, built_in, read_prompt_file

        if self.prompt in (None, RANDOM):
            return None
        return built_in() if self.prompt == BUILT_IN else read_prompt_file(str(self.prompt))

    def _arrivals(self) -> Arrivals:
        """Gamma where --burstiness is given; closed loop where only --max-concurrency limits what is sent."""
        from octavo.bench.workload.arrivals import Arrivals

        rate = math.inf if self.request_rate is None else self.request_rate
        if math.isinf(rate):
            if self.burstiness is not None:
                limit = "it shapes the gaps between requests, and without --request-rate they come all at once"
                raise InvalidRequestError(f"burstiness = {self.burstiness}: {limit}", field="burstiness")
            if self.max_concurrency is not None:
                return Arrivals(process="closed", concurrency=self.max_concurrency)
            return Arrivals(process="at_once")
        process = "poisson" if self.burstiness in (None, 1) else "gamma"
        return Arrivals(process=process, rate=rate, burstiness=self.burstiness or 1.0, max_concurrency=self.max_concurrency)


def at_rate(arrivals: Arrivals, rate: float) -> Arrivals:
    """The same at another rate: gamma and constant arrivals stay what they are, all others become Poisson; inf is all at once."""
    if math.isinf(rate):
        return dataclasses.replace(arrivals, process="at_once", concurrency=0)
    process = arrivals.process if arrivals.process in ("gamma", "constant") else "poisson"
    return dataclasses.replace(arrivals, process=process, rate=rate, concurrency=0)
