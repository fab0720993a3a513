#include "megalith/serve/completion_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "megalith/base/json_quote.h"

namespace megalith::serve {

using Kind = AnswerPiece::Kind;

namespace {

std::string bytes_json(const std::string& bytes) {
  std::string json = "[";
  for (const char byte : bytes)
    json += fmt::format("{}{}", json.size() > 1 ? "," : "", static_cast<unsigned>(static_cast<unsigned char>(byte)));
  return json + "]";
}

std::string value_json(std::optional<float> logprob) { return logprob ? fmt::format("{}", *logprob) : "null"; }

// {"token": ..., "logprob": ..., "bytes": ...}, to be closed.
std::string token_json(const std::string& bytes, std::optional<float> logprob) {
  return fmt::format(R"({{"token":{},"logprob":{},"bytes":{})", json_quote(bytes), value_json(logprob),
                     bytes_json(bytes));
}

// {"text of a token": its log-probability, ...}, the token that came among them. Of tokens with one text the first counts.
std::string top_json(const TokenLogprob& one) {
  if (!one.logprob) return "null";
  std::vector<TopLogprob> all = one.top;
  all.push_back({one.bytes, *one.logprob});
  std::set<std::string> seen;
  std::string json;
  for (const TopLogprob& top : all)
    if (const std::string text = json_quote(top.bytes); seen.insert(text).second)
      json += fmt::format("{}{}:{}", json.empty() ? "" : ",", text, top.logprob);
  return "{" + json + "}";
}

std::string call_json(const AnswerItem& call, std::optional<size_t> index, const std::string& arguments) {
  const std::string number = index ? fmt::format(R"("index":{},)", *index) : "";
  return fmt::format(R"({{{}"id":{},"type":"function","function":{{"name":{},"arguments":{}}}}})", number,
                     json_quote(call.id), json_quote(call.name), json_quote(arguments));
}

// Under both names that it has: that of DeepSeek and llama-server, and vLLM's newer one.
std::string reasoning_json(const std::string& quoted) {
  return fmt::format(R"("reasoning_content":{},"reasoning":{})", quoted, quoted);
}

std::string message_json(const AnswerText& text) {
  const std::string content = text.text(Kind::content), reasoning = text.text(Kind::reasoning);
  std::string calls;
  for (const AnswerItem& item : text.items)
    if (item.kind == Kind::call) calls += (calls.empty() ? "" : ",") + call_json(item, std::nullopt, item.text);
  std::string message = R"("message":{"role":"assistant","content":)";
  message += content.empty() && !calls.empty() ? "null" : json_quote(content);
  if (!reasoning.empty()) message += "," + reasoning_json(json_quote(reasoning));
  if (!calls.empty()) message += R"(,"tool_calls":[)" + calls + "]";
  return message + "}";
}

// With the token that a request named as an end, as vLLM has it.
std::string finish_json(const AnswerText& text) {
  return fmt::format(R"("{}","stop_reason":{})", text.finish,
                     text.stop_token < 0 ? "null" : std::to_string(text.stop_token));
}

}  // namespace

CompletionForm::CompletionForm(const PreparedRequest& prepared, const std::string& id, int64_t created)
    : prepared_(prepared) {
  const char* object =
      is_chat() ? prepared.request.stream ? "chat.completion.chunk" : "chat.completion" : "text_completion";
  head_ =
      fmt::format(R"({{"id":{},"object":"{}","created":{},"model":{},"system_fingerprint":"megalith-{}","choices":[)",
                  json_quote((is_chat() ? "chatcmpl-" : "cmpl-") + id), object, created, json_quote(prepared.model),
                  MEGALITH_VERSION);
}

std::string CompletionForm::logprobs_json(const std::vector<TokenLogprob>& logprobs) const {
  if (!prepared_.request.logprobs || logprobs.empty()) return "null";
  if (is_chat()) {
    std::string list;
    for (const TokenLogprob& one : logprobs) {
      std::string top;
      for (const TopLogprob& other : one.top)
        top += (top.empty() ? "" : ",") + token_json(other.bytes, other.logprob) + "}";
      list += fmt::format(R"({}{},"top_logprobs":[{}]}})", list.empty() ? "" : ",", token_json(one.bytes, one.logprob),
                          top);
    }
    return fmt::format(R"({{"content":[{}],"refusal":null}})", list);
  }
  std::string tokens, values, offsets, tops;
  for (const TokenLogprob& one : logprobs) {
    const char* comma = tokens.empty() ? "" : ",";
    tokens += comma + json_quote(one.bytes);
    values += comma + value_json(one.logprob);
    offsets += fmt::format("{}{}", comma, one.characters);
    tops += comma + top_json(one);
  }
  return fmt::format(R"({{"tokens":[{}],"token_logprobs":[{}],"top_logprobs":{},"text_offset":[{}]}})", tokens, values,
                     prepared_.request.top_logprobs > 0 ? "[" + tops + "]" : "null", offsets);
}

std::string CompletionForm::prompt_logprobs_json(const AnswerText& text) const {
  if (!prepared_.request.prompt_logprobs) return "";
  std::string list;
  for (const std::vector<PromptChoice>& choices : text.prompt_logprobs) {
    std::string one;
    for (const PromptChoice& choice : choices)
      one +=
          fmt::format(R"({}"{}":{{"logprob":{},"rank":{},"decoded_token":{}}})", one.empty() ? "" : ",", choice.token,
                      choice.logprob, choice.rank ? std::to_string(*choice.rank) : "null", json_quote(choice.bytes));
    list += (list.empty() ? "" : ",") + (one.empty() ? "null" : "{" + one + "}");
  }
  return R"(,"prompt_logprobs":[)" + list + "]";
}

std::string CompletionForm::usage_json(const Texts& texts) const {
  const int64_t tokens = count_tokens(texts);
  // Answers to one prompt may each have found it in the cache; it is counted once.
  const int64_t cached = std::min(count_cached_tokens(texts), prepared_.prompt_tokens);
  const std::string reasoning =
      prepared_.syntax.splits_reasoning()
          ? fmt::format(R"(,"completion_tokens_details":{{"reasoning_tokens":{}}})", count_reasoning_tokens(texts))
          : "";
  return fmt::format(R"({{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{},)"
                     R"("prompt_tokens_details":{{"cached_tokens":{}}}{}}})",
                     prepared_.prompt_tokens, tokens, prepared_.prompt_tokens + tokens, cached, reasoning);
}

std::string CompletionForm::timings_member(size_t index, const Texts& texts) const {
  const AnswerText& text = texts[index];
  if (!text.times.first_ns) return "";
  const auto prompt = static_cast<int64_t>(prepared_.sequences[index].prompt.size());
  return ",\"timings\":" + timings_json(text.times, prompt, text.cached_tokens, text.tokens);
}

// With the times of the answer at its end, or at that of all of them, if there is a chunk of its own for that.
std::string CompletionForm::chunk(size_t index, const std::string& delta, const std::string& logprobs,
                                  const Texts& texts, At at) const {
  std::string chunk = fmt::format(R"(data: {}{{"index":{},{},"logprobs":{},"finish_reason":{}}}])", head_, index, delta,
                                  logprobs, at == At::end ? finish_json(texts[index]) : "null");
  if (prepared_.request.continuous_usage)
    chunk += ",\"usage\":" + usage_json(texts);
  else if (prepared_.request.include_usage)
    chunk += ",\"usage\":null";
  if ((at != At::begin && prepared_.request.timings_per_token) || (at == At::end && !prepared_.request.include_usage))
    chunk += timings_member(index, texts);
  return chunk + "}\n\n";
}

std::string CompletionForm::begin(size_t index, const Texts& texts) {
  if (!is_chat()) return "";
  return chunk(index, R"("delta":{"role":"assistant","content":""})", "null", texts, At::begin);
}

std::string CompletionForm::part(size_t index, const AnswerPiece& piece, const std::vector<TokenLogprob>& logprobs,
                                 const Texts& texts) {
  if (piece.kind == Kind::call_end) return "";
  const std::string quoted = json_quote(piece.text);
  if (!is_chat()) return chunk(index, R"("text":)" + quoted, logprobs_json(logprobs), texts, At::middle);
  const AnswerText& text = texts[index];
  std::string delta;
  if (piece.kind == Kind::call)
    delta = fmt::format(R"("tool_calls":[{}])", call_json(text.items.back(), text.num_calls() - 1, ""));
  else if (piece.kind == Kind::arguments)
    delta = fmt::format(R"("tool_calls":[{{"index":{},"function":{{"arguments":{}}}}}])", text.num_calls() - 1, quoted);
  else
    delta = piece.kind == Kind::reasoning ? reasoning_json(quoted) : R"("content":)" + quoted;
  return chunk(index, R"("delta":{)" + delta + "}", logprobs_json(logprobs), texts, At::middle);
}

std::string CompletionForm::end(size_t index, const Texts& texts) {
  return chunk(index, is_chat() ? R"("delta":{})" : R"("text":"")", "null", texts, At::end);
}

std::string CompletionForm::last(const Texts& texts) {
  std::string usage;
  if (prepared_.request.include_usage)
    usage = fmt::format("data: {}],\"usage\":{}{}}}\n\n", head_, usage_json(texts), timings_member(0, texts));
  return usage + "data: [DONE]\n\n";
}

std::string CompletionForm::error(const std::string& error) {
  return fmt::format("data: {}\n\ndata: [DONE]\n\n", error);
}

std::string CompletionForm::body(const Texts& texts) {
  std::string body = head_;
  for (size_t i = 0; i < texts.size(); ++i) {
    body += fmt::format(R"({}{{"index":{},{},"logprobs":{},"finish_reason":{}{}}})", i ? "," : "", i,
                        is_chat() ? message_json(texts[i]) : R"("text":)" + json_quote(texts[i].text(Kind::content)),
                        logprobs_json(texts[i].logprobs), finish_json(texts[i]),
                        is_chat() ? "" : prompt_logprobs_json(texts[i]));
  }
  return fmt::format("{}],\"usage\":{}{}{}}}", body, usage_json(texts), timings_member(0, texts),
                     is_chat() ? prompt_logprobs_json(texts.front()) : "");
}

}  // namespace megalith::serve
