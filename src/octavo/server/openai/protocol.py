"""Requests of the OpenAI API, with vLLM's extra fields. Types are strict: "2" is no number, true no integer.

Ranges are not checked here but where the values are used (SamplingParams, the engine's processor), so that the Python API
and the server agree. A field that is null is as good as absent.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from octavo.sampling_params import SamplingParams


class StreamOptions(BaseModel):
    """What a stream adds."""

    model_config = ConfigDict(strict=True, extra="forbid")

    include_usage: bool | None = None
    """Send a last chunk without choices that holds the usage of the whole request."""
    continuous_usage_stats: bool | None = None
    """Put the usage so far into every chunk."""
    include_obfuscation: bool | None = None
    """OpenAI's padding of chunks; this server never adds any."""


class GenerationRequest(BaseModel):
    """Fields that completions and chat completions share."""

    model_config = ConfigDict(strict=True, extra="allow")

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None

    n: int | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    seed: int | None = None
    stop: str | list[str] | None = None

    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    min_tokens: int | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    bad_words: list[str] | None = Field(None, max_length=1024)
    allowed_token_ids: list[int] | None = None
    prompt_logprobs: int | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    priority: int | None = Field(None, ge=-(2**31), lt=2**31)
    """Lower is served first, under the priority scheduling policy."""
    cache_salt: str | None = Field(None, max_length=256)
    """Share cached prefixes only with requests of the same salt."""
    timeout_s: float | None = Field(None, gt=0, le=86400)
    """Seconds after which nobody wants the answer any more: it ends with finish_reason "timeout", or 504 if it has not begun."""
    return_token_ids: bool | None = None
    """Add ``prompt_token_ids`` and each choice's ``token_ids``."""

    @field_validator("stream_options")
    @classmethod
    def _options_need_a_stream(cls, options: StreamOptions | None, others: ValidationInfo) -> StreamOptions | None:
        if options is not None and not others.data.get("stream"):
            raise ValueError("it needs stream = true")
        return options


class CompletionRequest(GenerationRequest):
    """POST /v1/completions."""

    prompt: Any
    """A string, a list of strings, a list of token ids, or a list of such lists."""
    logprobs: int | None = None
    echo: bool | None = None
    """Put the prompt before the completion."""
    add_special_tokens: bool | None = None
    """Begin a text prompt with the model's BOS token, if it wants one; on by default."""


class ChatPrompt(BaseModel):
    """A conversation, and how it becomes a prompt."""

    model_config = ConfigDict(strict=True, extra="allow")

    messages: list[dict[str, Any]]
    add_generation_prompt: bool | None = None
    """End the prompt with the head of an assistant message; on by default."""
    continue_final_message: bool | None = None
    """Go on with the last message as it stands instead of opening a new one."""
    chat_template_kwargs: dict[str, Any] | None = None
    """Variables for the model's template."""


class ChatCompletionRequest(ChatPrompt, GenerationRequest):
    """POST /v1/chat/completions."""

    max_completion_tokens: int | None = None
    """The newer name of max_tokens; it wins."""
    logprobs: bool | None = None
    top_logprobs: int | None = None


_SAMPLING_FIELDS = frozenset(SamplingParams.__struct_fields__) & frozenset(GenerationRequest.model_fields)


def sampling_params(request: GenerationRequest, **changes: Any) -> SamplingParams:
    """The request's sampling fields, with ``changes`` in place of some.

    Raises:
        InvalidRequestError: naming the field, its value and its limit.
    """
    fields = {name: value for name in _SAMPLING_FIELDS if (value := getattr(request, name)) is not None}
    if request.logit_bias is not None:
        fields["logit_bias"] = {_token_id(key): bias for key, bias in request.logit_bias.items()}
    return SamplingParams(**{**fields, **changes})


def _token_id(key: str) -> int | str:
    """JSON's keys are strings; one that is no number stays as it is, for SamplingParams to refuse."""
    digits = key.removeprefix("-")
    return int(key) if digits.isascii() and digits.isdigit() and len(digits) < 20 else key
