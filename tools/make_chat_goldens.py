#!/usr/bin/env python3
"""Writes tests/golden/chat.json: chat templates, and what transformers makes of them.

    python3 tools/make_chat_goldens.py

Two kinds of case: templates of one construct each (chat_cases.py), some of which must fail; and templates in the form of
well-known families, with conversations. Needs transformers and jinja2; strftime_now is told a time.
"""

import datetime
import json
import pathlib
import re

import transformers.utils.chat_template_utils as chat

import chat_cases

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
REASONED = [{"role": "assistant", "content": "a", "reasoning": "r"}, {"role": "assistant", "content": "b", "thinking": "t"},
            {"role": "assistant", "reasoning_content": "c", "thinking": "x"}, {"role": "assistant", "thinking": None, "reasoning": "y"},
            {"role": "assistant", "reasoning_content": None}, {"role": "assistant", "reasoning": "", "content": [{"type": "text"}]},
            {"role": "user", "reasoning": ["list"], "thinking": "t", "reasoning_content": "c"}]
MESSAGES = {"talk": TALK, "call": CALL, "one": TALK[1:2], "wrong": [TALK[1], TALK[1]], "none": [], "odd": ODD, "reasoning": REASONED}

REASONING = ["{% for m in messages %}{{ m.reasoning_content }}|{{ m.thinking }}|{{ m.reasoning }};{% endfor %}",
             "{{ messages | tojson }}", "{% for m in messages %}{{ m.keys() | join(',') }};{% endfor %}"]

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

def render(template, messages, **variables):
    try:
        chat._compile_jinja_template(template).globals["strftime_now"] = NOW.strftime  # the one that is kept and used
        return {"text": chat.render_jinja_template([messages], chat_template=template, **variables)[0][0]}
    except Exception as error:
        # Addresses differ from run to run.
        return {"error": re.sub(r" at 0x[0-9a-f]+", " at ...", f"{type(error).__name__}: {error}")}


def main():
    cases = []
    special = {"bos_token": "<s>", "eos_token": "</s>"}
    for template in chat_cases.ALL:
        cases.append({"template": template, "messages": "odd", "generate": True})
    for template in REASONING:
        cases.append({"template": template, "messages": "reasoning", "generate": True})
    for name, template in FAMILIES.items():
        for messages in MESSAGES:
            if messages in ("odd", "reasoning"):
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
