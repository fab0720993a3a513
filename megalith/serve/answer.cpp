#include "megalith/serve/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "megalith/base/json_quote.h"

namespace megalith::serve {

namespace {

// JSON has no infinity; this is what others write for it.
constexpr float kLeastLogprob = -9999;

std::string bytes_json(const std::string& bytes) {
  std::string json = "[";
  for (const char byte : bytes)
    json += fmt::format("{}{}", json.size() > 1 ? "," : "", static_cast<unsigned>(static_cast<unsigned char>(byte)));
  return json + "]";
}

int64_t count_characters(const std::string& bytes) {
  return std::ranges::count_if(bytes, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

}  // namespace

Answer::Answer(const ServedModel& model, PreparedRequest prepared, std::string id, int64_t created)
    : model_(&model), prepared_(std::move(prepared)), id_(std::move(id)) {
  const GenerationRequest& request = prepared_.request;
  const char* object = is_chat() ? request.stream ? "chat.completion.chunk" : "chat.completion" : "text_completion";
  head_ = fmt::format(R"({{"id":{},"object":"{}","created":{},"model":{},"choices":[)", json_quote(id_), object,
                      created, json_quote(prepared_.model));
  for (size_t i = 0; i < prepared_.sequences.size(); ++i)
    sequences_.push_back({.stream = {model.tokenizer, prepared_.text}});
}

std::string Answer::logprob_entry(Sequence& sequence, const engine::RequestEvent& event) const {
  const std::string bytes = model_->token_bytes(event.token);
  const float logprob = std::isfinite(event.logprob) ? event.logprob : kLeastLogprob;
  const int64_t offset = sequence.characters;
  sequence.characters += count_characters(bytes);
  if (is_chat())
    return fmt::format(R"({{"token":{},"logprob":{},"bytes":{},"top_logprobs":[]}})", json_quote(bytes), logprob,
                       bytes_json(bytes));
  // Its three columns; logprobs_json() makes rows of them.
  return fmt::format("{}\n{}\n{}", json_quote(bytes), logprob, offset);
}

std::string Answer::logprobs_json(const std::vector<std::string>& entries) const {
  if (!prepared_.request.logprobs || entries.empty()) return "null";
  if (is_chat()) return fmt::format(R"({{"content":[{}],"refusal":null}})", fmt::join(entries, ","));
  std::string columns[3];
  for (const std::string& entry : entries)
    for (size_t begin = 0, column = 0; column < 3; ++column) {
      const size_t end = std::min(entry.find('\n', begin), entry.size());
      columns[column] += (columns[column].empty() ? "" : ",") + entry.substr(begin, end - begin);
      begin = end + 1;
    }
  return fmt::format(R"({{"tokens":[{}],"token_logprobs":[{}],"top_logprobs":null,"text_offset":[{}]}})", columns[0],
                     columns[1], columns[2]);
}

std::string Answer::chunk(size_t index, const std::string& delta, const std::string& logprobs, bool is_last) const {
  const Sequence& sequence = sequences_[index];
  std::string chunk =
      fmt::format(R"(data: {}{{"index":{},{},"logprobs":{},"finish_reason":)", head_, index, delta, logprobs);
  if (is_last)
    chunk += fmt::format(R"("{}","stop_reason":{}}}])", sequence.finish, sequence.stop_reason);
  else
    chunk += "null}]";
  if (prepared_.request.continuous_usage)
    chunk += ",\"usage\":" + usage_json(prepared_.prompt_tokens);
  else if (prepared_.request.include_usage)
    chunk += ",\"usage\":null";
  return chunk + "}\n\n";
}

void Answer::show(size_t index, const std::string& text, bool releases, std::string& chunks) {
  Sequence& sequence = sequences_[index];
  std::vector<std::string> entries;
  if (!text.empty() || releases) entries = std::exchange(sequence.held, {});
  if (!prepared_.request.stream) {
    sequence.text += text;
    sequence.logprobs.insert(sequence.logprobs.end(), entries.begin(), entries.end());
  } else if (!text.empty() || !entries.empty()) {
    const std::string quoted = json_quote(text);
    chunks += chunk(index, is_chat() ? R"("delta":{"content":)" + quoted + "}" : R"("text":)" + quoted,
                    logprobs_json(entries), false);
  }
}

void Answer::end(size_t index, const char* finish, AnswerStep& step) {
  Sequence& sequence = sequences_[index];
  // Of a text that a stop string ended, the tokens of the stop string are no part.
  const bool is_stopped = sequence.stream.is_stopped();
  if (is_stopped) sequence.held.clear();
  show(index, sequence.stream.finish(), !is_stopped, step.chunks);
  sequence.has_ended = step.has_ended = true;
  sequence.finish = finish;
  ++num_ended_;
  if (prepared_.request.stream) step.chunks += chunk(index, is_chat() ? R"("delta":{})" : R"("text":"")", "null", true);
}

AnswerStep Answer::take(size_t index, const engine::RequestEvent& event) {
  Sequence& sequence = sequences_[index];
  AnswerStep step;
  if (sequence.has_ended) return step;
  if (event.end == engine::RequestEnd::failed || event.end == engine::RequestEnd::aborted) {
    sequence.has_ended = step.has_ended = step.has_failed = true;
    ++num_ended_;
    return step;
  }
  const GenerationRequest& request = prepared_.request;
  if (!std::exchange(sequence.has_begun, true)) {
    if (request.stream && is_chat())
      step.chunks += chunk(index, R"("delta":{"role":"assistant","content":""})", "null", false);
    const std::string& echo = prepared_.echoes[prompt_of(index)];
    sequence.characters = count_characters(echo);
    show(index, echo, false, step.chunks);
  }
  if (event.token >= 0) {
    ++sequence.tokens;
    step.has_token = true;
  }
  if (event.end == engine::RequestEnd::stop) {
    end(index, "stop", step);
    return step;
  }
  if (event.token >= 0 && std::ranges::binary_search(request.stop_token_ids, event.token)) {
    sequence.stop_reason = std::to_string(event.token);
    step.wants_abort = event.end == engine::RequestEnd::none;
    end(index, "stop", step);
    return step;
  }
  if (event.token >= 0) {
    if (request.logprobs) sequence.held.push_back(logprob_entry(sequence, event));
    show(index, sequence.stream.push(event.token), false, step.chunks);
    if (sequence.stream.is_stopped()) {
      step.wants_abort = event.end == engine::RequestEnd::none;
      end(index, "stop", step);
      return step;
    }
  }
  if (event.end == engine::RequestEnd::length) end(index, "length", step);
  return step;
}

std::string Answer::usage_json(int64_t prompt_tokens) const {
  const int64_t completion = completion_tokens();
  return fmt::format(R"({{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{}}})", prompt_tokens, completion,
                     prompt_tokens + completion);
}

int64_t Answer::completion_tokens() const {
  int64_t tokens = 0;
  for (const Sequence& sequence : sequences_) tokens += sequence.tokens;
  return tokens;
}

std::string Answer::last_chunks() const {
  std::string chunks;
  if (prepared_.request.include_usage)
    chunks = fmt::format("data: {}],\"usage\":{}}}\n\n", head_, usage_json(prepared_.prompt_tokens));
  return chunks + "data: [DONE]\n\n";
}

std::string Answer::error_chunks(const std::string& error) {
  return fmt::format("data: {}\n\ndata: [DONE]\n\n", error);
}

std::string Answer::body() const {
  std::string body = head_;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    const Sequence& sequence = sequences_[i];
    const std::string text = json_quote(sequence.text);
    body += fmt::format(
        R"({}{{"index":{},{},"logprobs":{},"finish_reason":"{}","stop_reason":{}}})", i ? "," : "", i,
        is_chat() ? fmt::format(R"("message":{{"role":"assistant","content":{}}})", text) : "\"text\":" + text,
        logprobs_json(sequence.logprobs), sequence.finish, sequence.stop_reason);
  }
  return fmt::format("{}],\"usage\":{}}}", body, usage_json(prepared_.prompt_tokens));
}

}  // namespace megalith::serve
