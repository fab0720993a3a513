#!/usr/bin/env python3
"""Writes tests/golden/chat.json: chat templates, and what transformers makes of them.

    python3 tools/make_chat_goldens.py

Three kinds of case: expressions, white space and statements, one construct each; templates in the form of well-known
families, with conversations; and templates that must fail. Needs transformers and jinja2; strftime_now is told a time.
"""

import datetime
import json
import pathlib

import transformers.utils.chat_template_utils as chat

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "chat.json"
NOW = datetime.datetime(2025, 3, 9, 12, 0, 0)

TOOLS = [{"type": "function", "function": {
    "name": "weather", "description": "Says how the weather <is>", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "enum": [1, 2]}},
        "required": ["city"]}}}]
TALK = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHi"}, {"role": "user", "content": " Rain in Rome? \n"}]
CALL = TALK + [
    {"role": "assistant", "content": "", "tool_calls": [{"id": "call00001", "type": "function", "function": {
        "name": "weather", "arguments": {"city": "Rome", "days": 2}}}]},
    {"role": "tool", "tool_call_id": "call00001", "content": "{\"rain\": 0.5}"},
    {"role": "assistant", "content": "A little."}, {"role": "user", "content": "Grazie, è gentile 🙂"}]
ODD = [{'role': 'system', 'content': 'Be kind.'}, {'role': 'user', 'content': ' Hello <b> \'there\' "x" é🙂\n'}, {'role': 'assistant', 'content': '<think>\nhm\n</think>\n\nHi'}, {'role': 'user', 'content': 'Bye', 'n': 3, 'f': 1.5, 'e': 1e+16, 'none': None, 'l': [1, 'two', 3.0, None, True, {'a': "b'c"}]}]
MESSAGES = {"talk": TALK, "call": CALL, "one": TALK[1:2], "wrong": [TALK[1], TALK[1]], "none": [], "odd": ODD}

# The families' formats: who speaks is told in special tokens, tools stand in the system's message, thoughts are dropped.
FAMILIES = {
    "storyteller": open(OUT.parent.parent.parent / "models/storyteller/chat_template.jinja").read(),
    "chatml": """
{%- set first = messages[0] if messages else {} %}
{%- macro begin(role) -%}
    {{ '<|im_start|>' ~ role ~ '\\n' }}
{%- endmacro %}
{%- if tools or first.role == 'system' %}
    {{- begin('system') }}
    {{- first.content if first.role == 'system' else 'You are helpful.' }}
    {%- if tools %}
        {{- '\\n\\n# Tools\\n<tools>' }}
        {%- for tool in tools %}
            {{- '\\n' ~ tool | tojson }}
        {%- endfor %}
        {{- '\\n</tools>' }}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' or message.role == 'system' and not loop.first or message.role == 'assistant' and not message.tool_calls %}
        {{- begin(message.role) + message.content + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {{- begin('assistant') + message.content }}
        {%- for call in message.tool_calls %}
            {%- set call = call.function if call.function is defined else call %}
            {{- '<tool_call>\\n{"name": "' ~ call.name ~ '", "arguments": ' ~ (call.arguments | tojson) ~ '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.previtem.role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' ~ message.content ~ '\\n</tool_response>' }}
        {%- if loop.last or loop.nextitem.role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- begin('assistant') }}{%- endif %}
""",
    "thinking": """
{%- set last = namespace(question=messages | length - 1, searching=true) %}
{%- for message in messages[::-1] %}
    {%- set at = messages | length - loop.index %}
    {%- if last.searching and message.role == 'user' and message.content is string and not message.content.startswith('<tool_response>') %}
        {%- set last.searching = false %}
        {%- set last.question = at %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == 'assistant' and '</think>' in content %}
        {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- if loop.index0 > last.question %}{%- set content = '<think>\\n' + thought.strip() + '\\n</think>\\n\\n' + content %}{%- endif %}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}
""",
    "llama3": """
{{- bos_token }}
{%- if not date is defined %}{%- set date = strftime_now('%d %b %Y') %}{%- endif %}
{%- if messages and messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system = '' %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}{{- "Environment: ipython\\n" }}{%- endif %}
{{- "Today Date: " + date + "\\n\\n" }}
{%- if tools is not none %}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls | length == 1 %}{{- raise_exception("one call at a time") }}{%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
        {{- '{"name": "' + call.name + '", "parameters": ' }}{{- call.arguments | tojson }}{{- "}<|eot_id|>" }}
    {%- else %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is not string %}{{- message.content | tojson }}{%- else %}{{- message.content }}{%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}
""",
    "mistral": """
{%- if messages and messages[0]["role"] == "system" %}
    {%- set system = messages[0]["content"] %}
    {%- set rest = messages[1:] %}
{%- else %}
    {%- set rest = messages %}
{%- endif %}
{%- set ns = namespace(turn=0) %}
{%- for message in rest | rejectattr("role", "in", ["tool"]) %}
    {%- if not (message.tool_calls is defined and message.tool_calls) %}
        {%- if (message["role"] == "user") != (ns.turn % 2 == 0) %}
            {{- raise_exception("roles must alternate user/assistant/user/assistant/...") }}
        {%- endif %}
        {%- set ns.turn = ns.turn + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in rest %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == (rest | selectattr("role", "equalto", "user") | list)[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- for key, value in tool.function.items() if key != "return" %}
                    {{- '"' + key + '": ' }}{{- value | tojson if value is not string else '"' + value + '"' }}
                    {%- if not loop.last %}{{- ", " }}{%- endif %}
                {%- endfor %}
            {%- endfor %}
            {{- "][/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system is defined %}
            {{- "[INST] " + system + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for call in message.tool_calls %}
            {%- set out = call.function | tojson %}
            {{- out[:-1] }}
            {%- if not call.id is defined or call.id | length != 9 %}{{- raise_exception("ids have 9 characters") }}{%- endif %}
            {{- ', "id": "' + call.id + '"}' }}
            {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" + eos_token }}{%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"] | trim + eos_token }}
    {%- elif message["role"] == "tool" %}
        {{- '[TOOL_RESULTS] {"content": ' + message.content | string + ', "call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- endif %}
{%- endfor %}
""",
}

EXPRESSIONS = [
    '{{ 1 + 2 * 3 ** 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 1e3 }} {{ 10/5 }} {{ 2**-1 }} {{ -2**2 }}',
    '{{ \'a\' ~ 1 ~ none ~ true ~ 1.5 }}|{{ \'a\' \'b\' }}|{{ "x\\n\\t\\x41\\u00e9\\q" }}',
    '{{ [1, \'a\', none, (1,), (1,2), {\'k\': \'v\'}, "it\'s", \'q"\', \'\\n\'] }}',
    '{{ messages }}',
    "{{ messages[3].l }} {{ messages[3].e }} {{ messages[-1]['f'] }} {{ messages[10] }} {{ messages[3].zzz }}",
    "{{ messages[1:3] | length }} {{ messages[::-1][0].role }} {{ 'hello'[1:3] }} {{ 'hello'[::-1] }} {{ 'hello'[-3:] }} {{ 'hello'[1] }}",
    "{{ 1 < 2 < 3 }} {{ 1 < 2 > 5 }} {{ 'a' in 'abc' }} {{ 'role' in messages[0] }} {{ 3 not in [1,2] }} {{ not true }} {{ none is none }}",
    "{{ 'yes' if messages else 'no' }} {{ 'x' if false }}| {{ undefined_thing }}| {{ undefined_thing is defined }} {{ undefined_thing | default('d') }} {{ '' | default('d', true) }}",
    "{{ messages | map(attribute='role') | join(', ') }} {{ messages | selectattr('role', 'equalto', 'user') | list | length }}",
    "{{ messages | rejectattr('n') | map(attribute='role') | list }} {{ [1,2,3,4] | select('odd') | list }} {{ [1,2,3] | reject('even') | list }} {{ ['a','b'] | map('upper') | list }}",
    '{{ {\'b\': 1, \'a\': [1, {\'c\': none}], \'d\': \'é"\\n\\\\ <&>\'} | tojson }}',
    "{{ {'b': 1, 'a': [1, {'c': none}], 'e': [], 'f': {}} | tojson(indent=2) }}",
    "{{ {'b': 1, 'a': 2.0} | tojson(sort_keys=true, separators=(',', ':')) }} {{ 'x' | tojson }} {{ 1.0 | tojson }} {{ true | tojson }}",
    "{{ 'hello world foo-bar (baz)' | title }} {{ 'hELLO' | capitalize }} {{ 'Hello' | upper | lower }} {{ '  x ' | trim }}| {{ 'xxaxx' | trim('x') }}",
    "{{ 'a\\nb\\n\\nc' | indent }} {{ 'a\\nb' | indent(2, true) }} {{ 'a\\n\\nb' | indent(width=3, blank=true) }}",
    "{{ 'abcabc' | replace('b', 'X') }} {{ 'abcabc' | replace('b', 'X', 1) }} {{ 'abcabc'.replace('c', '') }} {{ 'abc'.replace('', '-') }}",
    "{{ ' a b  c '.split() }} {{ 'a,b,,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ' a b c '.rsplit(none, 1) }} {{ ' a b c '.split(none, 1) }}",
    '{{ \'abc\'.startswith(\'ab\') }} {{ \'abc\'.endswith((\'x\',\'c\')) }} {{ \' x \'.strip() }}| {{ \'xyx\'.lstrip(\'x\') }} {{ \'xyx\'.rstrip(\'x\') }} {{ \'ab\'.upper() }} {{ "they\'re bill\'s".title() }}',
    "{{ 'abcb'.find('b') }} {{ 'abcb'.rfind('b') }} {{ 'abcb'.count('b') }} {{ ','.join(['a','b']) }} {{ 'a=b=c'.partition('=') }} {{ 'a\\nb\\r\\nc'.splitlines() }}",
    "{{ '%s is %d and %.2f' % ('x', 3, 1.234) }} {{ '%s' | format('y') }} {{ '%05d|%x' % (42, 255) }}",
    "{{ 3.7 | int }} {{ '42' | int }} {{ 'x' | int(7) }} {{ '3.5' | float }} {{ 3 | string }} {{ 2.567 | round(2) }} {{ 2.5 | round }} {{ 3.2 | round(0, 'ceil') }} {{ 3 | round }} {{ -3 | abs }}",
    "{{ [3,1,2] | sort }} {{ ['b','A','c'] | sort }} {{ ['b','A'] | sort(case_sensitive=true) }} {{ [3,1,2] | sort(reverse=true) }} {{ messages | sort(attribute='role') | map(attribute='role') | list }}",
    "{{ [1,2,2,3] | unique | list }} {{ [1,2,3] | sum }} {{ [1,5,3] | max }} {{ [4,2] | min }} {{ [1,2,3] | first }} {{ [1,2,3] | last }} {{ [] | first }}| {{ 'abc' | reverse }} {{ [1,2] | reverse | list }}",
    "{{ {'b':1,'a':2} | dictsort }} {{ {'b':1,'a':2} | items | list }} {{ {'b':1,'a':2}.items() | list }} {{ {'a':1}.get('a') }} {{ {'a':1}.get('x') }} {{ {'a':1}.get('x', 5) }} {{ {'a':1}.keys() | list }} {{ {'a':1}.values() | list }}",
    '{{ \'a b c\' | wordcount }} {{ \'abc\' | list }} {{ \'abc\' | length }} {{ \'<a href="x">\' | e }} {{ \'é🙂\' | length }}',
    '{{ range(5) | list }} {{ range(2, 10, 3) | list }} {{ range(5, 0, -2) | list }} {{ dict(a=1, b=2) }}',
    "{{ 1 is number }} {{ 'a' is string }} {{ [] is iterable }} {{ {} is mapping }} {{ 3 is odd }} {{ 4 is divisibleby 2 }} {{ 4 is divisibleby(3) }} {{ true is boolean }} {{ 1 is true }} {{ 'a' is in ['a'] }} {{ 1 is eq 1 }} {{ 2 is gt(1) }} {{ none is not none }} {{ [1] is sequence }} {{ 1.0 is float }} {{ 1 is integer }} {{ true is integer }} {{ 'a' is lower }} {{ 'A' is upper }} {{ x is undefined }} {{ range is callable }} {{ 'a' is sameas 'a' }}",
    "{{ true and 'x' }} {{ '' or 'y' }} {{ 0 and 1 }} {{ (1, 2) == (1, 2) }} {{ [1] + [2] }} {{ 'ab' * 3 }} {{ [0] * 2 }} {{ 1 == 1.0 }} {{ 1 == true }} {{ none == false }} {{ '1' == 1 }} {{ 'a' < 'b' }} {{ [1,2] < [1,3] }}",
    "{{ strftime_now('%d %B %Y') }} {{ messages[0].items() | list }} {{ messages[0].role.upper() }} {{ messages[0]['content'][0:2] ~ '!' }}",
]
WHITE_SPACE = [
    '  {% if true %}\n a\n  {% endif %}\n b',
    '{%- if true -%}\n a \n{%- endif %}\n b ',
    'x  {%+ if true %}y{% endif %}',
    'x\n  {%+ if true +%}\ny{% endif %}',
    '{# c #}\nx {# d #}\ny {#- e -#} z',
    '  {# c #}  \nx',
    '{% raw %}{{ x }}{% y %}{% endraw %}!',
    '{%- raw -%}  {{ x }} {%- endraw -%}  !',
    'a\n\n',
    'a\n',
    '{{ 1 }}\n{{ 2 }}\n',
    '{{- 1 -}}\n  {{- 2 }}',
    '  {{ 1 }}',
    '\t{% set x = 1 %}\t\n{{ x }}',
    '{% for i in range(3) %}{{ i }}{% endfor %}',
    'a\r\nb\r{{ 1 }}',
    "{{ '}}' }}{{ {'a': {'b': 1}}['a']['b'] }}",
    "{{ {'a':{'b':1}} }}",
    '{%if true%}x{%endif%}',
    '{% raw %}\nx\n{% endraw %}\ny',
    ' {% raw %} x {% endraw %} ',
    'x {%- raw +%} y {% endraw +%}\n z',
    '{# \n\n #}\n\nx',
    '  x {% if 1 %}  {% endif %}  y',
    '  {%- if 1 %}\n   {%- endif %}\n y',
    'x\n   {#- c #}\n y',
    '{% if 1 -%} \n\n x {%- endif -%} \n\n y',
]
STATEMENTS = [
    '{% for m in messages %}{{ loop.index }}/{{ loop.length }} {{ loop.first }} {{ loop.last }} {{ loop.revindex0 }} {{ m.role }}{% if not loop.last %},{% endif %}{% else %}none{% endfor %}',
    '{% for m in [] %}x{% else %}none{% endfor %}',
    "{% for m in messages if m.role == 'user' %}{{ loop.index }}{{ m.content }}{% endfor %}",
    "{% for k, v in {'a':1,'b':2}.items() %}{{ k }}={{ v }};{% endfor %}",
    '{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}',
    '{% set x = 1 %}{% for i in [1,2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}',
    '{% set ns = namespace(a=1) %}{% for i in [1,2] %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}',
    '{% if true %}{% set y = 5 %}{% endif %}{{ y }}',
    '{% set a, b = 1, 2 %}{{ a }}{{ b }}',
    '{% set x %}hello {{ 1 }}{% endset %}[{{ x }}]',
    '{% set x | upper %}hello{% endset %}{{ x }}',
    "{% macro f(a, b=2, c=none) %}{{ a }}-{{ b }}-{{ c }}{% endmacro %}{{ f(1) }} {{ f(1, 3) }} {{ f(1, c='z') }} {{ f() }}",
    '{% macro f(n) %}{% if n %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}',
    '{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, a=3) }}',
    '{% macro w() %}<{{ caller() }}>{% endmacro %}{% call w() %}in{% endcall %}',
    '{% macro w(x) %}<{{ caller(x) }}>{% endmacro %}{% call(y) w(3) %}in{{ y }}{% endcall %}',
    '{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}',
    '{% macro f(a) %}{{ a }}{% endmacro %}{{ f(b=2) }}',
    "{% filter upper %}abc{{ 'd' }}{% endfilter %}",
    "{% filter replace('a','b') | upper %}banana{% endfilter %}",
    '{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}',
    '{% generation %}x{{ 1 }}{% endgeneration %}',
    '{% if false %}a{% elif 1 %}b{% else %}c{% endif %}',
    '{% if false %}a{% elif 0 %}b{% else %}c{% endif %}',
    "{% for i in [1,2,3] %}{{ loop.previtem if loop.previtem is defined else '-' }}{{ loop.nextitem | default('+') }}{{ loop.cycle('a','b') }}{% endfor %}",
    '{% for i in [1,2] %}{% for j in [1,2] %}{{ loop.depth }}{{ i }}{{ j }} {% endfor %}{% endfor %}',
    "{% for i in [1,2] %}{% set z = i if z is undefined else 'seen' %}{{ z }}{% endfor %}",
    '{% set x = 1 %}{% macro f() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ f() }}',
    '{% macro g() %}{{ i }}{% endmacro %}{% for i in [1] %}{{ g() }}{% endfor %}',
    "{% for x in messages | selectattr('role','equalto','nobody') %}x{% endfor %}{% if messages | selectattr('role','equalto','nobody') %}yes{% else %}no{% endif %}",
    "{% set g = messages | map(attribute='role') %}{{ g | list }}{{ g | list }}",
    "{{ raise_exception('no') }}",
    '{{ x.y }}',
    '{{ x.y.z }}',
    '{{ messages.foo.bar }}',
    "{{ 'a' + 1 }}",
    '{{ none.x }}|',
    '{{ 1 / 0 }}',
    '{{ foo() }}',
    "{{ 'a' | nofilter }}",
    "{{ 'a' is notest }}",
    '{% foo %}',
    '{{ 1 + }}',
    '{% if %}',
    '{% for %}',
    '{% if 1 %}',
    '{{ (1 }}',
    "{{ 'abc }}",
    '{{ 1 } }}',
    '{% set x = %}',
    '{% endif %}',
    '{{ }}',
    '{# x',
    '{% raw %} x',
    '{{ [1,2].append(3) }}',
    '{{ range(1000000) }}',
    "{% include 'x' %}",
    '{% set messages.x = 1 %}',
    '{{ messages | tojson(indent=1) }}',
    '{% set ns = namespace() %}{% set ns.x = 1 %}{{ ns.x }}{{ ns.y }}|',
    "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}",
    "{{ ['a', 'b'] | join }}{{ [1, [2]] | join('-') }}",
    "{{ ('a', 'b') | join(',') }}",
    '{% set x = (1, 2) %}{{ x[0] }}',
    "{{ messages[0].content.split(' ')[0] }}",
    "{{ '</think>' in messages[2].content }}{{ messages[2].content.split('</think>')[-1].lstrip('\\n') }}|{{ messages[2].content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') }}",
    '{{ undefined_thing == none }}{{ undefined_thing == undefined2 }}',
    '{{ undefined_thing | length }}',
    '{% for i in undefined_thing %}x{% endfor %}y',
    "{{ undefined_thing ~ 'x' }}",
    "{{ undefined_thing + 'x' }}",
    "{{ 'x' in undefined_thing }}",
    '{{ undefined_thing[0] }}',
    '{{ not undefined_thing }}',
    '{{ messages | length > 2 }}',
    '{{ messages|length }}',
    '{{ -1 | abs }}',
    "{{ 'a' ~ 'b' | upper }}",
    "{{ ('a' ~ 'b') | upper }}",
    '{{ 1 if 0 else 2 if 0 else 3 }}',
    '{{ not 1 == 2 }}',
    '{{ 1 in [1] == true }}',
    '{{ 5 is odd and 4 is even }}',
    "{{ 'a' is string or false }}",
    '{{ x is not defined }}',
    "{{ messages[0].role is not in ['a'] }}",
    '{{ messages[0] is mapping and messages[0].content is string }}',
    "{{ {1: 'a', 'b': 2}[1] }}",
    "{{ {'a': 1}['a'] }}{{ {'a':1}.b is defined }}",
    '{{ 1000000000000 * 1000000 }}',
    '{{ 0.1 + 0.2 }} {{ 1e100 }} {{ 1.0e-5 }} {{ 123456789.125 }} {{ 1e15 }} {{ 1e16 }} {{ 0.0001 }}',
    '{{ 5 // 0 }}',
    '{{ 5.0 // 2 }} {{ -5.5 % 3 }} {{ 5 % -3 }}',
    '{{ true + 1 }}',
    "{{ 'abc'[5] }}|",
    "{{ 'abc'[1:] }}{{ 'abc'[:-1] }}{{ [1,2,3][::2] }}{{ [1,2,3][5:] }}",
    '{{ messages | tojson }}',
    "{{ 'ß'.upper() }}{{ 'İ'.lower() }}{{ 'ΑΒ' | lower }}{{ 'ǆ' | title }}",
    "{{ '\\u200b\\u00a0\\x01' | list }}",
    "{{ ' \\u00a0x\\u2003' | trim }}|",
    '{% for a, b in [[1,2],[3,4]] %}{{ a }}{{ b }}{% endfor %}',
    '{% for a, b in [1] %}{{ a }}{% endfor %}',
    '{{ loop }}',
    '{% for i in [1] %}{{ loop.index0 }}{% endfor %}{{ loop is defined }}',
    "{{ messages | map('tojson') | join('') | length }}",
    "{{ [[1,2],[3]] | map('length') | list }}",
    "{{ [{'a':{'b':1}}] | map(attribute='a.b') | list }}{{ [{'a':1},{}] | map(attribute='a', default=0) | list }}",
    "{{ [1,2] | map('string') | join('+') }}",
    "{{ 'a,b'.split(',') | last }}",
    "{{ [true, 1, 'a'] | tojson }}",
    "{{ 'tab\\tq\\b\\u2028' | tojson }}",
    '{{ messages[3].none }} {{ messages[3].none is none }} {{ messages[3].none.x is defined }}',
]


def render(template, messages, **variables):
    try:
        program = chat._compile_jinja_template(template)
        program.globals["strftime_now"] = NOW.strftime
        return {"text": program.render(messages=messages, tools=variables.pop("tools", None), documents=None, **variables)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def main():
    cases = []
    special = {"bos_token": "<s>", "eos_token": "</s>"}
    for template in EXPRESSIONS + WHITE_SPACE + STATEMENTS:
        cases.append({"template": template, "messages": "odd", "generate": True})
    for name, template in FAMILIES.items():
        for messages in MESSAGES:
            if messages == "odd":
                continue
            for tools in (None, TOOLS):
                for generate, more in ((False, {}), (True, {}), (True, {"enable_thinking": False})):
                    cases.append({"template": name, "messages": messages, "generate": generate} |
                                 ({"tools": True} if tools else {}) | ({"variables": more} if more else {}))
    for case in cases:
        template = FAMILIES.get(case["template"], case["template"])
        case |= render(template, MESSAGES[case["messages"]], add_generation_prompt=case["generate"],
                       tools=TOOLS if case.get("tools") else None, **special, **case.get("variables", {}))
    lines = ",\n".join(json.dumps(case) for case in cases)
    head = {"about": "written by tools/make_chat_goldens.py", "now": int(NOW.replace(tzinfo=datetime.timezone.utc).timestamp()),
            "special": special, "tools": TOOLS, "messages": MESSAGES, "templates": FAMILIES}
    OUT.write_text(json.dumps(head)[:-1] + ',\n"cases": [\n' + lines + "\n]}\n")
    print(len(cases), "cases,", sum("error" in case for case in cases), "of them errors")


if __name__ == "__main__":
    main()
