"""Where chat templates run: Jinja's sandbox, with a budget.

Every loop turn, call and filter is a step; steps, time and the size of each value are limited. This bounds templates that loop for ever or
grow without end. It is not a wall against one built so that a single filter fills the memory: templates come from the model's
files, and a server takes none from a request.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from datetime import datetime
from typing import Any, cast

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from octavo.errors import InvalidRequestError

MAX_SECONDS = 5.0
"""For one rendering; a conversation of a million tokens takes a fraction of a second."""
MAX_STEPS = 1_000_000
MAX_SIZE = 1 << 25
"""Characters of a text, or items of a list, that a template builds."""
MAX_EXPONENT = 1024


class _Budget:
    """What one rendering has left."""

    def __init__(self) -> None:
        self._deadline = time.monotonic() + MAX_SECONDS
        self._steps = 0

    def step(self) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise SecurityError(f"it takes more than {MAX_STEPS} steps")
        if time.monotonic() > self._deadline:
            raise SecurityError(f"it runs for more than {MAX_SECONDS:g} s")


_BUDGET: ContextVar[_Budget] = ContextVar("chat_template_budget")


def render_template(template: jinja2.Template, **variables: Any) -> str:
    """The template's output.

    Raises:
        InvalidRequestError: the template raised an error of its own, failed, or overran its budget.
    """
    token = _BUDGET.set(_Budget())
    try:
        pieces, size = [], 0
        for piece in template.generate(**variables):
            pieces.append(piece)
            size += len(piece)
            _check_size(size)
        return "".join(pieces)
    except Exception as error:  # A template can raise whatever its filters and methods do.
        words = error.message if isinstance(error, jinja2.TemplateError) and error.message else f"{type(error).__name__}: {error}"
        message = f"the chat template cannot render these messages: {words}"
        raise InvalidRequestError(message, field="messages", code="chat_template_error") from error
    finally:
        _BUDGET.reset(token)


def _check_size(size: int) -> None:
    if size > MAX_SIZE:
        raise SecurityError(f"it builds a value of {size} characters or items; at most {MAX_SIZE}")


def _sized(value: Any) -> Any:
    if isinstance(value, str | list | tuple):
        _check_size(len(value))
    return value


def _stepped(iterable: Iterable[Any]) -> Iterator[Any]:
    """The items, each taking a step."""
    budget = _BUDGET.get()
    for item in iterable:
        budget.step()
        yield item


def _metered(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter whose every use takes a step, and whose result is measured."""

    @functools.wraps(function)
    def metered(*args: Any, **kwargs: Any) -> Any:
        _BUDGET.get().step()
        return _sized(function(*args, **kwargs))

    return metered


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)


def _to_json(value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False) -> str:
    """JSON as it is; Jinja's own filter escapes it for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


@jinja2.pass_context
def _as_is(context: Context, value: Any) -> Any:
    """A finalizer that asks for the context, so that no expression is evaluated while the template compiles."""
    return value


class _Generation(Extension):
    """``{% generation %}…{% endgeneration %}``, with which training marks the assistant's words: here just what is inside."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Meters(NodeTransformer):
    """Puts a meter at each loop and at each ``~``, which Jinja compiles to code that no hook sees."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.iter = _filtered(cast(nodes.Expr, node.iter), "_stepped")
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(node, "_sized")


def _filtered(node: nodes.Expr, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno, environment=node.environment)


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox that all chat templates share the rules of: transformers' names and whitespace, and the budget."""

    intercepted_binops = frozenset({"*", "**", "+"})

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, optimized=False, finalize=_as_is, extensions=[_Generation, loopcontrols])
        self.filters["tojson"] = _to_json
        self.filters = {name: _metered(function) for name, function in self.filters.items()}
        self.filters |= {"_stepped": _stepped, "_sized": _sized}
        self.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = _Meters().visit(super()._parse(source, name, filename))
        return tree

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        _BUDGET.get().step()
        return _sized(super().call(context, function, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "*":
            for sequence, times in ((left, right), (right, left)):
                if isinstance(sequence, str | list | tuple) and isinstance(times, int):
                    _check_size(len(sequence) * times)
        elif operator == "**" and isinstance(right, int) and right > MAX_EXPONENT:
            raise SecurityError(f"it takes a power of {right}; at most {MAX_EXPONENT}")
        return _sized(super().call_binop(context, operator, left, right))
