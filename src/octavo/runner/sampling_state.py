"""What the sampler knows of one request in the batch, and how its parameters change the logits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from octavo.sampling_params import SamplingParams
from octavo.scheduler.output import NewRequestData

F32Row = npt.NDArray[np.float32]
Int32Array = npt.NDArray[np.int32]


class TokenCounts:
    """How often each token occurred: ids and counts as arrays that grow, so that a penalty is one indexed operation."""

    def __init__(self, token_ids: Iterable[int]) -> None:
        self._place: dict[int, int] = {}
        self._ids = np.zeros(64, np.int64)
        self._counts = np.zeros(64, np.float32)
        for token in token_ids:
            self.add(token)

    def add(self, token_id: int) -> None:
        place = self._place.setdefault(token_id, len(self._place))
        if place == len(self._ids):
            self._ids = np.resize(self._ids, 2 * place)
            self._counts = np.concatenate([self._counts, np.zeros(place, np.float32)])
        self._ids[place] = token_id
        self._counts[place] += 1

    @property
    def ids(self) -> npt.NDArray[np.int64]:
        """Distinct tokens, in order of first occurrence."""
        return self._ids[: len(self._place)]

    @property
    def counts(self) -> npt.NDArray[np.float32]:
        """Occurrences of each of ``ids``."""
        return self._counts[: len(self._place)]


class SamplingState:
    """One request's side of sampling: a pure function of its prompt, its output so far and its parameters.

    So a state made anew from prompt and output (after a preemption, a crash, a hand-over) samples exactly as the one it replaces.
    """

    def __init__(
        self,
        params: SamplingParams,
        prompt_token_ids: Sequence[int],
        output_token_ids: Sequence[int] = (),
        eos_token_ids: Sequence[int] = (),
    ) -> None:
        """``params.seed`` must be a number."""
        assert params.seed is not None
        self.params = params
        self.seed = params.seed
        self.output_token_ids = list(output_token_ids)
        self.bitmask: Int32Array | None = None
        """[ceil(V / 32)] one bit a token, lowest first, set where allowed; None: no grammar. Set anew for each step."""
        self._stops = np.array(sorted({*eos_token_ids, *params.stop_token_ids}), np.int64)
        allowed = params.allowed_token_ids
        self._allowed = None if allowed is None else np.array(sorted(set(allowed)), np.int64)
        bias = params.logit_bias or {}
        self._bias_ids = np.fromiter(bias.keys(), np.int64, len(bias))
        self._biases = np.fromiter(bias.values(), np.float32, len(bias))
        self._output: TokenCounts | None = None
        self._seen: TokenCounts | None = None
        if params.frequency_penalty or params.presence_penalty:
            self._output = TokenCounts(output_token_ids)
        if params.repetition_penalty != 1.0:
            self._seen = TokenCounts([*prompt_token_ids, *output_token_ids])
        counted = self._output is not None or self._seen is not None
        self._always_adjusts = counted or bool(bias) or allowed is not None or bool(params.bad_words_token_ids)

    @classmethod
    def from_request(cls, new: NewRequestData) -> SamplingState:
        """The state of a request as it enters the batch, fresh or resumed."""
        prompt, output = new.token_ids[: new.num_prompt_tokens], new.token_ids[new.num_prompt_tokens :]
        return cls(new.sampling_params, prompt, output, new.eos_token_ids)

    def append(self, token_id: int) -> None:
        """A token became part of the output."""
        self.output_token_ids.append(token_id)
        for counts in (self._output, self._seen):
            if counts is not None:
                counts.add(token_id)

    @property
    def adjusts(self) -> bool:
        """Whether the next token's logits are changed before the sampling rule sees them."""
        return self._always_adjusts or self.bitmask is not None or self._below_min_tokens

    @property
    def _below_min_tokens(self) -> bool:
        return len(self.output_token_ids) < self.params.min_tokens

    def adjust(self, logits: F32Row) -> None:
        """Change ``logits`` [V] in place: masks, biases, then penalties."""
        if self.bitmask is not None:
            _apply_bitmask(logits, self.bitmask)
        if self._allowed is not None:
            kept = logits[self._allowed]
            logits.fill(-np.inf)
            logits[self._allowed] = kept
        logits[self._bias_ids] += self._biases
        if self._below_min_tokens:
            logits[self._stops] = -np.inf
        self._ban_words(logits)
        self._penalize(logits)

    def _ban_words(self, logits: F32Row) -> None:
        output = self.output_token_ids
        for word in self.params.bad_words_token_ids:
            head = word[:-1]
            if not head or output[-len(head) :] == head:
                logits[word[-1]] = -np.inf

    def _penalize(self, logits: F32Row) -> None:
        """Repetition counts prompt and output (Keskar et al. 2019, CTRL); frequency and presence the output only."""
        params = self.params
        if self._seen is not None:
            ids = self._seen.ids
            values, penalty = logits[ids], np.float32(params.repetition_penalty)
            logits[ids] = np.where(values > 0, values / penalty, values * penalty)
        if self._output is not None:
            frequency, presence = np.float32(params.frequency_penalty), np.float32(params.presence_penalty)
            logits[self._output.ids] -= frequency * self._output.counts + presence


def _apply_bitmask(logits: F32Row, bitmask: Int32Array) -> None:
    allowed = np.unpackbits(bitmask.view(np.uint8), bitorder="little")[: len(logits)]
    logits[allowed == 0] = -np.inf
