#include "megalith/serve/generation_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "megalith/base/json_quote.h"
#include "megalith/runtime/batch.h"
#include "megalith/serve/grammar_fields.h"
#include "megalith/serve/llama_fields.h"
#include "megalith/serve/tool_fields.h"
#include "megalith/serve/unsupported_fields.h"
#include "megalith/serve/user_value.h"

namespace megalith::serve {

namespace {

constexpr int64_t kMaxAnswers = 128;  // as OpenAI has it
constexpr int64_t kMaxTokens = 1 << 24;
// Each is looked for at every place of the answer.
constexpr size_t kMaxStops = 64;
constexpr size_t kMaxStopBytes = 1024;
constexpr int64_t kMaxPriority = 1 << 30;
constexpr size_t kMaxSaltBytes = 1024;  // kept with each prompt
constexpr size_t kMaxMessages = 65536;
constexpr std::array kRoles = {"system", "developer", "user", "assistant", "tool"};

std::string text_of_part(const JsonValue& part, const char* member) {
  const std::string& type = part.at("type").string();
  if (type == "refusal") return part.at("refusal").string();
  if (type != "text" && type != "input_text" && type != "output_text" && type != "reasoning_text")
    throw ApiError::unsupported(
        fmt::format("a message has a part of type \"{}\", but this server takes only parts of type \"text\"", type),
        member);
  return part.at("text").string();
}

std::string content_of(const JsonValue& message, const char* key, const char* member) {
  const auto content = message.find(key);
  if (!content) return "";  // of an assistant who only called tools; or an empty message
  if (content->is_string()) return content->string();
  if (!content->is_array()) content->fail(fmt::format("is {}, want a string or an array of parts", content->excerpt()));
  std::string text;
  bool is_first = true;
  content->each_element([&](const JsonValue& part) {
    if (!std::exchange(is_first, false)) text += '\n';
    text += text_of_part(part, member);
  });
  return text;
}

std::optional<std::string> find_string(const JsonValue& object, std::string_view key) {
  const auto value = object.find(key);
  return value ? std::optional(value->string()) : std::nullopt;
}

ChatTurn turn_of(const JsonValue& message, const char* member) {
  ChatTurn turn{.role = message.at("role").string()};
  if (turn.role == "function" || message.find("function_call"))
    throw ApiError::unsupported(
        "a message is of a function's call in its old form: use \"tool_calls\" and the role tool", member);
  if (std::ranges::find(kRoles, turn.role) == kRoles.end())
    message.at("role").fail(
        fmt::format("is {}, want one of {}", message.at("role").excerpt(), fmt::join(kRoles, ", ")));
  if (turn.role == "developer") turn.role = "system";  // the new name of it, which templates do not know
  if (turn.role != "assistant") message.at("content");
  turn.content = content_of(message, "content", member);
  turn.name = find_string(message, "name");
  turn.reasoning = find_string(message, "reasoning_content");
  if (!turn.reasoning) turn.reasoning = find_string(message, "reasoning");
  if (turn.role == "assistant") turn.tool_calls = read_tool_calls(message);
  if (turn.role == "tool") turn.tool_call_id = find_string(message, "tool_call_id");
  return turn;
}

void read_chat(const Fields& fields, GenerationRequest& request) {
  read_messages(fields, request);
  if (const auto kwargs = fields.find("chat_template_kwargs"))
    Fields::read("chat_template_kwargs", *kwargs, [&](const JsonValue& all) {
      all.each_member([&](const std::string& key, const JsonValue& value) {
        for (const char* ours : {"messages", "tools", "add_generation_prompt"})
          if (key == ours) all.fail(fmt::format("names \"{}\", which the request itself sets", key));
        request.variables.emplace_back(key, user_value(value));
      });
    });
  if (const auto effort = fields.find("reasoning_effort"))
    request.variables.emplace_back("reasoning_effort", user_value(*effort));
  request.add_generation_prompt = fields.flag("add_generation_prompt", true);
  request.include_reasoning = fields.flag("include_reasoning", true);
  request.logprobs = fields.flag("logprobs", false);
  request.top_logprobs = static_cast<int>(fields.integer("top_logprobs", 0, batch::kMaxTop).value_or(0));
  if (request.top_logprobs > 0 && !request.logprobs)
    throw ApiError::invalid("\"top_logprobs\" needs \"logprobs\": true beside it", "top_logprobs");
  if (Fields(fields.object()).flag("echo", false))
    throw ApiError::unsupported("\"echo\" is true, but only /v1/completions repeats its prompt", "echo");
}

std::vector<int> token_ids(const JsonValue& list) {
  std::vector<int> ids;
  ids.reserve(list.size());
  list.each_element([&](const JsonValue& id) { ids.push_back(static_cast<int>(id.integer(0, kMaxTokenId))); });
  return ids;
}

// One prompt, as text or as ids, or an array of such.
std::vector<Prompt> prompts_of(const JsonValue& value) {
  std::vector<Prompt> prompts;
  if (value.is_string()) return {value.string()};
  if (!value.is_array())
    value.fail(
        fmt::format("is {}, want a string, an array of strings, of token ids, or of arrays of ids", value.excerpt()));
  const size_t count = value.size();
  if (count == 0) value.fail("is empty, want a prompt");
  std::optional<bool> is_one;
  value.each_element([&](const JsonValue& one) {
    const bool is_id = one.find_number().has_value();
    if (is_one.value_or(is_id) != is_id) value.fail("mixes token ids with prompts, want one or the other");
    if (!std::exchange(is_one, is_id) && !is_id && count > kMaxPrompts)
      value.fail(fmt::format("has {} prompts, want at most {}", count, kMaxPrompts));
    if (is_id) return;
    if (one.is_string())
      prompts.emplace_back(one.string());
    else
      prompts.emplace_back(token_ids(one));
  });
  if (is_one.value_or(false)) return {token_ids(value)};
  return prompts;
}

void read_completion(const Fields& fields, GenerationRequest& request) {
  request.prompts = Fields::read("prompt", fields.need("prompt"), prompts_of);
  request.echo = fields.flag("echo", false);
  if (const auto logprobs = fields.find("logprobs")) {
    const bool is_flag = logprobs->is_boolean();
    if (!is_flag) request.top_logprobs = static_cast<int>(fields.integer("logprobs", 0, batch::kMaxTop).value_or(0));
    request.logprobs = is_flag ? logprobs->boolean() : true;
  }
}

// Items of a conversation become messages: calls join the assistant's message in front of them, and so does reasoning the
// one behind it.
class InputItems {
 public:
  explicit InputItems(GenerationRequest& request) : messages_(request.messages) {}

  void add(const JsonValue& item) {
    const std::string type = find_string(item, "type").value_or("message");
    if (type == "message")
      messages_.push_back(turn_of(item, "input"));
    else if (type == "function_call")
      assistant().tool_calls.push_back(read_function_call(item));
    else if (type == "function_call_output")
      messages_.push_back({.role = "tool",
                           .content = content_of(item, "output", "input"),
                           .tool_call_id = item.at("call_id").string()});
    else if (type == "reasoning")
      reasoning_ = content_of(item, "content", "input");
    else
      throw ApiError::unsupported(
          fmt::format("an item of the input is of type \"{}\", but this server takes only messages, function_call, "
                      "function_call_output and reasoning",
                      type),
          "input");
    if (messages_.empty() || messages_.back().role != "assistant" || reasoning_.empty() || type == "reasoning") return;
    messages_.back().reasoning = std::exchange(reasoning_, {});
  }

 private:
  ChatTurn& assistant() {
    const bool is_open = !messages_.empty() && messages_.back().role == "assistant" && reasoning_.empty();
    if (!is_open) messages_.push_back({.role = "assistant", .content = ""});
    return messages_.back();
  }

  std::vector<ChatTurn>& messages_;
  std::string reasoning_ = {};
};

void read_input(const JsonValue& input, GenerationRequest& request) {
  if (input.is_string()) return request.messages.push_back({"user", input.string()});
  if (!input.is_array() || input.size() == 0 || input.size() > kMaxMessages)
    input.fail(fmt::format("is {}, want a string or an array of 1 to {} messages", input.excerpt(), kMaxMessages));
  InputItems items(request);
  input.each_element([&](const JsonValue& item) { items.add(item); });
}

void read_responses(const Fields& fields, GenerationRequest& request) {
  request.instructions = fields.string("instructions");
  if (request.instructions) request.messages.push_back({"system", *request.instructions});
  Fields::read("input", fields.need("input"), [&](const JsonValue& value) { read_input(value, request); });
  if (const auto reasoning = fields.find("reasoning"))
    Fields::read("reasoning", *reasoning, [&](const JsonValue& value) {
      if (const auto effort = value.find("effort"))
        request.variables.emplace_back("reasoning_effort", user_value(*effort));
    });
}

// A string or an array of some.
std::vector<std::string> strings_of(const JsonValue& value, size_t most, size_t most_bytes) {
  std::vector<std::string> strings;
  if (value.is_string())
    strings.push_back(value.string());
  else if (value.is_array())
    value.each_element([&](const JsonValue& one) { strings.push_back(one.string()); });
  else
    value.fail(fmt::format("is {}, want a string or an array of strings", value.excerpt()));
  if (strings.size() > most) value.fail(fmt::format("has {} strings, want at most {}", strings.size(), most));
  for (const std::string& one : strings)
    if (one.size() > most_bytes)
      value.fail(fmt::format("has a string of {} bytes, want at most {}", one.size(), most_bytes));
  return strings;
}

std::vector<std::string> stops_of(const JsonValue& value) { return strings_of(value, kMaxStops, kMaxStopBytes); }

std::vector<std::string> bad_words_of(const JsonValue& value) {
  return strings_of(value, batch::kMaxBiases, kMaxStopBytes);
}

SamplingFields read_sampling(const Fields& fields) {
  SamplingFields sampling;
  sampling.temperature = fields.number("temperature", 0, 99);
  // 0 is what others take for the most probable token alone; so does the least that is more than 0.
  sampling.top_p = fields.number("top_p", 0, 1);
  if (sampling.top_p) sampling.top_p = std::max(*sampling.top_p, 1e-6);
  sampling.min_p = fields.number("min_p", 0, 1);
  sampling.top_k = fields.integer("top_k", -1, kMaxTokens);
  if (sampling.top_k) sampling.top_k = std::max<int64_t>(*sampling.top_k, 0);
  for (const char* name : {"repeat_penalty", "repetition_penalty"})
    if (const auto penalty = fields.number(name, 0.01, 100)) sampling.repetition_penalty = penalty;
  sampling.presence_penalty = fields.number("presence_penalty", -100, 100);
  sampling.frequency_penalty = fields.number("frequency_penalty", -100, 100);
  const auto seed = fields.integer("seed", std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
  if (seed && *seed != -1) sampling.seed = static_cast<uint64_t>(*seed);
  return sampling;
}

// {"50256": -100}, as JSON has it: numbers that are names.
std::map<int, float> logit_bias_of(const JsonValue& value) {
  if (!value.is_object()) value.fail(fmt::format("is {}, want an object of token ids and biases", value.excerpt()));
  if (value.size() > size_t{batch::kMaxBiases})
    value.fail(fmt::format("names {} tokens, want at most {}", value.size(), batch::kMaxBiases));
  std::map<int, float> biases;
  value.each_member([&](const std::string& key, const JsonValue& bias) {
    int token = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token);
    if (error != std::errc() || end != key.data() + key.size() || token < 0)
      value.fail(fmt::format("names {}, want token ids, such as \"42\"", json_quote(key)));
    if (!biases.emplace(token, static_cast<float>(bias.number(-100, 100))).second)
      value.fail(fmt::format("names the token {} twice", token));
  });
  return biases;
}

/// Token ids, sorted, each once.
std::vector<int> read_token_set(const Fields& fields, const char* name, int most) {
  std::vector<int> ids = fields.integers(name, 0, kMaxTokenId).value_or(std::vector<int>());
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  if (ids.size() > static_cast<size_t>(most))
    throw ApiError::invalid(fmt::format("\"{}\" has {} ids, want at most {}", name, ids.size(), most), name);
  return ids;
}

// What ends an answer, and which tokens it may have.
void read_ends(const Fields& fields, GenerationRequest& request) {
  if (const auto stop = fields.find("stop")) request.stops = Fields::read("stop", *stop, stops_of);
  request.stop_token_ids = read_token_set(fields, "stop_token_ids", batch::kMaxOwnStops);
  request.ignore_eos = fields.flag("ignore_eos", false);
  request.min_tokens = fields.integer("min_tokens", 0, kMaxTokens).value_or(0);
  if (const auto biases = request.api == Api::llama ? std::nullopt : fields.find("logit_bias"))
    request.logit_bias = Fields::read("logit_bias", *biases, logit_bias_of);
  request.allowed_token_ids = read_token_set(fields, "allowed_token_ids", batch::kMaxBiases);
  if (const auto words = fields.find("bad_words")) request.bad_words = Fields::read("bad_words", *words, bad_words_of);
}

// Under its new name, its old one, or llama-server's; -1: as many as there is room for.
std::optional<int64_t> read_max_tokens(const Fields& fields, bool may_be_none) {
  std::optional<int64_t> tokens;
  for (const char* name : {"n_predict", "max_output_tokens", "max_tokens", "max_completion_tokens"})
    if (const auto given = fields.integer(name, -1, std::numeric_limits<int64_t>::max())) {
      if (*given == 0 && !may_be_none)
        throw ApiError::invalid(
            fmt::format("\"{}\" is 0, want at least 1; 0 is for completions with \"echo\": true", name), name);
      tokens = *given < 0 ? kMaxTokens : std::min(*given, kMaxTokens);
    }
  return tokens;
}

// As vLLM has it.
void read_prompt_logprobs(const Fields& fields, GenerationRequest& request) {
  const auto count = fields.integer("prompt_logprobs", 0, batch::kMaxTop);
  if (!count) return;
  const auto refuse = [](const char* what) {
    throw ApiError::unsupported(fmt::format("\"prompt_logprobs\" is given, but {}: leave it out", what),
                                "prompt_logprobs");
  };
  if (request.api == Api::responses) refuse("/v1/responses has no place for them");
  if (request.api == Api::llama) refuse("/completion has no place for them");
  if (request.stream) refuse("a stream has no place for them; of a completion \"echo\" and \"logprobs\" are streamed");
  request.prompt_logprobs = static_cast<int>(*count);
}

std::string read_cache_salt(const Fields& fields) {
  const std::optional<std::string> salt = fields.string("cache_salt");
  if (!salt) return "";
  if (salt->empty() || salt->size() > kMaxSaltBytes)
    throw ApiError::invalid(
        fmt::format("\"cache_salt\" has {} bytes, want 1 to {}, or no salt at all", salt->size(), kMaxSaltBytes),
        "cache_salt");
  return *salt;
}

void read_stream(const Fields& fields, GenerationRequest& request) {
  request.stream = fields.flag("stream", false);
  const auto options = fields.find("stream_options");
  if (!options) return;
  if (!request.stream)
    throw ApiError::invalid("\"stream_options\" is given, but \"stream\" is not true", "stream_options");
  Fields::read("stream_options", *options, [&](const JsonValue& value) {
    const auto is_set = [&](const char* key) {
      const auto flag = value.find(key);
      return flag && flag->boolean();
    };
    request.include_usage = is_set("include_usage");
    request.continuous_usage = request.include_usage && is_set("continuous_usage_stats");
  });
}

}  // namespace

const char* prompt_member(Api api) { return api == Api::chat ? "messages" : has_prompts(api) ? "prompt" : "input"; }

void read_messages(const Fields& fields, GenerationRequest& request) {
  Fields::read("messages", fields.need("messages"), [&](const JsonValue& all) {
    if (all.is_array() && (all.size() == 0 || all.size() > kMaxMessages))
      all.fail(fmt::format("has {} messages, want 1 to {}", all.size(), kMaxMessages));
    all.each_element([&](const JsonValue& message) { request.messages.push_back(turn_of(message, "messages")); });
  });
}

namespace {

GenerationRequest read_fields(Api api, const Fields& fields) {
  GenerationRequest request{.api = api};
  request.model = fields.string("model");
  refuse_unsupported(fields);
  read_tools(fields, request);
  read_answer_grammar(fields, request);
  if (api == Api::chat) read_chat(fields, request);
  if (api == Api::completion) read_completion(fields, request);
  if (api == Api::responses) read_responses(fields, request);
  if (api == Api::llama) read_llama(fields, request);
  if (api != Api::llama && Fields(fields.object()).integer("n_probs", 0, kMaxTokens).value_or(0) > 0)
    throw ApiError::unsupported("\"n_probs\" is a member of /completion; use \"logprobs\" here", "n_probs");
  if (api != Api::chat && Fields(fields.object()).integer("top_logprobs", 0, batch::kMaxTop).value_or(0) > 0)
    throw ApiError::unsupported("\"top_logprobs\" is a member of chats; /v1/completions has \"logprobs\": 5",
                                "top_logprobs");
  if (api != Api::responses) request.n = fields.integer("n", 1, kMaxAnswers).value_or(1);
  request.max_tokens = read_max_tokens(fields, request.echo || api == Api::llama);
  request.sampling = read_sampling(fields);
  read_ends(fields, request);
  request.skip_special_tokens = fields.flag("skip_special_tokens", true);
  request.add_special_tokens = fields.flag("add_special_tokens");
  request.priority = fields.integer("priority", -kMaxPriority, kMaxPriority).value_or(0);
  request.cache_prompt = fields.flag("cache_prompt", true);
  request.cache_salt = read_cache_salt(fields);
  if (api != Api::responses) request.timings_per_token = fields.flag("timings_per_token", false);
  read_stream(fields, request);
  read_prompt_logprobs(fields, request);
  return request;
}

}  // namespace

GenerationRequest read_generation_request(Api api, std::string_view body) {
  const JsonFile file = parse_body(body);
  return read_fields(api, Fields(file.root()));
}

// What is looked for in a request of nothing but a prompt.
MemberFacts generation_members(Api api) {
  const JsonFile file = parse_body(api == Api::chat   ? R"({"messages":[{"role":"user","content":""}]})"
                                   : has_prompts(api) ? R"({"prompt":""})"
                                                      : R"({"input":""})");
  MemberFacts facts;
  read_fields(api, Fields(file.root(), &facts));
  return facts;
}

}  // namespace megalith::serve
