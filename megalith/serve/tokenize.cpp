#include "megalith/serve/tokenize.h"

#include <fmt/format.h>

#include <limits>
#include <optional>
#include <utility>

#include "megalith/base/json_quote.h"
#include "megalith/model/utf8.h"
#include "megalith/serve/fields.h"
#include "megalith/serve/prepare.h"
#include "megalith/serve/tool_fields.h"

namespace megalith::serve {

namespace {

// As llama-server has it: a string, or a list of bytes if they are not whole characters.
std::string piece_json(const std::string& bytes) {
  if (utf8_is_valid(bytes)) return json_quote(bytes);
  std::string json;
  for (const char byte : bytes)
    json += fmt::format("{}{}", json.empty() ? "" : ",", static_cast<unsigned>(static_cast<unsigned char>(byte)));
  return "[" + json + "]";
}

// What is to become tokens, in llama-server's form or in one of vLLM's.
struct TextAsked {
  std::optional<std::string> model, content, prompt;
  GenerationRequest chat = {};
  bool add_special = false, parse_special = true, add_special_tokens = true, with_pieces = false, with_strings = false;
};

TextAsked read_tokenize(const Fields& fields) {
  TextAsked asked{
      .model = fields.string("model"), .content = fields.string("content"), .prompt = fields.string("prompt")};
  asked.add_special = fields.flag("add_special", false);
  asked.parse_special = fields.flag("parse_special", true);
  asked.add_special_tokens = fields.flag("add_special_tokens", true);
  asked.with_pieces = fields.flag("with_pieces", false);
  asked.with_strings = fields.flag("return_token_strs", false);
  GenerationRequest chat;
  chat.add_generation_prompt = fields.flag("add_generation_prompt", true);
  read_tools(fields, chat);
  if (fields.has("messages")) read_messages(fields, chat);
  if (!asked.content && !asked.prompt && chat.messages.empty())
    throw ApiError::invalid("the request's body lacks \"prompt\", \"messages\" or \"content\"", "prompt");
  asked.chat = std::move(chat);
  return asked;
}

struct TokensAsked {
  std::optional<std::string> model;
  std::vector<int> tokens;
};

TokensAsked read_detokenize(const Fields& fields, int64_t vocab_size) {
  TokensAsked asked{.model = fields.string("model")};
  if (auto tokens = fields.integers("tokens", 0, vocab_size - 1)) asked.tokens = std::move(*tokens);
  fields.need("tokens");
  return asked;
}

std::vector<int> tokens_of(const ServedModel& model, const TextAsked& asked) {
  if (asked.content) return model.encode(*asked.content, asked.add_special, asked.parse_special);
  if (asked.prompt) return model.encode(*asked.prompt, asked.add_special_tokens);
  return model.encode(asked.chat).tokens;
}

template <class Read>
MemberFacts members_of(std::string_view body, Read read) {
  MemberFacts facts;
  const JsonFile file = parse_body(body);
  read(Fields(file.root(), &facts));
  return facts;
}

}  // namespace

MemberFacts tokenize_members() {
  MemberFacts facts = members_of(R"({"messages":[{"role":"user","content":""}]})", read_tokenize);
  for (MemberFact& fact : facts) fact.is_required = false;  // one of three is
  return facts;
}

MemberFacts detokenize_members() {
  return members_of(R"({"tokens":[]})",
                    [](const Fields& fields) { read_detokenize(fields, std::numeric_limits<int>::max()); });
}

std::string tokenize(const ServedModel& model, std::string_view body) {
  const JsonFile file = parse_body(body);
  const TextAsked asked = read_tokenize(Fields(file.root()));
  check_name(model, asked.model);
  const std::vector<int> tokens = tokens_of(model, asked);
  std::string list, strings;
  for (const int token : tokens) {
    const char* comma = list.empty() ? "" : ",";
    list += asked.with_pieces
                ? fmt::format(R"({}{{"id":{},"piece":{}}})", comma, token, piece_json(model.token_bytes(token)))
                : fmt::format("{}{}", comma, token);
    if (asked.with_strings) strings += comma + json_quote(model.token_bytes(token));
  }
  return fmt::format(R"({{"tokens":[{}],"count":{},"max_model_len":{}{}}})", list, tokens.size(), model.max_seq_len,
                     asked.with_strings ? ",\"token_strs\":[" + strings + "]" : "");
}

std::string detokenize(const ServedModel& model, std::string_view body) {
  const JsonFile file = parse_body(body);
  const TokensAsked asked = read_detokenize(Fields(file.root()), model.vocab_size);
  check_name(model, asked.model);
  const std::string text = json_quote(model.decode(asked.tokens));
  return fmt::format(R"({{"prompt":{},"content":{}}})", text, text);
}

std::string apply_template(const ServedModel& model, std::string_view body) {
  const GenerationRequest chat = read_generation_request(Api::chat, body);
  check_name(model, chat.model);
  std::string prompt;
  for (const TextSegment& segment : model.render(chat)) prompt += segment.text;
  return fmt::format(R"({{"prompt":{}}})", json_quote(prompt));
}

std::string count_input_tokens(const ServedModel& model, std::string_view body) {
  const GenerationRequest chat = read_generation_request(Api::chat, body);
  check_name(model, chat.model);
  return fmt::format(R"({{"object":"response.input_tokens","input_tokens":{}}})", model.encode(chat).tokens.size());
}

}  // namespace megalith::serve
