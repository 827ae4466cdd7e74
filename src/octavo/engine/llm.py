"""LLM: generate in this process, many prompts at once."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

from octavo.engine.arguments import engine_args
from octavo.engine.client import InProcessClient
from octavo.engine.logs import show_logs
from octavo.engine.output_processor import OutputKind, OutputProcessor, RequestState
from octavo.engine.processor import InputProcessor, PreparedRequest, Prompt, load_model_tokenizer, render_chat
from octavo.engine.progress import ProgressBar
from octavo.errors import InvalidRequestError
from octavo.outputs import EngineStats, FinishReason, RequestOutput
from octavo.sampling_params import SamplingParams
from octavo.tokenizer.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

Messages = Sequence[dict[str, Any]]
"""A conversation: [{"role": "user", "content": "…"}, …]."""


class LLM:
    """A model loaded in this process. Not for use by several threads; AsyncLLMEngine serves many callers.

    Keyword arguments are those of EngineArgs, under vLLM's names. Arguments of vLLM's that have no effect here are warned
    about, or refused where the result would not be what was asked for (octavo.engine.arguments).

    Raises:
        InvalidRequestError: an argument out of bounds, naming field, value and limit.
        ModelFileError: the model's files are malformed or of a kind that is not supported.
    """

    def __init__(self, model: str = "smollm2", **arguments: Any) -> None:
        show_logs()
        args = engine_args(model, arguments)
        self._tokenizer = load_model_tokenizer(args)
        self._engine = InProcessClient(args)
        for line in self._engine.info.describe():
            logger.info(line)
        self._inputs = InputProcessor(self._tokenizer, self._engine.info, args.seed)
        self._outputs = OutputProcessor(self._tokenizer)

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        priority: Sequence[int] | None = None,
    ) -> list[RequestOutput]:
        """Generate for each prompt; results in the order of the prompts.

        Args:
            prompts: one or several; each a text, token ids, {"prompt": text} or {"prompt_token_ids": ids}.
            sampling_params: one for all, or one a prompt.
            use_tqdm: show a progress bar on the terminal if it takes more than a second.
            priority: one a prompt, lower first, under scheduling_policy="priority".

        A completion that failed by itself has finish_reason "error", and the reason as its stop_reason.

        Raises:
            InvalidRequestError: any prompt or parameter is invalid; then nothing is generated.
        """
        asked = _as_list(prompts)
        params = _spread("sampling_params", sampling_params, len(asked))
        priorities = _spread("priority", priority if priority is not None else 0, len(asked))
        prepared = [self._inputs.prepare("", prompt, params[i], priority=priorities[i]) for i, prompt in enumerate(asked)]
        return self._run(prepared, use_tqdm)

    def chat(
        self,
        messages: Messages | Sequence[Messages],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template: str | None = None,
        chat_template_kwargs: dict[str, Any] | None = None,
    ) -> list[RequestOutput]:
        """Generate the next message of one conversation, or of several.

        Raises:
            InvalidRequestError: the model has no chat template, the template refuses the messages, or as ``generate``.
        """
        prompts: list[Prompt] = [
            render_chat(
                self._tokenizer,
                conversation,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                template=chat_template,
                variables=chat_template_kwargs,
            )
            for conversation in _conversations(messages)
        ]
        return self.generate(prompts, sampling_params, use_tqdm=use_tqdm)

    def get_tokenizer(self) -> Tokenizer:
        return self._tokenizer

    def stats(self) -> EngineStats:
        """The engine's counters: what ran, what was found in the prefix cache, preemptions, time in steps and in native code."""
        return self._engine.stats()

    def kv_usage(self) -> dict[str, Any]:
        """The KV pool as it stands: what its slots hold, who has which block, and the last steps (octavo.engine.kv_report)."""
        return self._engine.kv_usage()

    def reset_prefix_cache(self) -> int:
        """Forget all cached prefixes; returns how many blocks held them."""
        return self._engine.reset_prefix_cache()

    def shutdown(self) -> None:
        """Free the model's memory and threads. Idempotent; the object is of no use afterwards."""
        self._engine.shutdown()

    close = shutdown

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.shutdown()

    def _run(self, prepared: list[PreparedRequest], use_tqdm: bool) -> list[RequestOutput]:
        with self._following(prepared) as states, ProgressBar(len(prepared), use_tqdm) as bar:
            while self._engine.has_unfinished_requests:
                outputs = self._engine.step()
                changed, to_abort = self._outputs.process(outputs)
                if to_abort:
                    self._engine.abort(to_abort)
                bar.advance(sum(state.finished for state in changed), sum(len(o.new_token_ids) for o in outputs.outputs))
            return [_final(state) for state in states]

    @contextlib.contextmanager
    def _following(self, prepared: list[PreparedRequest]) -> Iterator[list[RequestState]]:
        """Requests in the engine; whatever ends the block, none is left there."""
        states = [self._outputs.add(request) for request in prepared]
        try:
            for request in prepared:
                for child in request.children:
                    self._engine.add(child)
            yield states
        finally:
            left = [request_id for state in states for request_id in self._outputs.remove(state)]
            if left:
                self._engine.abort(left)


def _final(state: RequestState) -> RequestOutput:
    output = state.take(OutputKind.FINAL)
    assert output is not None
    for completion, result in zip(state.completions, output.outputs, strict=True):
        if completion.error is not None:
            logger.error("request %s failed: %s", output.request_id, completion.error)
            result.finish_reason, result.stop_reason = FinishReason.ERROR.value, completion.error
    return output


def _as_list(prompts: Any) -> list[Prompt]:
    """One prompt or several, as several."""
    if isinstance(prompts, (str, dict)) or (len(prompts) > 0 and isinstance(prompts[0], int)):
        return [prompts]
    return list(prompts)


def _conversations(messages: Any) -> list[Messages]:
    """One conversation or several, as several."""
    return [messages] if messages and isinstance(messages[0], dict) else list(messages)


def _spread(name: str, values: Any, count: int) -> list[Any]:
    """One value for all, or one each."""
    if not isinstance(values, Sequence):
        return [values] * count
    if len(values) != count:
        raise InvalidRequestError(f"{name}: {len(values)} for {count} prompts; give one for all, or one each", field=name)
    return list(values)
