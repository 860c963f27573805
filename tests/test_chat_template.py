"""Chat templates without transformers, held against that library: what they write, and what they may not do."""

from collections.abc import Mapping, Sequence

import jinja2
import pytest
from jinja2.exceptions import SecurityError
from minigen.generation.chat_template import rendered
from transformers.utils.chat_template_utils import render_jinja_template

NAMES = {"bos_token": "<s>", "eos_token": "</s>"}
CHATS: Sequence[Sequence[Mapping[str, str]]] = (
    [{"role": "user", "content": "Hi\n {{ 7 * 7 }} <|im_end|> é"}],
    [{"role": "system", "content": " Be brief. "}, {"role": "user", "content": "Why?"}],
    [
        {"role": "user", "content": "One"},
        {"role": "assistant", "content": "<think>so</think> Two"},
        {"role": "user", "content": "Three"},
    ],
)
TEMPLATES = {
    "chatml": "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    "inst": "{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}"
    "{% set system = messages[0]['content'] %}"
    "{% else %}{% set rest = messages %}{% set system = false %}{% endif %}{% for m in rest %}"
    "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
    "{% if loop.index0 == 0 and system != false %}{% set content = '<<SYS>>\\n' + system + '\\n<</SYS>>\\n"
    "\\n' + m['content'] %}"
    "{% else %}{% set content = m['content'] %}{% endif %}{% if m['role'] == 'user' %}"
    "{{ bos_token + '[INST] ' + content | trim + ' [/INST]' }}{% else %}{{ ' ' + content | trim + ' ' + eos_token }}"
    "{% endif %}{% endfor %}",
    "headers": "{{- bos_token }}\n{%- set day = strftime_now('%Y') %}\n{%- for m in messages %}\n    "
    "{{- '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' + m['content'] | trim + '<|eot_id|>' }}\n"
    "{%- endfor %}\n{%- if day | length != 4 %}{{ 'bad' }}{% endif %}\n{%- if add_generation_prompt %}\n"
    "    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}\n{%- endif %}",
    "turns": "{% for m in messages %}{% if m['role'] == 'assistant' %}{% set role = 'model' %}{% else %}"
    "{% set role = m['role'] %}{% endif %}{{ '<start_of_turn>' ~ role ~ '\\n"
    "' ~ m.content | trim ~ '<end_of_turn>\\n' }}"
    "{% endfor %}{{ '<start_of_turn>model\\n' if add_generation_prompt }}",
    "namespace": "{%- set ns = namespace(last=-1, seen=[]) %}{%- for m in messages[::-1] %}"
    "{%- set i = messages | length - 1 "
    "- loop.index0 %}{%- if ns.last < 0 and m.role == 'user' %}{%- set ns.last = i %}{%- endif %}{%- endfor %}"
    "{%- for m in messages %}{%- if loop.index0 > 5 %}{% break %}{% endif %}{%- if '</think>' in m.content %}"
    "{%- set content = m.content.split('</think>')[-1].lstrip('\\n') %}{%- else %}"
    "{%- set content = m.content %}{%- endif %}"
    "{{- loop.index0 ~ ':' ~ (loop.index0 == ns.last) ~ ':' ~ content }}\n{%- endfor %}",
    "json": "{{ messages | tojson }}{{ messages | tojson(indent=2) }}{{ dict(a=1) | tojson }}"
    "{{ dict.fromkeys(['x']) }}",
    "undefined": "{{ tools }}|{{ documents }}|{{ nothing }}|{% if tools %}t{% endif %}"
    "{{ messages[0].get('name', 'none') }}",
    "generation": "{% for m in messages %}{% generation %}{{ m.content }}\n{% set x = 1 %}{% endgeneration %}"
    "{{ x }}{% endfor %}",
    "macro": "{% macro say(m) %}[{{ m.role }}] {{ m.content | upper }}{% endmacro %}{% for m in messages %}"
    "{{ say(m) }}"
    "{% continue %}never{% endfor %}",
    "spaces": "  {% if true %}\n  kept\n  {% endif %}\n{# a comment #}\n tail \n",
}  # fmt: skip
ESCAPES = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ messages.__class__.__init__.__globals__ }}",
    "{{ dict.__class__ }}",
    "{{ dict.__call__.__globals__ }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ raise_exception.__globals__ }}",
    "{{ strftime_now.__code__ }}",
    "{{ cycler.__init__.__globals__.os }}",
    "{{ lipsum.__globals__['os'].popen('id') }}",
    "{% set ns = namespace(__class__=1) %}{{ ns }}",
    "{% set ns = namespace() %}{% set ns._x = 1 %}",
    "{{ namespace(dict(_a=1)) }}",
    "{{ messages.append(1) }}",
    "{{ messages[0].update(a=1) }}",
    "{{ messages[0].pop('role') }}",
    "{{ ''|attr('__class__') }}",
    "{{ ('{0.__class__}').format(messages) }}",
    "{% for k in messages[0].items() %}{{ k.__reduce__() }}{% endfor %}",
    "{{ self.__init__.__globals__ }}",
    "{{ range(10 ** 9) | list }}",
]


def by_the_library(template: str, messages: Sequence[Mapping[str, str]]) -> str:
    texts, _ = render_jinja_template(
        conversations=[[dict(message) for message in messages]],
        chat_template=template,
        add_generation_prompt=True,
        **NAMES,
    )
    text: str = texts[0]
    return text


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("messages", CHATS, ids=["one", "system", "turns"])
def test_a_template_writes_what_it_writes_in_the_library(name: str, messages: Sequence[Mapping[str, str]]) -> None:
    assert rendered(TEMPLATES[name], messages, NAMES) == by_the_library(TEMPLATES[name], messages)


@pytest.mark.parametrize("template", ESCAPES)
def test_a_template_cannot_reach_the_machine(template: str) -> None:
    """LD-3: what the library refuses is refused, and what it lets through shows nothing of Python's inside."""
    chat = CHATS[0]
    try:
        expected: str | type[BaseException] = by_the_library(template, chat)
    except (jinja2.TemplateError, TypeError, ValueError, AttributeError, LookupError, OverflowError) as error:
        expected = type(error)
    if isinstance(expected, str):
        assert rendered(template, chat, NAMES) == expected
        assert "<class" not in expected
        assert "0x" not in expected
    else:
        with pytest.raises(expected):
            rendered(template, chat, NAMES)


def test_nothing_that_a_template_does_lasts() -> None:
    messages = [{"role": "user", "content": "x"}]
    with pytest.raises(SecurityError):
        rendered("{{ messages[0].update(content='y') }}", messages, NAMES)
    assert messages == [{"role": "user", "content": "x"}]


def test_a_template_says_what_it_refuses() -> None:
    with pytest.raises(jinja2.TemplateError, match="no system text"):
        rendered("{{ raise_exception('no system text') }}", CHATS[0], NAMES)
