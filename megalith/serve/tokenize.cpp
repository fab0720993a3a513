#include "megalith/serve/tokenize.h"

#include <fmt/format.h>

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

std::vector<int> tokens_of(const ServedModel& model, const Fields& fields) {
  if (const auto content = fields.string("content"))
    return model.encode(*content, fields.flag("add_special", false), fields.flag("parse_special", true));
  if (const auto prompt = fields.string("prompt"))
    return model.encode(*prompt, fields.flag("add_special_tokens", true));
  if (!fields.has("messages"))
    throw ApiError::invalid("the request's body lacks \"prompt\", \"messages\" or \"content\"", "prompt");
  GenerationRequest request;
  read_messages(fields, request);
  read_tools(fields, request);
  request.add_generation_prompt = fields.flag("add_generation_prompt", true);
  return model.encode(request).tokens;
}

}  // namespace

std::string tokenize(const ServedModel& model, std::string_view body) {
  const JsonFile file = parse_body(body);
  const Fields fields(file.root());
  check_name(model, fields.string("model"));
  const std::vector<int> tokens = tokens_of(model, fields);
  std::string list, strings;
  const bool with_pieces = fields.flag("with_pieces", false);
  const bool with_strings = fields.flag("return_token_strs", false);
  for (const int token : tokens) {
    const char* comma = list.empty() ? "" : ",";
    list += with_pieces ? fmt::format(R"({}{{"id":{},"piece":{}}})", comma, token, piece_json(model.token_bytes(token)))
                        : fmt::format("{}{}", comma, token);
    if (with_strings) strings += comma + json_quote(model.token_bytes(token));
  }
  return fmt::format(R"({{"tokens":[{}],"count":{},"max_model_len":{}{}}})", list, tokens.size(), model.max_seq_len,
                     with_strings ? ",\"token_strs\":[" + strings + "]" : "");
}

std::string detokenize(const ServedModel& model, std::string_view body) {
  const JsonFile file = parse_body(body);
  const Fields fields(file.root());
  check_name(model, fields.string("model"));
  const auto tokens = fields.integers("tokens", 0, model.vocab_size - 1);
  if (!tokens) throw ApiError::invalid("the request's body lacks \"tokens\"", "tokens");
  const std::string text = json_quote(model.decode(*tokens));
  return fmt::format(R"({{"prompt":{},"content":{}}})", text, text);
}

}  // namespace megalith::serve
