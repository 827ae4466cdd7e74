"""Token counts of a request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from octavo.engine.processor import PreparedRequest
from octavo.outputs import RequestOutput
from octavo.server.openai.protocol import StreamOptions


class Usage:
    """Counts over all prompts and choices of one request; a prompt counts once, whatever n is."""

    def __init__(self, prompts: Sequence[PreparedRequest], options: StreamOptions | None) -> None:
        self._options = options or StreamOptions()
        self._prompt = sum(len(prompt.prompt_token_ids) for prompt in prompts)
        self._cached = [0] * len(prompts)
        self._completion = 0

    def add(self, prompt_number: int, output: RequestOutput) -> None:
        """Count what ``output``, of one prompt's delta stream, brought."""
        self._cached[prompt_number] = output.num_cached_tokens
        self._completion += sum(len(choice.token_ids) for choice in output.outputs)

    def body(self) -> dict[str, Any]:
        """OpenAI's shape."""
        return {
            "prompt_tokens": self._prompt,
            "completion_tokens": self._completion,
            "total_tokens": self._prompt + self._completion,
            "prompt_tokens_details": {"cached_tokens": sum(self._cached)},
        }

    def so_far(self) -> dict[str, Any]:
        """The field of a stream's chunk: nothing unless asked for; then null, or the counts so far."""
        if self._options.continuous_usage_stats:
            return {"usage": self.body()}
        return {"usage": None} if self._options.include_usage else {}

    def at_end(self) -> list[dict[str, Any]]:
        """The fields of a stream's last chunk, if that was asked for."""
        return [{"choices": [], "usage": self.body()}] if self._options.include_usage else []
