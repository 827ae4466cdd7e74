"""Chat templates cannot reach out of the sandbox, loop for ever or grow without end."""

from __future__ import annotations

import contextlib
import time

import pytest

from octavo.errors import InvalidRequestError, ModelFileError
from octavo.tokenizer import sandbox
from octavo.tokenizer.chat_template import ChatTemplate

MESSAGES = [{"role": "user", "content": "hello"}]


def refusal(template: str) -> str:
    """The error of a template that must fail, within the time it may take."""
    start = time.perf_counter()
    with pytest.raises(InvalidRequestError) as caught:
        ChatTemplate(template).render(MESSAGES)
    assert time.perf_counter() - start < 2 * sandbox.MAX_SECONDS
    assert caught.value.code == "chat_template_error"
    return str(caught.value)


@pytest.mark.parametrize(
    "expression",
    [
        'lipsum.__globals__["os"].popen("id").read()',
        "''.__class__.__mro__[1].__subclasses__()",
        "cycler.__init__.__globals__",
        "raise_exception.__globals__",
        "strftime_now.__code__",
        "messages.__init__",
        "''['__class__'].__base__",
        "namespace.__init__.__globals__",
    ],
)
def test_se_05_templates_do_not_reach_python(expression: str) -> None:
    """The attribute is undefined: it shows as nothing, and using it is an error that names it."""
    with contextlib.suppress(InvalidRequestError):
        assert ChatTemplate(f"{{{{ {expression} }}}}").render(MESSAGES) == ""
    assert "is unsafe" in refusal(f"{{{{ ({expression}).x }}}}")


def test_se_05_templates_do_not_change_messages() -> None:
    assert "'append' of 'list' object is unsafe" in refusal("{% set _ = messages.append(1) %}")


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{% for a in range(10**9) %}{% endfor %}",
        "{% set l = 'x' * 100000 %}{% for a in l %}{% for b in l %}{% endfor %}{% endfor %}",
        "{% macro m(n) %}{{ m(n) }}{% endmacro %}{{ m(1) }}",
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(40) }}",
        "{% for a in messages recursive %}{{ loop(messages) }}{% endfor %}",
    ],
)
def test_se_04_endless_templates_are_stopped(template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MAX_SECONDS", 1.0)
    refusal(template)


@pytest.mark.parametrize(
    "template",
    [
        "{{ 'x' * 10**10 }}",
        "{{ 10**9 * 'x' }}",
        "{{ [0] * 10**10 }}",
        "{{ 9 ** (9 ** 9) }}",
        "{% set n = namespace(s='x' * 1000) %}{% for i in range(40) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
        "{% set n = namespace(s='x' * 1000) %}{% for i in range(40) %}{% set n.s = n.s + n.s %}{% endfor %}",
        "{% set n = namespace(s='x' * 1000) %}{% for i in range(40) %}{% set n.s = [n.s, n.s] | join %}{% endfor %}",
        "{% set n = namespace(s='x' * 1000) %}{% for i in range(40) %}{% set n.s = n.s.replace('x', 'xx') %}{% endfor %}",
        "{% set s = 'x' * 1000000 %}{% for i in range(100) %}{{ s }}{% endfor %}",
    ],
)
def test_se_04_templates_that_grow_are_stopped(template: str) -> None:
    refusal(template)


def test_se_04_time_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MAX_SECONDS", 0.05)
    monkeypatch.setattr(sandbox, "MAX_STEPS", 10**12)
    assert "0.05 s" in refusal("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}")


def test_nothing_is_evaluated_while_a_template_compiles() -> None:
    """Jinja folds constants when it compiles; a filter of constants would run before there is a budget."""
    assert ChatTemplate("{% if false %}{{ 'x' | center(10 ** 11) }}{{ 'x' | center(99999999999) }}{% endif %}ok").render([]) == "ok"


def test_the_budget_is_of_each_rendering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MAX_STEPS", 100)
    template = ChatTemplate("{% for i in range(60) %}{{ i }}{% endfor %}")
    for _ in range(5):
        assert template.render([]) == "".join(map(str, range(60)))


def test_loops_keep_their_variables() -> None:
    """The meter in each loop changes nothing that a template can see."""
    template = ChatTemplate(
        "{% for m in messages %}{{ loop.index }}/{{ loop.length }}{{ loop.first }}{{ loop.last }}{{ loop.revindex }}"
        "{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a', 'b') }};{% else %}none{% endfor %}"
    )
    assert template.render([]) == "none"
    messages = [{"role": "a"}, {"role": "b"}]
    assert template.render(messages) == "1/2TrueFalse2{'role': 'b'}a;2/2FalseTrue1{'role': 'a'}b;"


def test_loop_controls_filters_and_unpacking() -> None:
    template = ChatTemplate(
        "{% for k, v in {'a': 1, 'b': 2, 'c': 3}.items() if v != 2 %}{{ k }}{% if v == 3 %}{% break %}{% endif %}{% endfor %}"
        "{% for x in undefined_name %}never{% endfor %}"
    )
    assert template.render([]) == "ac"


@pytest.mark.parametrize("template", ["{% for %}", "{{ a", "{% endif %}", "{{ x | nosuchfilter }}", "{% nosuchtag %}"])
def test_a_template_that_does_not_compile(template: str) -> None:
    with pytest.raises(ModelFileError, match=r"model\.gguf: chat template: line 1: "):
        ChatTemplate(template, origin="model.gguf")


def test_a_template_nested_without_end() -> None:
    with pytest.raises(ModelFileError, match="chat template"):
        ChatTemplate("{% if x %}" * 5000 + "{% endif %}" * 5000)
