"""Chat templates: the Jinja program in a model file that turns messages into a prompt.

A template is a stranger's program. It runs in Jinja's sandbox, with no way to Python's insides, and on a budget of time, of
loop turns and calls, and of the size of what it builds (see ``sandbox.py``). It sees what transformers' `apply_chat_template` shows it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jinja2

from octavo.errors import InvalidRequestError, ModelFileError
from octavo.tokenizer.sandbox import TemplateEnvironment, render_template
from octavo.tokenizer.tokenizer import Tokenizer

Message = Mapping[str, Any]

_CONTINUE = "\ue000continue\ue001"
"""Marks where the message that is to be continued ends: private-use characters, which no template writes."""


class ChatTemplate:
    """A model's chat template, compiled; or the lack of one, which is an error only when it is asked to render."""

    def __init__(self, template: str | None, bos_token: str = "", eos_token: str = "", origin: str = "the model") -> None:
        """``origin`` names where the template is from, for messages.

        Raises:
            ModelFileError: the template does not compile.
        """
        self._tokens = {name: token for name, token in (("bos_token", bos_token), ("eos_token", eos_token)) if token}
        self._template: jinja2.Template | None = None
        if template is None:
            return
        try:
            self._template = TemplateEnvironment().from_string(template)
        except jinja2.TemplateSyntaxError as error:
            raise ModelFileError(f"{origin}: chat template: line {error.lineno}: {error.message}") from error
        except RecursionError as error:
            raise ModelFileError(f"{origin}: chat template: it is nested too deeply") from error

    @classmethod
    def of(cls, tokenizer: Tokenizer, override: str | None = None) -> ChatTemplate:
        """The tokenizer's template, or ``override`` in its place."""
        template, origin = (tokenizer.chat_template, "the model") if override is None else (override, "the template given")
        return cls(template, tokenizer.bos_token, tokenizer.eos_token, origin)

    def require(self) -> jinja2.Template:
        """The compiled template. Raises InvalidRequestError if there is none."""
        if self._template is None:
            raise InvalidRequestError(
                "this model has no chat template, so it cannot chat; use completions, or start with a chat template of your own",
                field="messages",
                code="no_chat_template",
            )
        return self._template

    def render(
        self,
        messages: Sequence[Message],
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> str:
        """The prompt for a conversation; ``kwargs`` are the template's further variables.

        With ``continue_final_message`` the prompt ends exactly where the last message's text does, spaces and all.

        Raises:
            InvalidRequestError: there is no template, or it refuses the messages, in its own words.
        """
        compiled = self.require()
        if continue_final_message and add_generation_prompt:
            raise InvalidRequestError(
                "continue_final_message = True: add_generation_prompt must be False with it", field="continue_final_message"
            )
        plain = [_plain_message(message, index) for index, message in enumerate(messages)]
        if continue_final_message:
            _mark_end(plain)
        variables = {**self._tokens, "tools": list(tools) if tools else None, **kwargs}
        text = render_template(compiled, messages=plain, add_generation_prompt=add_generation_prompt, **variables)
        return _cut_at_mark(text) if continue_final_message else text

    def apply(self, tokenizer: Tokenizer, messages: Sequence[Message], **options: Any) -> list[int]:
        """The prompt's ids, with one BOS whether or not the template writes it; ``options`` are ``render``'s."""
        return tokenizer.encode_rendered(self.render(messages, **options))


def _mark_end(messages: list[dict[str, Any]]) -> None:
    if not messages or not isinstance(messages[-1].get("content"), str):
        raise InvalidRequestError("continue_final_message = True: the last message has no text to continue", field="continue_final_message")
    messages[-1]["content"] += _CONTINUE


def _cut_at_mark(text: str) -> str:
    end = text.rfind(_CONTINUE)
    if end < 0:
        raise InvalidRequestError(
            "continue_final_message = True: the chat template leaves the last message's text out", field="continue_final_message"
        )
    return text[:end]


def _plain_message(message: Message, index: int) -> dict[str, Any]:
    """A copy in the form that templates expect: content is text, and a tool call's arguments are an object."""
    plain = dict(message)
    content = plain.get("content")
    if content is not None and not isinstance(content, str):
        plain["content"] = "\n".join(_texts(content, f"messages[{index}].content"))
    if isinstance(calls := plain.get("tool_calls"), list):
        plain["tool_calls"] = [_plain_call(call) for call in calls]
    return plain


def _texts(parts: Any, field: str) -> Iterator[str]:
    if not isinstance(parts, list | tuple):
        raise InvalidRequestError(f"{field} = {str(parts)[:100]}: it must be a string or a list of parts", field="messages")
    for number, part in enumerate(parts):
        kind = part.get("type") if isinstance(part, Mapping) else None
        text = part.get("text") if kind == "text" else None
        if not isinstance(text, str):
            raise InvalidRequestError(f"{field}[{number}].type = {kind!r}: this model takes parts of type 'text' only", field="messages")
        yield text


def _plain_call(call: Any) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = json.loads(function["arguments"] or "{}")
    except ValueError:
        return call
    return {**call, "function": {**function, "arguments": arguments}}
