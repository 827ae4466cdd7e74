"""Chat templates render what transformers renders, and continue a message exactly."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.utils.chat_template_utils import render_jinja_template

from octavo.errors import InvalidRequestError, ModelFileError
from octavo.tokenizer.chat_template import ChatTemplate
from octavo.tokenizer.tokenizer import Tokenizer

CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are helpful."
    "<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA3 = """{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "You can call:\\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message + "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
        {%- for call in message.tool_calls %}
            {{- '{"name": "' + call.function.name + '", "parameters": ' ~ (call.function.arguments | tojson) ~ '}' }}
        {%- endfor %}
        {{- "<|eot_id|>" }}
    {%- else %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" + message.content + "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
GEMMA = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}{{ raise_exception('System role not supported') }}{%- endif -%}
{%- for message in messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- set role = "model" if message['role'] == 'assistant' else message['role'] -%}
    {{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model\n' }}{%- endif -%}
"""
QWEN = """{%- set ns = namespace(multi=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi and message.role == "user" and not(message.content.startswith('<r>') and message.content.endswith('</r>')) %}
        {%- set ns.multi = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content %}
    {%- if message.role == "assistant" and '</think>' in content %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {%- if loop.index0 > ns.last or loop.last %}{{- '* ' }}{%- endif %}
    {{- '<|im_start|>' ~ message.role ~ '\\n' ~ content ~ '<|im_end|>' ~ '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""
MASKED = (
    "{% for m in messages %}  {% if m.role == 'assistant' %}{% generation %}{{ m.content }}{{ eos_token }}{% endgeneration %}\n"
    "  {% else %}{{ m.content | upper }}{% endif %}\n{% endfor %}"
)
TEMPLATES = {"chatml": CHATML, "llama3": LLAMA3, "gemma": GEMMA, "qwen": QWEN, "masked": MASKED}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
TOOLS = [{"type": "function", "function": {"name": "wéather", "description": "<b>", "parameters": {"type": "object", "properties": {}}}}]
TURNS: list[list[dict[str, Any]]] = [
    [{"role": "user", "content": "Hi <b>there</b> & é 'x'"}],
    [{"role": "user", "content": " a "}, {"role": "assistant", "content": "<think>hm</think>\n\nb\n"}, {"role": "user", "content": "c"}],
    [{"role": "system", "content": "Be brief. "}, {"role": "user", "content": "日本語 😊"}],
    [],
]


def theirs(template: str, messages: list[dict[str, Any]], **options: Any) -> str:
    """transformers' rendering."""
    rendered: str = render_jinja_template([messages], chat_template=template, **TOKENS, **options)[0][0]
    return rendered


@pytest.mark.parametrize("generate", [True, False])
@pytest.mark.parametrize("tools", [None, TOOLS])
@pytest.mark.parametrize("messages", TURNS)
@pytest.mark.parametrize("name", TEMPLATES)
def test_renders_as_transformers(name: str, messages: list[dict[str, Any]], tools: Any, generate: bool) -> None:
    template = ChatTemplate(TEMPLATES[name], **TOKENS)
    try:
        expected = theirs(TEMPLATES[name], messages, tools=tools, add_generation_prompt=generate)
    except Exception as error:
        with pytest.raises(InvalidRequestError, match=str(error).split(".")[0]):
            template.render(messages, add_generation_prompt=generate, tools=tools)
    else:
        assert template.render(messages, add_generation_prompt=generate, tools=tools) == expected


def test_further_variables_reach_the_template() -> None:
    messages = TURNS[0]
    for value in (True, False):
        expected = theirs(QWEN, messages, add_generation_prompt=True, enable_thinking=value)
        assert ChatTemplate(QWEN, **TOKENS).render(messages, enable_thinking=value) == expected


@settings(deadline=None, max_examples=60)
@given(contents=st.lists(st.text(max_size=20), min_size=1, max_size=5))
def test_any_contents_render_as_transformers(contents: list[str]) -> None:
    messages = [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(contents)]
    for template in (CHATML, LLAMA3, GEMMA, QWEN):
        assert ChatTemplate(template, **TOKENS).render(messages) == theirs(template, messages, add_generation_prompt=True)


def test_arguments_of_tool_calls_are_objects() -> None:
    """A client sends them as a JSON string; templates dump them, so a string would be dumped twice."""
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": "é"}'}}
    text = ChatTemplate(LLAMA3, **TOKENS).render([{"role": "user", "content": "q"}, {"role": "assistant", "tool_calls": [call]}])
    assert '{"name": "f", "parameters": {"x": "é"}}' in text
    assert call["function"] == {"name": "f", "arguments": '{"x": "é"}'}


def test_parts_of_text_are_joined_by_lines() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    template = ChatTemplate(CHATML, **TOKENS)
    assert template.render([{"role": "user", "content": parts}]) == template.render([{"role": "user", "content": "one\ntwo"}])


@pytest.mark.parametrize("content", [[{"type": "image_url", "image_url": {}}], [{"type": "text"}], ["x"], 5, {"a": 1}])
def test_other_content_is_refused_by_name(content: Any) -> None:
    with pytest.raises(InvalidRequestError, match=r"messages\[0\]\.content"):
        ChatTemplate(CHATML, **TOKENS).render([{"role": "user", "content": content}])


@pytest.mark.parametrize("ending", [" ", "\n", "\t", "", "! \n\t ", "\u00a0"])
@pytest.mark.parametrize("name", ["chatml", "llama3", "gemma", "qwen"])
def test_api_38_continues_from_the_exact_text(name: str, ending: str) -> None:
    text = "OK" + ending
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": text}]
    template = ChatTemplate(TEMPLATES[name], **TOKENS)
    prompt = template.render(messages, add_generation_prompt=False, continue_final_message=True)
    assert prompt.endswith("\n" + text)
    whole = template.render(messages, add_generation_prompt=False)
    start = whole.rindex("OK")
    assert prompt == whole[:start] + text
    assert messages[-1]["content"] == text


def test_api_38_a_message_that_occurs_before_is_continued_at_its_end() -> None:
    messages = [{"role": "user", "content": "OK"}, {"role": "assistant", "content": "OK"}]
    prompt = ChatTemplate(CHATML, **TOKENS).render(messages, add_generation_prompt=False, continue_final_message=True)
    assert prompt == theirs(CHATML, messages, continue_final_message=True)


@pytest.mark.parametrize(
    ("messages", "generate", "message"),
    [
        ([], False, "no text to continue"),
        ([{"role": "assistant", "content": None}], False, "no text to continue"),
        ([{"role": "assistant", "content": "x"}], True, "add_generation_prompt must be False"),
        ([{"role": "hidden", "content": "x"}], False, "leaves the last message's text out"),
    ],
)
def test_what_cannot_be_continued(messages: list[dict[str, Any]], generate: bool, message: str) -> None:
    template = ChatTemplate("{% for m in messages if m.role != 'hidden' %}{{ m.content }}{% endfor %}")
    with pytest.raises(InvalidRequestError, match=message) as caught:
        template.render(messages, add_generation_prompt=generate, continue_final_message=True)
    assert caught.value.field == "continue_final_message"


def test_api_37_the_templates_own_words() -> None:
    template = ChatTemplate(GEMMA, **TOKENS)
    with pytest.raises(InvalidRequestError, match="System role not supported") as caught:
        template.render([{"role": "system", "content": "x"}])
    assert (caught.value.field, caught.value.code) == ("messages", "chat_template_error")
    with pytest.raises(InvalidRequestError, match="roles must alternate user/assistant"):
        template.render([{"role": "user", "content": "x"}] * 2)


def test_api_37_a_model_without_a_template(vocabularies: dict[str, Tokenizer]) -> None:
    template = ChatTemplate.of(vocabularies["tiny_spm_plain"])
    for ask in (template.require, lambda: template.render([{"role": "user", "content": "x"}])):
        with pytest.raises(InvalidRequestError, match=r"no chat template.*use completions") as caught:
            ask()
        assert caught.value.code == "no_chat_template"


def test_a_template_in_place_of_the_models_counts_though_it_is_empty(vocabularies: dict[str, Tokenizer]) -> None:
    messages = [{"role": "user", "content": "x"}]
    assert ChatTemplate.of(vocabularies["tiny_spm_plain"], "<{{ messages[0].content }}>").render(messages) == "<x>"
    assert ChatTemplate.of(vocabularies["tiny_spm_plain"], "").render(messages) == ""


def test_an_error_says_whose_template_it_is(vocabularies: dict[str, Tokenizer]) -> None:
    with pytest.raises(ModelFileError, match=r"^the template given: chat template: line 1"):
        ChatTemplate.of(next(iter(vocabularies.values())), "{% for")


@pytest.mark.parametrize("writes_bos", [True, False])
def test_api_36_one_bos(writes_bos: bool, vocabularies: dict[str, Tokenizer]) -> None:
    """Whether or not the template writes BOS, a model that wants one gets one, and no EOS behind the prompt."""
    for name in ("byte_level", "llama2", "tiny_spm_plain", "tiny_spm_prefix"):
        tokenizer = vocabularies[name]
        template = ChatTemplate.of(tokenizer, ("{{ bos_token }}" if writes_bos else "") + "{{ messages[0].content }}")
        ids = template.apply(tokenizer, [{"role": "user", "content": "the fox"}])
        assert ids == [tokenizer.bos_token_id, *tokenizer.encode("the fox", add_special_tokens=False)]
    no_bos = vocabularies["gguf_bpe"]
    template = ChatTemplate.of(no_bos, "{{ messages[0].content }}")
    assert no_bos.bos_token_id not in template.apply(no_bos, [{"role": "user", "content": "the fox"}])


def test_a_template_renders_in_several_threads_at_once() -> None:
    template, results = ChatTemplate(QWEN, **TOKENS), []
    messages = TURNS[1] * 50
    threads = [threading.Thread(target=lambda: results.append(template.render(messages))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [theirs(QWEN, messages, add_generation_prompt=True)] * 4
