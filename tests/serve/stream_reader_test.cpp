// What a client reads: answers of HTTP, server-sent events, and the chunks of OpenAI's streams.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megalith/base/error.h"
#include "megalith/serve/http_answer_reader.h"
#include "megalith/serve/sse_reader.h"
#include "megalith/serve/stream_chunk.h"

namespace megalith::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The body, when at most `piece` bytes arrive at a time.
std::string body_of(HttpAnswerReader& reader, std::string_view bytes, size_t piece) {
  std::string held, body;
  while (!reader.is_complete() && !reader.complaint()) {
    const bool knew_head = reader.has_head();
    const size_t taken = reader.take(held);
    held.erase(0, taken);
    body += reader.take_body();
    if (taken > 0 || knew_head != reader.has_head()) continue;
    if (bytes.empty()) break;
    held += bytes.substr(0, piece);
    bytes.remove_prefix(std::min(piece, bytes.size()));
  }
  return body;
}

constexpr std::string_view kChunked =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    "8\r\ndata: a\n\r\n9;x=y\r\n\ndata: b\n\r\n1\r\n\n\r\n0\r\n\r\n";

TEST(HttpAnswerReader, ReadsBodiesHoweverTheyArrive) {
  for (const size_t piece : {1, 3, 1000}) {
    HttpAnswerReader reader(1000);
    EXPECT_EQ(body_of(reader, kChunked, piece), "data: a\n\ndata: b\n\n");
    EXPECT_TRUE(reader.is_complete());
    EXPECT_TRUE(reader.keep_alive());
    EXPECT_EQ(reader.status(), 200);
    EXPECT_EQ(reader.header("content-type"), "text/event-stream");
    EXPECT_EQ(reader.header("retry-after"), "");
    HttpAnswerReader sized(1000);
    EXPECT_EQ(
        body_of(sized, "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nContent-Length: 4\r\n\r\nfull", piece),
        "full");
    EXPECT_EQ(sized.status(), 429);
    EXPECT_EQ(sized.header("retry-after"), "7");
    EXPECT_TRUE(sized.is_complete());
  }
}

// An event is there with its last byte: what ends the chunk may come with the next one.
TEST(HttpAnswerReader, HoldsNothingBackWithinAChunk) {
  HttpAnswerReader reader(1000);
  std::string held(kChunked.substr(0, kChunked.find("data: a") + 7));
  held.erase(0, reader.take(held));  // the head
  held.erase(0, reader.take(held));
  EXPECT_EQ(reader.take_body(), "data: a");
  EXPECT_EQ(reader.take("\n"), 1u);
  EXPECT_EQ(reader.take_body(), "\n");
  // Nor at the beginning of one, whose head came alone.
  EXPECT_EQ(reader.take("\r\n2\r\n"), 5u);
  EXPECT_EQ(reader.take("ab"), 2u);
  EXPECT_EQ(reader.take_body(), "ab");
}

TEST(HttpAnswerReader, ABodyWithoutALengthEndsWithTheConnection) {
  HttpAnswerReader reader(1000);
  EXPECT_EQ(body_of(reader, "HTTP/1.1 200 OK\r\n\r\nabc", 2), "abc");
  EXPECT_FALSE(reader.is_complete());
  reader.take_end();
  EXPECT_TRUE(reader.is_complete());
  EXPECT_FALSE(reader.complaint());
  EXPECT_FALSE(reader.keep_alive());
}

TEST(HttpAnswerReader, RefusesWhatIsNone) {
  const auto complaint = [](const std::string& bytes, bool ends = false) {
    HttpAnswerReader reader(200);
    body_of(reader, bytes, 50);
    if (ends) reader.take_end();
    return reader.complaint().value_or("none");
  };
  EXPECT_THAT(complaint("hello\r\n\r\n"), HasSubstr("this is no HTTP answer"));
  EXPECT_THAT(complaint("HTTP/1.1 200 OK\r\nX: " + std::string(300, 'x')),
              HasSubstr("head of the answer has more than 200"));
  const std::string head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_THAT(complaint(head + "4;" + std::string(400, 'x')), HasSubstr("more than 200 bytes between two chunks"));
  EXPECT_THAT(complaint(head + "-2\r\nab"), HasSubstr("this is no HTTP answer"));
  EXPECT_THAT(complaint(head + "4\r\nabcdefgh"), HasSubstr("this is no HTTP answer"));
  EXPECT_THAT(complaint(head + "4\r\nab", true), HasSubstr("the connection ended in the middle"));
  EXPECT_THAT(complaint("HTTP/1.1 200 OK\r\nContent-Le", true), HasSubstr("the connection ended in the middle"));
  EXPECT_EQ(complaint(head + "4\r\nab"), "none");
}

std::vector<std::string> events_of(std::string_view bytes, size_t piece, bool* fits = nullptr, size_t most = 100) {
  std::vector<std::string> events;
  SseReader reader(most);
  bool is_fine = true;
  for (; !bytes.empty(); bytes.remove_prefix(std::min(piece, bytes.size())))
    is_fine &= reader.take(bytes.substr(0, piece), [&](std::string_view data) { events.emplace_back(data); });
  if (fits) *fits = is_fine;
  return events;
}

TEST(SseReader, ReadsEventsHoweverTheyArrive) {
  for (const size_t piece : {1, 2, 1000}) {
    EXPECT_THAT(events_of("data: a\n\ndata:b\n\n", piece), ElementsAre("a", "b"));
    EXPECT_THAT(events_of("data: a\r\n\r\ndata: b\r\rdata:  c\n\n", piece), ElementsAre("a", "b", " c"));
    EXPECT_THAT(events_of("\xEF\xBB\xBF"
                          "data: a\n\n: a comment\n\nevent: x\nid: 1\ndata: b\ndata\ndata: c\n\n",
                          piece),
                ElementsAre("a", "b\n\nc"));
    EXPECT_THAT(events_of("data: without its empty line\n", piece), IsEmpty());
    EXPECT_THAT(events_of("database: x\n\n", piece), IsEmpty());
  }
}

TEST(SseReader, BoundsLinesAndEvents) {
  bool fits = true;
  EXPECT_THAT(events_of("data: a\n\n: " + std::string(200, 'x'), 7, &fits), ElementsAre("a"));
  EXPECT_FALSE(fits);
  std::string lines;
  for (int i = 0; i < 200; ++i) lines += "data:\n";
  events_of(lines, 1000, &fits);
  EXPECT_FALSE(fits);
  events_of("data: " + std::string(90, 'x') + "\n\n", 7, &fits);
  EXPECT_TRUE(fits);
}

TEST(StreamChunk, SaysWhatIsInAnEvent) {
  EXPECT_TRUE(read_stream_chunk("[DONE]").is_end);
  const StreamChunk completion = read_stream_chunk(
      R"({"choices":[{"text":" a","finish_reason":null}],"usage":{"prompt_tokens":3,"completion_tokens":2}})");
  EXPECT_TRUE(completion.has_choice && completion.has_content && !completion.is_finished && !completion.is_end);
  EXPECT_EQ(completion.prompt_tokens, 3);
  EXPECT_EQ(completion.completion_tokens, 2);
  EXPECT_FALSE(completion.cached_tokens);
  const StreamChunk usage = read_stream_chunk(
      R"({"cached_tokens":1,"usage":{"cached_tokens":2,"prompt_tokens_details":{"cached_tokens":3,"prompt_tokens":4}}})");
  EXPECT_EQ(usage.cached_tokens, 3);
  EXPECT_FALSE(usage.prompt_tokens);
  EXPECT_TRUE(read_stream_chunk(R"({"choices":[{"text":"","finish_reason":null}]})").has_content);
  const StreamChunk last = read_stream_chunk(R"({"choices":[{"text":"","finish_reason":"stop"}],"usage":null})");
  EXPECT_TRUE(!last.has_content && last.is_finished && !last.completion_tokens);
  EXPECT_FALSE(read_stream_chunk(R"({"choices":[{"delta":{"role":"assistant","content":""}}]})").has_content);
  EXPECT_TRUE(read_stream_chunk(R"({"choices":[{"delta":{"content":"x"}}]})").has_content);
  EXPECT_TRUE(read_stream_chunk(R"({"choices":[{"delta":{"reasoning_content":"x"}}]})").has_content);
  EXPECT_TRUE(read_stream_chunk(R"({"choices":[{"delta":{"tool_calls":[{"index":0}]}}]})").has_content);
  EXPECT_FALSE(read_stream_chunk(R"({"choices":[],"usage":{"completion_tokens":9}})").has_choice);
  EXPECT_EQ(read_stream_chunk(R"({"error":{"message":"broken","type":"x"}})").error, "broken");
  EXPECT_EQ(read_stream_chunk(R"({"error":"broken"})").error, "broken");
  EXPECT_FALSE(read_stream_chunk(R"({"error":null,"choices":null,"usage":null})").error);
  // Names elsewhere mean nothing.
  const StreamChunk nested = read_stream_chunk(
      R"({"choices":[{"index":0,"delta":{"x":{"content":"y"}},"text":null}],"x":{"usage":{"completion_tokens":-1},"error":1}})");
  EXPECT_TRUE(nested.has_choice && !nested.has_content && !nested.error && !nested.completion_tokens);
  EXPECT_EQ(read_stream_chunk(R"({"error":{"code":5}})").error, R"({"error":{"code":5}})");
}

TEST(StreamChunk, RefusesWhatIsNone) {
  for (const char* data : {"",
                           "x",
                           "[]",
                           "7",
                           "null",
                           "{",
                           R"({"choices":7})",
                           R"({"choices":[7]})",
                           R"({"choices":[{"text":7}]})",
                           R"({"choices":[{"delta":7}]})",
                           R"({"usage":7})",
                           R"({"usage":{"completion_tokens":-1}})",
                           R"({"usage":{"completion_tokens":1e30}})",
                           R"({"usage":{"completion_tokens":"many"}})",
                           R"({"usage":{"completion_tokens":1.5}})",
                           R"({"choices":[null]})",
                           R"({"choices":[[]]})",
                           "{}x",
                           R"({"choices":[{"text":[]}]})",
                           "{\"x\":NaN}",
                           "{\"x\":\"\xff\"}"})
    EXPECT_THROW(read_stream_chunk(data), UserError) << data;
  EXPECT_THROW(read_stream_chunk("{\"x\":" + std::string(100, '[')), UserError);
}

}  // namespace
}  // namespace megalith::serve
