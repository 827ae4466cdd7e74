"""When a request ends, judged on token ids alone; stop strings are the client's business."""

from __future__ import annotations

from typing import NamedTuple

from octavo.outputs import EngineCoreOutput, FinishReason
from octavo.request import Request


class Stop(NamedTuple):
    """Why a request ends here."""

    reason: FinishReason
    token_id: int | None = None
    """The stop token that did it, when it is not one of the model's end-of-sequence tokens."""


def stop_after(request: Request, num_new: int) -> tuple[int, Stop | None]:
    """How many of the last ``num_new`` output tokens count, and the stop at the last of these, if there is one.

    A token in stop_ids ends the request unless fewer than min_tokens have come, itself included; else max_tokens and max_model_len do.
    """
    outputs = request.output_token_ids
    min_tokens = request.sampling_params.min_tokens
    most_outputs = request.max_num_tokens - request.num_prompt_tokens
    first = len(outputs) - num_new
    for count in range(1, num_new + 1):
        token_id, num_outputs = outputs[first + count - 1], first + count
        if token_id in request.stop_ids and num_outputs >= min_tokens:
            return count, Stop(FinishReason.STOP, _named_stop(request, token_id))
        if num_outputs >= most_outputs:
            return count, Stop(FinishReason.LENGTH)
    return num_new, None


def tell_end(request: Request, stop: Stop, result: EngineCoreOutput | None, error: str | None, now: float) -> EngineCoreOutput:
    """A request's last message: ``result`` with how it ended and when, or a new one. ``now``: seconds of time.monotonic."""
    result = result or EngineCoreOutput(request.request_id, [], num_cached_tokens=request.num_cached_tokens)
    result.finish_reason, result.stop_reason, result.error = stop.reason, stop.token_id, error
    times = {"queued": request.arrival_time, "scheduled": request.scheduled_time, "first_token": request.first_token_time}
    result.times = {name: at for name, at in times.items() if at is not None} | {"finished": now}
    return result


def _named_stop(request: Request, token_id: int) -> int | None:
    end_of_sequence = token_id in request.eos_token_ids and not request.sampling_params.ignore_eos
    return None if end_of_sequence else token_id
