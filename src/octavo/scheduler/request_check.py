"""Which requests could never run."""

from __future__ import annotations

from collections.abc import Container

from octavo.errors import InvalidRequestError
from octavo.kv.kv_cache_manager import KVCacheManager
from octavo.request import Request


def check_request(request: Request, known: Container[str], limit: int, kv: KVCacheManager) -> None:
    """Refuse what could never run. The pool must hold prompt and max_tokens, but for the last token, which is not stored.

    Args:
        known: ids in use.
        limit: tokens of one sequence (max_model_len).

    Raises:
        InvalidRequestError: it names the field, its value and the limit.
    """
    length = request.num_prompt_tokens
    if request.request_id in known:
        raise InvalidRequestError(f"request_id = {request.request_id!r}: it is in use", field="request_id")
    if not length:
        raise InvalidRequestError("prompt: it has no tokens, and at least 1 is needed", field="prompt")
    if length >= limit:
        raise InvalidRequestError(
            f"prompt: its {length} tokens leave no room to generate; prompt and output are at most {limit} tokens (max_model_len)",
            field="prompt",
            code="context_length_exceeded",
        )
    if request.num_tokens >= request.max_num_tokens:
        raise InvalidRequestError(
            f"output_token_ids: with {request.num_output_tokens} nothing is left to generate; the request ends at "
            f"{request.max_num_tokens - length} output tokens",
            field="output_token_ids",
        )
    if not kv.can_ever_fit(request.max_num_tokens - 1):
        pool = f"the whole KV pool holds {kv.capacity} tokens"
        if not kv.can_ever_fit(length):
            raise InvalidRequestError(f"prompt: it has {length} tokens, and {pool}", field="prompt", code="context_length_exceeded")
        raise InvalidRequestError(
            f"max_tokens = {request.max_tokens}: with the prompt of {length} up to {request.max_num_tokens - 1} tokens are stored, "
            f"and {pool}",
            field="max_tokens",
            code="context_length_exceeded",
        )
