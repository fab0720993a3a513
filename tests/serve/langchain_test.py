"""`megalith serve` as LangChain sees it: whole and streamed, several at once, sync and async, calls of tools. Run by
tools/serve_suites.sh; a server that repeats what it is told (echo/echo_server.cpp) is named by MEGALITH_ECHO."""

import asyncio

import openai
import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI

STORY = "Once upon a time"


def chat_with(server, model, **options):
    return ChatOpenAI(base_url=server.url + "/v1", api_key="none", model=model, max_retries=0, stream_usage=True, **options)


@pytest.fixture
def chat(server):
    return chat_with(server, "storyteller", max_tokens=12, temperature=0)


def test_invoke(chat):
    answer = chat.invoke([SystemMessage("Tell a story."), HumanMessage(STORY)])
    assert len(answer.content) > 10
    assert answer.response_metadata["finish_reason"] == "length" and answer.response_metadata["model_name"] == "storyteller"
    assert answer.usage_metadata["output_tokens"] == 12
    assert answer.usage_metadata["total_tokens"] == answer.usage_metadata["input_tokens"] + 12


def test_stream_is_the_whole_in_parts(chat):
    whole = chat.invoke(STORY)
    parts = list(chat.stream(STORY))
    assert "".join(part.content for part in parts) == whole.content
    summed = parts[0]
    for part in parts[1:]:
        summed += part
    assert summed.usage_metadata["output_tokens"] == 12
    assert summed.response_metadata["finish_reason"] == "length"


def test_many_at_once(chat):
    prompts = [STORY, "The dog", "A bird", STORY]
    answers = chat.batch(prompts)
    assert [answer.content for answer in answers] == [chat.invoke(prompt).content for prompt in prompts]

    async def ask():
        return await asyncio.gather(*(chat.ainvoke(prompt) for prompt in prompts))

    assert [answer.content for answer in asyncio.run(ask())] == [answer.content for answer in answers]


def test_a_chain(chat):
    chain = ChatPromptTemplate.from_messages([("user", "{beginning}")]) | chat | StrOutputParser()
    assert chain.invoke({"beginning": STORY}) == chat.invoke(STORY).content


def test_options(server, chat):
    text = chat.invoke(STORY).content
    word = text.split()[1]
    assert chat.bind(stop=[word]).invoke(STORY).content == text[: text.index(word)]
    drawn = chat_with(server, "storyteller", max_tokens=12, temperature=1, seed=3)
    assert drawn.invoke(STORY).content == drawn.invoke(STORY).content
    likely = chat.bind(logprobs=True, top_logprobs=2).invoke(STORY).response_metadata["logprobs"]["content"]
    assert len(likely) == 12 and all(len(token["top_logprobs"]) == 2 for token in likely)


def test_completions(server):
    model = OpenAI(base_url=server.url + "/v1", api_key="none", model="storyteller", max_tokens=12, temperature=0)
    assert "".join(model.stream(STORY)) == model.invoke(STORY) != ""


def test_errors_are_openais(server):
    with pytest.raises(openai.NotFoundError):
        chat_with(server, "gpt-9").invoke(STORY)
    with pytest.raises(openai.BadRequestError):
        chat_with(server, "storyteller", temperature=-1).invoke(STORY)


@tool
def weather(city: str, days: int) -> str:
    """The weather of some days to come."""
    return f"It rains in {city} for {days} days."


CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome", "days": 2}}\n</tool_call>'


@pytest.fixture(scope="module")
def echo(echo_server):
    return chat_with(echo_server, "echo")


def test_calls_of_tools(echo):
    with_tools = echo.bind_tools([weather])
    asked = with_tools.invoke("I look.\n" + CALL)
    assert asked.content == "I look." and asked.response_metadata["finish_reason"] == "tool_calls"
    (call,) = asked.tool_calls
    assert (call["name"], call["args"]) == ("weather", {"city": "Rome", "days": 2})
    summed = None
    for part in with_tools.stream("I look.\n" + CALL):
        summed = part if summed is None else summed + part
    assert summed.content == "I look." and [(c["name"], c["args"]) for c in summed.tool_calls] == [(call["name"], call["args"])]
    # What a tool said goes back; what the model is told last it repeats.
    answer = with_tools.invoke([HumanMessage("?"), asked, ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"])])
    assert isinstance(answer, AIMessage) and answer.content == "It rains in Rome for 2 days." and not answer.tool_calls
