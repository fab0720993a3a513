"""`megalith serve` as OpenAI's own client sees it: sync and async, whole and streamed, errors, retries, and its end.

The command is named by MEGALITH_COMMAND; the model is the bundled one. MEGALITH_ECHO is a server whose model repeats what it
is told (echo/echo_server.cpp).
"""

import asyncio
import json
import os
import re
import signal
import threading
import time
import urllib.request
from typing import Annotated, Literal

import openai
import pydantic
import pytest
from command_server import Server, logprobs_of

STORY = [{"role": "user", "content": "Once upon a time"}]


@pytest.fixture
def client(server):
    return server.client()


def test_models(client):
    assert [model.id for model in client.models.list()] == ["storyteller"]
    assert client.models.retrieve("storyteller").owned_by == "megalith"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-9")


def test_chat(client):
    answer = client.chat.completions.create(model="storyteller", messages=STORY, max_tokens=12, temperature=0)
    assert answer.object == "chat.completion"
    assert answer.choices[0].message.role == "assistant"
    assert len(answer.choices[0].message.content) > 10
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 12
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 12
    assert answer._request_id and answer.id == "chatcmpl-" + answer._request_id


def test_stream_is_the_whole_in_parts(client):
    asked = dict(model="storyteller", messages=STORY, max_tokens=40, seed=5)
    whole = client.chat.completions.create(**asked)
    chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant" and chunks[0].choices[0].delta.content == ""
    assert all(chunk.choices[0].delta.role is None for chunk in chunks[1:-1])
    assert chunks[-2].choices[0].finish_reason == "length" and chunks[-2].choices[0].delta.content is None
    assert all(chunk.choices[0].finish_reason is None for chunk in chunks[:-2])
    assert chunks[-1].choices == [] and chunks[-1].usage == whole.usage
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1


def test_the_same_seed_gives_the_same_text(client):
    def text(seed, n=1):
        made = client.completions.create(model="storyteller", prompt="The king", max_tokens=20, seed=seed, n=n)
        return [choice.text for choice in made.choices]

    assert text(1) == text(1) != text(2)
    three = text(1, 3)
    assert three[0] == text(1)[0] and len(set(three)) == 3


def test_prompts_of_all_forms(server, client):
    def texts(prompt):
        made = client.completions.create(model="storyteller", prompt=prompt, max_tokens=8, temperature=0)
        assert [choice.index for choice in made.choices] == list(range(len(made.choices)))
        return [choice.text for choice in made.choices]

    ids = server.tokens_of("The wolf")
    (once,) = texts("The wolf")
    assert texts(ids) == [once]
    assert texts([ids, ids]) == texts(["The wolf", "The wolf"]) == [once, once]


def test_a_stop_string_is_no_part_of_the_text(client):
    asked = dict(model="storyteller", prompt="Once upon a time", max_tokens=60, temperature=0)
    text = client.completions.create(**asked).choices[0].text
    stop = text[20:26]
    cut = client.completions.create(**asked, stop=stop)
    assert cut.choices[0].text == text[: text.index(stop)]
    assert cut.choices[0].finish_reason == "stop"
    parts = client.completions.create(**asked, stop=[stop], stream=True)
    assert "".join(part.choices[0].text for part in parts) == cut.choices[0].text


def test_logprobs(client):
    chat = client.chat.completions.create(model="storyteller", messages=STORY, max_tokens=9, logprobs=True)
    entries = chat.choices[0].logprobs.content
    assert "".join(entry.token for entry in entries) == chat.choices[0].message.content
    assert bytes(sum((entry.bytes for entry in entries), [])).decode() == chat.choices[0].message.content
    assert all(entry.logprob <= 0 for entry in entries)
    chat = client.chat.completions.create(
        model="storyteller", messages=STORY, max_tokens=9, temperature=0, logprobs=True, top_logprobs=3
    )
    for entry in chat.choices[0].logprobs.content:
        assert len(entry.top_logprobs) == 3 and entry.top_logprobs[0].token == entry.token
        assert entry.logprob == entry.top_logprobs[0].logprob > entry.top_logprobs[1].logprob
    top = client.completions.create(model="storyteller", prompt="A", max_tokens=9, logprobs=2).choices[0].logprobs
    assert all(2 <= len(one) <= 3 and one[token] == logprob for one, token, logprob in zip(top.top_logprobs, top.tokens, top.token_logprobs))
    made = client.completions.create(model="storyteller", prompt="A", max_tokens=9, logprobs=0).choices[0]
    assert "".join(made.logprobs.tokens) == made.text
    assert [made.text[at:] .startswith(token) for at, token in zip(made.logprobs.text_offset, made.logprobs.tokens)] == [True] * 9


def test_logprobs_of_the_prompt(server, client):
    """Those of `megalith logits`, whoever else is asked at the time, in both interfaces and in both forms."""
    text = "Once upon a time there was a little girl who lived in a small house by the forest."
    tokens = server.tokens_of(text)
    wanted = logprobs_of(tokens)
    others = [client.completions.create(model="storyteller", prompt="The king", max_tokens=200, stream=True) for _ in range(3)]
    for more in (dict(max_tokens=0), dict(max_tokens=1), dict(max_tokens=0, n=2), dict(max_tokens=4, stream=True)):
        made = client.completions.create(model="storyteller", prompt=text, echo=True, logprobs=2, temperature=0, **more)
        chunks = list(made) if "stream" in more else [made]
        for index in range(more.get("n", 1)):
            choices = [chunk.choices[index] for chunk in chunks]
            parts = [choice.logprobs for choice in choices if choice.logprobs]
            said, values, top, offsets = (
                sum((getattr(part, name) for part in parts), [])
                for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")
            )
            whole = "".join(choice.text for choice in choices)
            assert whole.startswith(text) and (whole == text) == (more["max_tokens"] == 0)
            assert "".join(said) == whole and len(said) == len(tokens) + more["max_tokens"]
            assert all(whole[at:].startswith(token) for at, token in zip(offsets, said))
            assert values[0] is None and top[0] is None
            for i, token in enumerate(tokens[1:], 1):
                assert abs(values[i] - wanted[i - 1][token]) < 1e-3
                assert abs(max(top[i].values()) - max(wanted[i - 1])) < 1e-3
                assert top[i][said[i]] == values[i] and 2 <= len(top[i]) <= 3
    made = client.completions.create(
        model="storyteller", prompt=[tokens, tokens[:1]], max_tokens=1, extra_body={"prompt_logprobs": 1}
    )
    assert made.choices[1].prompt_logprobs == [None] and made.choices[0].prompt_logprobs[0] is None
    for i, token in enumerate(tokens[1:], 1):
        told = made.choices[0].prompt_logprobs[i]
        assert abs(told[str(token)]["logprob"] - wanted[i - 1][token]) < 1e-3
        best = max(told.values(), key=lambda one: one["logprob"])
        assert best["rank"] == 1 and abs(best["logprob"] - max(wanted[i - 1])) < 1e-3
    chat = client.chat.completions.create(
        model="storyteller", messages=[{"role": "user", "content": text}], max_tokens=1, extra_body={"prompt_logprobs": 0}
    )
    told = [next(iter(one.values()))["logprob"] for one in chat.prompt_logprobs[1:]]
    assert len(told) == chat.usage.prompt_tokens - 1 and max(told) < 0
    assert [len("".join(chunk.choices[0].text for chunk in other)) > 100 for other in others] == [True] * 3


def test_bad_words(client):
    asked = dict(model="storyteller", prompt="Once upon a time", max_tokens=40, temperature=0)
    text = client.completions.create(**asked).choices[0].text
    words = [" ".join(text.split()[4:6]), text.split()[8]]
    assert all(word in text for word in words)
    made = client.completions.create(**asked, extra_body={"bad_words": words}).choices[0].text
    assert not any(word in made for word in words) and made.split()[:4] == text.split()[:4] and len(made) > 40
    with pytest.raises(openai.BadRequestError, match="more than spaces"):
        client.completions.create(**asked, extra_body={"bad_words": [" "]})


def test_responses(client):
    asked = dict(model="storyteller", input="Once upon a time", max_output_tokens=12, temperature=0)
    whole = client.responses.create(**asked)
    assert whole.status == "incomplete" and whole.incomplete_details.reason == "max_output_tokens"
    assert len(whole.output_text) > 10 and whole.usage.output_tokens == 12
    events = list(client.responses.create(**asked, stream=True))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == whole.output_text
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[-1].type == "response.incomplete" and events[-1].response.output_text == whole.output_text
    stop = whole.output_text[12:16]
    with client.responses.stream(**asked, extra_body={"stop": stop}) as stream:
        response = stream.get_final_response()
    assert response.status == "completed" and response.output_text == whole.output_text.split(stop)[0]


@pytest.fixture(scope="module")
def echo(echo_server):
    return echo_server.client()


class Weather(pydantic.BaseModel):
    city: str
    days: int


CALL = '<tool_call>\n{"name": "Weather", "arguments": {"city": "Rome", "days": 2}}\n</tool_call>'
SAID = "<think>\nRain?\n</think>\n\nI look.\n" + CALL + "\n" + CALL.replace("Rome", "Oslo")


def ask(said, **more):
    return dict(model="echo", messages=[{"role": "user", "content": said}], tools=[openai.pydantic_function_tool(Weather)], **more)


def test_calls_of_tools(echo):
    choice = echo.chat.completions.create(**ask(SAID)).choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.content == "I look."
    assert choice.message.reasoning_content == choice.message.reasoning == "Rain?"
    assert [(call.type, call.function.name) for call in choice.message.tool_calls] == [("function", "Weather")] * 2
    assert [json.loads(call.function.arguments)["city"] for call in choice.message.tool_calls] == ["Rome", "Oslo"]
    assert len({call.id for call in choice.message.tool_calls}) == 2


def test_streamed_calls_of_tools(echo):
    chunks = list(echo.chat.completions.create(**ask(SAID, stream=True)))
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert "".join(delta.content or "" for delta in deltas) == "I look."
    assert "".join(getattr(delta, "reasoning_content", "") for delta in deltas) == "Rain?"
    calls = [call for delta in deltas for call in delta.tool_calls or []]
    begun = [call for call in calls if call.id]
    assert [(call.index, call.type, call.function.name) for call in begun] == [(i, "function", "Weather") for i in (0, 1)]
    assert all(call.function.name is None and call.type is None for call in calls if not call.id)
    parts = [[call.function.arguments for call in calls if call.index == i] for i in (0, 1)]
    assert [json.loads("".join(part))["city"] for part in parts] == ["Rome", "Oslo"]
    assert len(parts[0]) > 5  # while they are made


def test_the_clients_own_reader_of_streams(echo):
    with echo.chat.completions.stream(**ask(SAID)) as stream:
        events = [event.type for event in stream]
        message = stream.get_final_completion().choices[0].message
    assert events.count("tool_calls.function.arguments.done") == 2
    assert [call.function.parsed_arguments for call in message.tool_calls] == [Weather(city="Rome", days=2), Weather(city="Oslo", days=2)]


def test_a_call_that_is_cut_is_no_reason_to_call(echo):
    for stream in (False, True):
        made = echo.chat.completions.create(**ask(CALL, max_tokens=30, stream=stream))
        choices = [chunk.choices[0] for chunk in made] if stream else made.choices
        assert choices[-1].finish_reason == "length"
        messages = [choice.delta for choice in choices] if stream else [choices[0].message]
        assert not any(message.content for message in messages)


def test_what_is_no_call_is_text(echo):
    for said in ('Use <tool_call> so.', '<tool_call>{"name": }</tool_call>', 'a < b', '{"name": "Weather"}'):
        assert echo.chat.completions.create(**ask(said)).choices[0].message.content == said
        parts = echo.chat.completions.create(**ask(said, stream=True))
        assert "".join(part.choices[0].delta.content or "" for part in parts) == said
    plain = {"model": "echo", "messages": [{"role": "user", "content": CALL}]}
    assert echo.chat.completions.create(**plain).choices[0].message.content == CALL


def test_a_conversation_with_calls(echo):
    called = echo.chat.completions.create(**ask(CALL)).choices[0].message
    messages = [{"role": "user", "content": "Rain?"}, called.model_dump(exclude_none=True),
                {"role": "tool", "tool_call_id": called.tool_calls[0].id, "content": "It rains."}]
    assert echo.chat.completions.create(model="echo", messages=messages).choices[0].message.content == "It rains."
    with pytest.raises(openai.BadRequestError) as wrong:
        echo.chat.completions.create(**ask(CALL, tool_choice={"type": "function", "function": {"name": "Sun"}}))
    assert wrong.value.param == "tool_choice" and wrong.value.type == "invalid_request_error"


def test_responses_with_calls(echo):
    tool = {"type": "function", "name": "Weather", "parameters": Weather.model_json_schema(), "strict": False}
    asked = dict(model="echo", input=SAID, tools=[tool])
    whole = echo.responses.create(**asked)
    assert [item.type for item in whole.output] == ["reasoning", "message", "function_call", "function_call"]
    assert whole.output_text == "I look." and json.loads(whole.output[3].arguments)["city"] == "Oslo"
    events = list(echo.responses.create(**asked, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    arguments = [event.delta for event in events if event.type == "response.function_call_arguments.delta" and event.output_index == 2]
    assert json.loads("".join(arguments)) == {"city": "Rome", "days": 2}
    assert [item.type for item in events[-1].response.output] == [item.type for item in whole.output]
    with echo.responses.stream(**asked) as stream:
        assert stream.get_final_response().output[2].arguments == whole.output[2].arguments
    again = [{"role": "user", "content": "Rain?"}, *[item.model_dump(exclude_none=True) for item in whole.output],
             {"type": "function_call_output", "call_id": whole.output[2].call_id, "output": "It rains."}]
    assert echo.responses.create(model="echo", input=again).output_text == "It rains."


class Animal(pydantic.BaseModel):
    kind: Literal["fox", "cat"]
    legs: Annotated[int, pydantic.Field(ge=0, le=4)]
    friends: Annotated[list[Literal["king", "queen"]], pydantic.Field(max_length=2)]


def test_answers_of_a_schema(client):
    for seed in range(6):
        made = client.chat.completions.parse(
            model="storyteller", messages=STORY, response_format=Animal, seed=seed, temperature=1, max_tokens=200)
        assert isinstance(made.choices[0].message.parsed, Animal) and made.choices[0].finish_reason == "stop"
    asked = dict(model="storyteller", messages=STORY, response_format=Animal, seed=3, temperature=1, max_tokens=200)
    with client.chat.completions.stream(**asked) as stream:
        parsed = stream.get_final_completion().choices[0].message.parsed
    assert parsed == client.chat.completions.parse(**asked).choices[0].message.parsed
    answer = client.responses.parse(
        model="storyteller", input="Hi", text_format=Animal, temperature=0, max_output_tokens=200)
    assert isinstance(answer.output_parsed, Animal)


def test_answers_of_other_forms(client):
    def say(**body):
        made = client.chat.completions.create(
            model="storyteller", messages=STORY, max_tokens=60, temperature=1, seed=1, extra_body=body)
        assert made.choices[0].finish_reason == "stop"
        return made.choices[0].message.content

    assert say(structured_outputs={"choice": ["yes", "no"]}) in ("yes", "no")
    assert re.fullmatch("[a-f]{3}-[0-9]{2}", say(structured_outputs={"regex": "[a-f]{3}-[0-9]{2}"}))
    tag = {"type": "tag", "begin": "Yes", "content": {"type": "regex", "pattern": " [0-9]{2}"}, "end": "!"}
    assert re.fullmatch("Yes [0-9]{2}!", say(response_format={"type": "structural_tag", "format": tag}))
    assert re.fullmatch("(la ){3}", say(grammar='root ::= line line line\nline ::= "la "'))
    made = client.completions.create(model="storyteller", prompt="So:", max_tokens=60, extra_body={"guided_choice": ["a", "b"]}, n=3)
    assert all(choice.text in ("a", "b") and choice.finish_reason == "stop" for choice in made.choices)


@pytest.fixture(scope="module")
def caller():
    server = Server("--tool-call-parser", "hermes")
    yield server.client()
    assert server.end() == 0


@pytest.mark.parametrize("stream", (False, True))
@pytest.mark.parametrize("choice", ("required", {"type": "function", "function": {"name": "Animal"}}))
def test_a_call_that_is_forced(caller, choice, stream):
    tools = [openai.pydantic_function_tool(Animal), {"type": "function", "function": {"name": "now"}}]
    made = caller.chat.completions.create(
        model="storyteller", messages=STORY, tools=tools, tool_choice=choice, parallel_tool_calls=False, stream=stream,
        temperature=1, seed=2, max_tokens=200)
    if stream:
        chunks = [chunk.choices[0] for chunk in made]
        calls = [call for chunk in chunks for call in chunk.delta.tool_calls or []]
        name, arguments = calls[0].function.name, "".join(call.function.arguments for call in calls)
    else:
        chunks = made.choices
        name, arguments = (getattr(chunks[0].message.tool_calls[0].function, key) for key in ("name", "arguments"))
    assert chunks[-1].finish_reason == "tool_calls"
    assert name == "Animal" or (name == "now" and choice == "required")
    assert json.loads(arguments) == {} if name == "now" else Animal.model_validate_json(arguments)


def test_errors_name_what_is_wrong(client):
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(model="storyteller", messages=STORY, temperature=-1)
    assert wrong.value.param == "temperature" and wrong.value.type == "invalid_request_error"
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(model="storyteller", messages=STORY, response_format={"type": "xml"})
    assert wrong.value.param == "response_format" and wrong.value.type == "invalid_request_error"
    bomb = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "string", "pattern": "(" * 3000}}}
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(model="storyteller", messages=STORY, response_format=bomb)
    assert wrong.value.param == "response_format"
    with pytest.raises(openai.NotFoundError) as wrong:
        client.chat.completions.create(model="gpt-9", messages=STORY)
    assert wrong.value.param == "model"
    with pytest.raises(openai.BadRequestError) as wrong:
        client.completions.create(model="storyteller", prompt=[1] * 2000)
    assert wrong.value.body["n_prompt_tokens"] == 2000 and wrong.value.body["n_ctx"] == 1024
    with pytest.raises(openai.APIStatusError) as wrong:
        client.embeddings.create(model="storyteller", input="x")
    assert wrong.value.status_code == 501


def test_async_streams_beside_each_other(server):
    async def one(client, seed):
        stream = await client.chat.completions.create(
            model="storyteller", messages=STORY, max_tokens=20, seed=seed, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def all_of_them():
        async with openai.AsyncOpenAI(**server.options) as client:
            return await asyncio.gather(*(one(client, seed % 4) for seed in range(16)))

    texts = asyncio.run(all_of_them())
    assert texts[:4] == texts[4:8] == texts[8:12] == texts[12:]


def test_a_client_that_leaves_stops_the_work(server, client):
    stream = client.completions.create(
        model="storyteller", prompt="A", max_tokens=1000, n=8, stream=True, extra_body={"ignore_eos": True})
    name = stream.response.headers["x-request-id"]
    next(iter(stream))
    stream.close()
    begun = time.monotonic()
    while not (lines := [json.loads(line) for line in server.lines if name in line]):
        assert time.monotonic() - begun < 10
        time.sleep(0.01)
    assert lines[0]["status"] == 499 and lines[0]["completion_tokens"] < 8000
    assert server.load() == 0


def test_clients_that_give_up_leave_nothing_behind(server, client):
    async def one(impatient):
        with pytest.raises(openai.APITimeoutError):
            await impatient.completions.create(
                model="storyteller", prompt="A king " * 300, max_tokens=400, extra_body={"ignore_eos": True})

    async def all_of_them():
        async with openai.AsyncOpenAI(**{**server.options, "timeout": 0.2, "max_retries": 0}) as impatient:
            await asyncio.gather(*(one(impatient) for _ in range(100)))

    asyncio.run(all_of_them())
    begun = time.monotonic()
    assert client.completions.create(model="storyteller", prompt="A", max_tokens=4).usage.completion_tokens == 4
    assert time.monotonic() - begun < 5
    assert server.load() == 0


def test_a_full_queue_is_tried_again():
    server = Server("--max-batch", "1", "--max-queue", "0")
    try:
        client = server.client(max_retries=0)
        long = dict(model="storyteller", prompt="A", max_tokens=900, stream=True, extra_body={"ignore_eos": True})
        stream = iter(client.completions.create(**long))
        next(stream)
        with pytest.raises(openai.RateLimitError) as full:
            client.completions.create(model="storyteller", prompt="B", max_tokens=2)
        assert full.value.response.headers["retry-after"] == "1"
        reader = threading.Thread(target=lambda: list(stream))
        reader.start()
        made = server.client(max_retries=20).completions.create(model="storyteller", prompt="B", max_tokens=2)
        assert made.usage.completion_tokens == 2
        reader.join()
    finally:
        assert server.end() == 0


def test_keys(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# of the team\nsecond\n\n")
    server = Server("--api-key", "first", "--api-key-file", str(keys))
    try:
        for key in ("first", "second"):
            assert server.client(api_key=key).models.list().data
        with pytest.raises(openai.AuthenticationError):
            server.client(api_key="third").models.list()
        assert urllib.request.urlopen(server.url + "/health").status == 200
    finally:
        assert server.end(signal.SIGINT) == 0


def test_answers_are_finished_before_the_end():
    server = Server()
    client = server.client(max_retries=0)
    stream = iter(client.completions.create(
        model="storyteller", prompt="A", max_tokens=900, stream=True, extra_body={"ignore_eos": True}))
    next(stream)
    server.process.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    try:
        client.completions.create(model="storyteller", prompt="B", max_tokens=2)
        pytest.fail("a server that ends takes no further request")
    except (openai.InternalServerError, openai.APIConnectionError):
        pass
    assert list(stream)[-1].choices[0].finish_reason == "length"
    assert server.process.wait(30) == 0


def test_a_second_signal_ends_it_at_once():
    server = Server("--shutdown-timeout", "600")
    stream = iter(server.client().completions.create(
        model="storyteller", prompt="A", max_tokens=1000, n=8, stream=True, extra_body={"ignore_eos": True}))
    next(stream)
    server.process.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(10) == -signal.SIGTERM


def test_what_takes_too_long_is_ended():
    server = Server("--shutdown-timeout", "0")
    stream = iter(server.client().completions.create(
        model="storyteller", prompt="A", max_tokens=1000, n=8, stream=True, extra_body={"ignore_eos": True}))
    next(stream)
    assert server.end() == 0
    with pytest.raises(openai.APIError, match="shutting down"):
        list(stream)
