#include "megalith/serve/stream_chunk.h"

#include "megalith/base/error.h"
#include "megalith/model/json.h"

namespace megalith::serve {

namespace {

// More tokens than any answer has; a count beyond it is none.
constexpr int64_t kMaxTokens = 1'000'000'000;

// What of a chat's answer may come in parts. Servers have two names for reasoning.
constexpr const char* kParts[] = {"content", "reasoning_content", "reasoning", "refusal"};

void read_choice(const JsonValue& choice, StreamChunk& chunk) {
  if (!choice.is_object()) choice.fail("is " + choice.excerpt() + ", want an object");
  chunk.has_choice = true;
  const bool is_finished = choice.find("finish_reason").has_value();
  chunk.is_finished |= is_finished;
  // A token may be a part of a character, and its text comes with a later one.
  if (const auto text = choice.find("text")) chunk.has_content |= !text->string().empty() || !is_finished;
  const auto delta = choice.find("delta");
  if (!delta) return;
  if (!delta->is_object()) delta->fail("is " + delta->excerpt() + ", want an object");
  for (const char* part : kParts)
    if (const auto text = delta->find(part)) chunk.has_content |= text->is_string() && !text->string().empty();
  if (const auto calls = delta->find("tool_calls")) chunk.has_content |= calls->is_array() && calls->size() > 0;
}

}  // namespace

StreamChunk read_stream_chunk(std::string_view data) {
  StreamChunk chunk;
  if (data == "[DONE]") {
    chunk.is_end = true;
    return chunk;
  }
  const JsonFile file = JsonFile::parse(data, "the event");
  const JsonValue root = file.root();
  if (!root.is_object()) root.fail("is " + root.excerpt() + ", want a JSON object");
  if (const auto error = root.find("error")) {
    const auto message = error->is_object() ? error->find("message") : error;
    chunk.error = message && message->is_string() ? message->string() : std::string(data);
    return chunk;
  }
  if (const auto choices = root.find("choices"))
    choices->each_element([&](const JsonValue& choice) { read_choice(choice, chunk); });
  if (const auto usage = root.find("usage")) {
    if (!usage->is_object()) usage->fail("is " + usage->excerpt() + ", want an object");
    if (const auto tokens = usage->find("prompt_tokens")) chunk.prompt_tokens = tokens->integer(0, kMaxTokens);
    if (const auto tokens = usage->find("completion_tokens")) chunk.completion_tokens = tokens->integer(0, kMaxTokens);
  }
  return chunk;
}

}  // namespace megalith::serve
