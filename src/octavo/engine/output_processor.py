"""Engine outputs to what a user sees: text, stop strings, log-probabilities, n completions in one answer."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable
from enum import StrEnum

from octavo.engine.processor import PreparedRequest
from octavo.engine.stop_strings import StopStrings
from octavo.errors import InvalidRequestError
from octavo.outputs import CompletionOutput, EngineCoreOutput, EngineCoreOutputs, FinishReason, Logprob, RequestOutput, TokenLogprobs
from octavo.tokenizer.detokenizer import IncrementalDetokenizer
from octavo.tokenizer.tokenizer import Tokenizer


class OutputKind(StrEnum):
    """What each RequestOutput of a stream holds."""

    CUMULATIVE = "cumulative"
    """Everything so far, all completions."""
    DELTA = "delta"
    """What is new since the last one, and only the completions that have something new."""
    FINAL = "final"
    """One output, when all is done."""


class Completion:
    """One completion as it grows. Its visible text, token ids and log-probabilities always end at the same place.

    While a stop string may be forming, the text of its possible beginning, and the tokens that bring nothing but such text,
    stay hidden. min_tokens: a stop string counts if it begins after the text of the first min_tokens tokens.
    """

    def __init__(self, index: int, prepared: PreparedRequest, tokenizer: Tokenizer) -> None:
        params = prepared.params
        self.index = index
        self.request_id = prepared.children[index].request_id
        self.finish_reason: str | None = None
        self.stop_reason: int | str | None = None
        self.error: str | None = None
        """Why it failed; then there is no finish_reason."""
        self._params = params
        self._tokenizer = tokenizer
        self._special_stops = prepared.special_stops
        strings = [stop for stop in params.stop if stop not in prepared.special_stops.values()]
        self._stops = StopStrings(strings) if strings else None
        self._detokenizer: IncrementalDetokenizer | None = None
        if params.detokenize:
            self._detokenizer = IncrementalDetokenizer(tokenizer, params.skip_special_tokens, params.spaces_between_special_tokens)
            self._detokenizer.prime(prepared.prompt_token_ids)
        self._text = ""
        self._token_ids: list[int] = []
        self._ends: list[int] = []
        """Length of the text after each token."""
        self._logprobs: list[dict[int, Logprob]] = []
        self._cumulative: list[float] = []
        self._shown = (0, 0)
        """Characters and tokens that may be seen."""
        self._taken = (0, 0)
        self._end_taken = False

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None or self.error is not None

    def update(self, output: EngineCoreOutput) -> None:
        """Take in what a step brought. A stop string may finish the completion before the engine does."""
        stopped = output.finish_reason == FinishReason.STOP
        for place, token in enumerate(output.new_token_ids):
            ends_here = stopped and place == len(output.new_token_ids) - 1
            self._append(token, output.new_logprobs[place] if output.new_logprobs else None, show=not ends_here)
            if self._stop_string_found():
                return
        if output.finish_reason is not None:
            self._finish(output)
        else:
            self._show(len(self._text) - self._held())

    def abort(self) -> None:
        """End it with what is there."""
        self._finish(EngineCoreOutput(self.request_id, [], finish_reason=FinishReason.ABORT))

    def _append(self, token: int, logprobs: TokenLogprobs | None, show: bool) -> None:
        """``show``: False for a stop token, whose text shows only with include_stop_str_in_output."""
        self._token_ids.append(token)
        if self._detokenizer is not None and (show or self._params.include_stop_str_in_output):
            self._text += self._detokenizer.append([token])
        self._ends.append(len(self._text))
        if logprobs is not None:
            self._logprobs.append(logprob_dict(logprobs, self._tokenizer))
            self._cumulative.append((self._cumulative[-1] if self._cumulative else 0.0) + logprobs.logprobs[0])

    def _floor(self) -> int | None:
        """Where stop strings may begin; None while there are fewer than min_tokens."""
        least = self._params.min_tokens
        if least == 0:
            return 0
        return self._ends[least - 1] if len(self._ends) >= least else None

    def _stop_string_found(self) -> bool:
        floor = self._floor()
        if self._stops is None or floor is None:
            return False
        before = self._ends[-2] if len(self._ends) > 1 else 0
        match = self._stops.find(self._text, floor, before)
        if match is None:
            return False
        self.finish_reason, self.stop_reason = FinishReason.STOP.value, match.string
        kept = match.end if self._params.include_stop_str_in_output else match.start
        self._text = self._text[:kept]
        self._cut_tokens(max(self._tokens_of(kept), min(self._params.min_tokens, len(self._token_ids))))
        self._shown = (kept, len(self._token_ids))
        return True

    def _held(self) -> int:
        floor = self._floor()
        return 0 if self._stops is None or floor is None else self._stops.held(self._text, floor)

    def _finish(self, output: EngineCoreOutput) -> None:
        self.stop_reason, self.error = output.stop_reason, output.error
        self.finish_reason = None if self.error is not None else str(output.finish_reason)
        if self._detokenizer is not None:
            self._text += self._detokenizer.flush()
        last = self._token_ids[-1] if self._token_ids else -1
        if output.finish_reason == FinishReason.STOP and last in self._special_stops:
            self.stop_reason = self._special_stops[last]
            if not self._params.include_stop_str_in_output:
                self._cut_tokens(len(self._token_ids) - 1)
        self._shown = (len(self._text), len(self._token_ids))

    def _cut_tokens(self, count: int) -> None:
        del self._token_ids[count:], self._ends[count:], self._logprobs[count:], self._cumulative[count:]

    def _tokens_of(self, length: int) -> int:
        """How many tokens it takes to bring the first ``length`` characters."""
        return bisect_left(self._ends, length) + 1 if length else 0

    def _show(self, length: int) -> None:
        self._shown = (length, len(self._token_ids) if self._stops is None else self._tokens_of(length))

    def has_news(self) -> bool:
        """Whether ``take`` would bring anything that was not taken yet."""
        return self._shown != self._taken or (self.finished and not self._end_taken)

    def take(self, delta: bool) -> CompletionOutput:
        """What may be seen, from the start or (``delta``) since the last take."""
        first_char, first_token = self._taken if delta else (0, 0)
        chars, tokens = self._taken = self._shown
        self._end_taken = self.finished
        asked = self._params.logprobs is not None
        return CompletionOutput(
            index=self.index,
            text=self._text[first_char:chars],
            token_ids=self._token_ids[first_token:tokens],
            cumulative_logprob=(self._cumulative[tokens - 1] if tokens else 0.0) if asked else None,
            logprobs=self._logprobs[first_token:tokens] if asked else None,
            finish_reason=self.finish_reason,
            stop_reason=self.stop_reason,
        )


class RequestState:
    """A request and its completions, until all have finished and the last output was taken."""

    def __init__(self, prepared: PreparedRequest, tokenizer: Tokenizer) -> None:
        self.prepared = prepared
        self.completions = [Completion(index, prepared, tokenizer) for index in range(len(prepared.children))]
        self._tokenizer = tokenizer
        self._num_cached_tokens = 0
        self._prompt_logprobs: list[dict[int, Logprob] | None] | None = None
        if prepared.params.prompt_logprobs is not None:
            self._prompt_logprobs = [None]
        self._epoch = time.time() - time.monotonic()
        self._metrics = {"arrival": self._epoch + prepared.children[0].arrival_time}

    @property
    def finished(self) -> bool:
        return all(completion.finished for completion in self.completions)

    @property
    def error(self) -> str | None:
        """Why a completion failed, if one did."""
        return next((completion.error for completion in self.completions if completion.error is not None), None)

    def update(self, index: int, output: EngineCoreOutput) -> None:
        """Take in what a step brought completion ``index``."""
        self._num_cached_tokens = max(self._num_cached_tokens, output.num_cached_tokens)
        if self._prompt_logprobs is not None and output.new_prompt_logprobs:
            self._prompt_logprobs += [logprob_dict(entry, self._tokenizer) for entry in output.new_prompt_logprobs]
        if output.times:
            self._metrics |= {name: self._epoch + at for name, at in output.times.items()}
        self.completions[index].update(output)

    def take(self, kind: OutputKind) -> RequestOutput | None:
        """The next output of a stream of ``kind``, or None if there is nothing to say yet."""
        if kind == OutputKind.FINAL and not self.finished:
            return None
        news = [completion for completion in self.completions if completion.has_news()]
        if not news:
            return None
        prepared = self.prepared
        return RequestOutput(
            request_id=prepared.request_id,
            prompt=prepared.prompt,
            prompt_token_ids=prepared.prompt_token_ids,
            outputs=[c.take(kind == OutputKind.DELTA) for c in (news if kind == OutputKind.DELTA else self.completions)],
            finished=self.finished,
            prompt_logprobs=self._prompt_logprobs,
            num_cached_tokens=self._num_cached_tokens,
            metrics=dict(self._metrics),
        )


class OutputProcessor:
    """All requests in flight of one client."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._requests: dict[str, RequestState] = {}
        self._children: dict[str, tuple[RequestState, int]] = {}

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, prepared: PreparedRequest) -> RequestState:
        """Follow a request. Raises InvalidRequestError if one of its id is in flight."""
        if prepared.request_id in self._requests:
            raise InvalidRequestError(f"request_id = {prepared.request_id}: a request of this id is running", field="request_id")
        state = RequestState(prepared, self._tokenizer)
        self._requests[prepared.request_id] = state
        self._children |= {completion.request_id: (state, completion.index) for completion in state.completions}
        return state

    def process(self, outputs: EngineCoreOutputs) -> tuple[list[RequestState], list[str]]:
        """Take in a step: the requests it changed, and the ids that the engine must abort, because a stop string ended them.

        What still comes for a completion that has ended is dropped.
        """
        changed: dict[str, RequestState] = {}
        to_abort: list[str] = []
        for output in outputs.outputs:
            state, index = self._children.get(output.request_id, (None, 0))
            if state is None:
                continue
            state.update(index, output)
            changed[state.prepared.request_id] = state
            if state.completions[index].finished:
                del self._children[output.request_id]
                if output.finish_reason is None:
                    to_abort.append(output.request_id)
        return list(changed.values()), to_abort

    def abort(self, request_ids: Iterable[str]) -> tuple[list[RequestState], list[str]]:
        """End requests with what they have; unknown ids are ignored. Like ``process``."""
        changed = [self._requests[i] for i in dict.fromkeys(request_ids) if i in self._requests]
        to_abort = []
        for state in changed:
            for completion in state.completions:
                if not completion.finished:
                    completion.abort()
                    del self._children[completion.request_id]
                    to_abort.append(completion.request_id)
        return changed, to_abort

    def remove(self, state: RequestState) -> list[str]:
        """Forget a request; the ids of those of its completions that the engine must abort."""
        _, to_abort = self.abort([state.prepared.request_id])
        self._requests.pop(state.prepared.request_id, None)
        return to_abort

    def states(self) -> list[RequestState]:
        """All requests in flight."""
        return list(self._requests.values())


def logprob_dict(entry: TokenLogprobs, tokenizer: Tokenizer) -> dict[int, Logprob]:
    """By token id: the chosen token first, with its rank, then the likeliest with ranks 1, 2, …"""
    text = tokenizer.token_text
    chosen = entry.token_ids[0]
    found = {chosen: Logprob(entry.logprobs[0], entry.rank, text(chosen))}
    for rank, (token, logprob) in enumerate(zip(entry.token_ids[1:], entry.logprobs[1:], strict=True), 1):
        if token != chosen:
            found[token] = Logprob(logprob, rank, text(token))
    return found
