#include "megalith/serve/responses_form.h"

#include <fmt/format.h>

#include "megalith/base/json_quote.h"

namespace megalith::serve {

namespace {

std::string part_json(const std::string& text) {
  return fmt::format(R"({{"type":"output_text","text":{},"annotations":[],"logprobs":[]}})", json_quote(text));
}

const char* status_of(const AnswerText& text) { return text.finish == "length" ? "incomplete" : "completed"; }

}  // namespace

ResponsesForm::ResponsesForm(const PreparedRequest& prepared, const std::string& id, int64_t created)
    : prepared_(prepared), id_("resp_" + id), message_id_("msg_" + id), created_(created) {
  where_ = fmt::format(R"("item_id":{},"output_index":0,"content_index":0)", json_quote(message_id_));
}

std::string ResponsesForm::event(const std::string& type, const std::string& members) {
  return fmt::format("event: {}\ndata: {{\"type\":\"{}\",\"sequence_number\":{},{}}}\n\n", type, type, number_++,
                     members);
}

std::string ResponsesForm::message_json(const char* status, const AnswerText* text) const {
  return fmt::format(R"({{"type":"message","id":{},"status":"{}","role":"assistant","content":[{}]}})",
                     json_quote(message_id_), status, text ? part_json(text->text) : "");
}

std::string ResponsesForm::response_json(const char* status, const Texts* texts) const {
  const engine::Request& sequence = prepared_.sequences.front();
  const std::optional<int64_t>& limit = prepared_.request.max_tokens;
  std::string usage = "null", output, incomplete = "null";
  if (texts) {
    const AnswerText& text = texts->front();
    output = message_json(status, &text);
    if (text.finish == "length") incomplete = R"({"reason":"max_output_tokens"})";
    usage =
        fmt::format(R"({{"input_tokens":{},"input_tokens_details":{{"cached_tokens":{}}},"output_tokens":{},)"
                    R"("output_tokens_details":{{"reasoning_tokens":0}},"total_tokens":{}}})",
                    prepared_.prompt_tokens, text.cached_tokens, text.tokens, prepared_.prompt_tokens + text.tokens);
  }
  return fmt::format(
      R"({{"id":{},"object":"response","created_at":{},"status":"{}","error":null,"incomplete_details":{},)"
      R"("instructions":{},"max_output_tokens":{},"metadata":{{}},"model":{},"output":[{}],"parallel_tool_calls":false,)"
      R"("previous_response_id":null,"store":false,"temperature":{},"text":{{"format":{{"type":"text"}}}},)"
      R"("tool_choice":"none","tools":[],"top_p":{},"truncation":"disabled","usage":{}}})",
      json_quote(id_), created_, status, incomplete,
      prepared_.request.instructions ? json_quote(*prepared_.request.instructions) : "null",
      limit ? std::to_string(*limit) : "null", json_quote(prepared_.model), output, sequence.sampling.temperature,
      sequence.sampling.top_p, usage);
}

std::string ResponsesForm::begin(size_t, const Texts&) {
  const std::string response = R"("response":)" + response_json("in_progress", nullptr);
  std::string events = event("response.created", response);
  events += event("response.in_progress", response);
  events += event("response.output_item.added", R"("output_index":0,"item":)" + message_json("in_progress", nullptr));
  events += event("response.content_part.added", where_ + R"(,"part":)" + part_json(""));
  return events;
}

std::string ResponsesForm::part(size_t, const std::string& text, const std::vector<TokenLogprob>&, const Texts&) {
  return event("response.output_text.delta", fmt::format(R"({},"delta":{},"logprobs":[])", where_, json_quote(text)));
}

std::string ResponsesForm::end(size_t, const Texts& texts) {
  const AnswerText& text = texts.front();
  std::string events =
      event("response.output_text.done", fmt::format(R"({},"text":{},"logprobs":[])", where_, json_quote(text.text)));
  events += event("response.content_part.done", where_ + R"(,"part":)" + part_json(text.text));
  events += event("response.output_item.done", R"("output_index":0,"item":)" + message_json(status_of(text), &text));
  return events;
}

std::string ResponsesForm::last(const Texts& texts) {
  const char* status = status_of(texts.front());
  return event(fmt::format("response.{}", status), R"("response":)" + response_json(status, &texts));
}

// Clients of this interface read the error's members at the top of the event.
std::string ResponsesForm::error(const std::string& error) { return event("error", error.substr(1, error.size() - 2)); }

std::string ResponsesForm::body(const Texts& texts) { return response_json(status_of(texts.front()), &texts); }

}  // namespace megalith::serve
