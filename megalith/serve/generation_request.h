// What POST /v1/chat/completions, /v1/completions, /v1/responses and /completion ask for, read and checked; of the model nothing is known here.
//
// A member that would change the answer and that this server cannot do is refused by name (unsupported_fields.h). One that
// nobody knows is ignored, as other servers do it: clients send what their authors thought of.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "megalith/grammar/grammar.h"
#include "megalith/model/template_value.h"
#include "megalith/serve/call_parser.h"
#include "megalith/serve/fields.h"

namespace megalith::serve {

enum class Api { chat, completion, responses, llama };  // the last one: llama-server's /completion

inline constexpr size_t kMaxPrompts = 1024;
inline constexpr int64_t kMaxTokenId = std::numeric_limits<int>::max();

/// Whether it has prompts, and no conversation.
constexpr bool has_prompts(Api api) { return api == Api::completion || api == Api::llama; }

/// Of an assistant's message.
struct ToolCall {
  std::string id, name;
  std::string arguments;  // JSON, as far as the client keeps to it
};

struct ChatTurn {
  std::string role;     // one of those that OpenAI knows, so it is no user's text
  std::string content;  // the parts of a text joined by newlines
  std::optional<std::string> name = {}, reasoning = {};
  std::vector<ToolCall> tool_calls = {};
  std::optional<std::string> tool_call_id = {};  // of the call that this is the result of
};

/// Texts and token ids, one behind the other.
struct MixedPrompt {
  std::vector<std::variant<std::string, std::vector<int>>> parts;

  bool operator==(const MixedPrompt&) const = default;
};

/// As text, or as token ids, or as both.
using Prompt = std::variant<std::string, std::vector<int>, MixedPrompt>;

/// Nothing: as the model's makers or the server's options have it.
struct SamplingFields {
  std::optional<double> temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<int64_t> top_k;
  std::optional<uint64_t> seed;
};

/// Of which form the answer is to be, and the member that says so.
struct AnswerGrammar {
  grammar::GrammarSource source;
  std::string member;
};

/// A tool as far as a grammar depends on it.
struct ToolSchema {
  std::string name;
  std::string parameters;  // JSON
  bool is_strict = false;  // arguments are to fit
};

struct GenerationRequest {
  Api api = Api::chat;
  std::optional<std::string> model;
  std::vector<ChatTurn> messages;                                // of all but a completion
  std::optional<std::string> instructions;                       // of a response; also the first of its messages
  std::vector<std::pair<std::string, TemplateValue>> variables;  // for the chat template
  bool add_generation_prompt = true;
  std::vector<TemplateValue> tools;      // that may be called, as the client describes them
  std::vector<CallableTool> tool_types;  // the same, as far as answers depend on them
  std::vector<ToolSchema> tool_schemas;  // likewise
  bool must_call = false;                // one of them
  std::string named_tool;                // and this one; "": any
  bool parallel_tool_calls = true;       // more than one in an answer
  bool include_reasoning = true;         // in the answer, where it is split off
  std::vector<Prompt> prompts;           // of a completion
  bool echo = false;

  int64_t n = 1;                      // answers to each prompt
  std::optional<int64_t> max_tokens;  // 0: nothing but the prompt, which is repeated
  SamplingFields sampling;
  std::vector<std::string> stops;
  std::vector<int> stop_token_ids;  // sorted, each once
  bool ignore_eos = false;
  std::optional<AnswerGrammar> grammar;
  int64_t min_tokens = 0;                                // before so many nothing ends it
  std::map<int, float> logit_bias;                       // by token
  std::vector<std::pair<std::string, float>> text_bias;  // of the tokens of texts
  std::vector<int> allowed_token_ids;                    // sorted, each once; without any all
  std::vector<std::string> bad_words;                    // that are not made
  bool skip_special_tokens = true;
  std::optional<bool> add_special_tokens;
  bool logprobs = false;
  int top_logprobs = 0;                // with `logprobs`: of so many tokens that might have come, too
  std::optional<int> prompt_logprobs;  // of the prompt's tokens, and of so many that might have stood there
  int64_t priority = 0;                // lower goes first
  bool cache_prompt = true;            // others may have worked through the prompt's beginning
  std::string cache_salt;  // only requests of the same one share what they have worked through; most have none

  bool return_tokens = false;      // of a llama-server's completion
  bool timings_per_token = false;  // in each chunk

  bool stream = false;
  bool include_usage = false;     // in a chunk of its own, behind the others
  bool continuous_usage = false;  // and in each of them
};

/// ApiError for a body that is not understood.
GenerationRequest read_generation_request(Api api, std::string_view body);
/// The member that the prompt stands in, for messages.
const char* prompt_member(Api api);
/// The members that it looks for.
MemberFacts generation_members(Api api);
/// The messages alone, as /tokenize takes them, too.
void read_messages(const Fields& fields, GenerationRequest& request);

}  // namespace megalith::serve
