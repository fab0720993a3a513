#include "megalith/serve/responses_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "megalith/base/json_quote.h"

namespace megalith::serve {

using Kind = AnswerPiece::Kind;

namespace {

std::string part_json(const std::string& text) {
  return fmt::format(R"({{"type":"output_text","text":{},"annotations":[],"logprobs":[]}})", json_quote(text));
}

const char* status_of(const AnswerText& text) { return text.finish == "length" ? "incomplete" : "completed"; }

// An answer without a word is one of an empty text.
const AnswerItem& item_of(const AnswerText& text, size_t number) {
  static const AnswerItem empty{.kind = Kind::content};
  return text.items.empty() ? empty : text.items[number];
}

// As the request had it.
std::string format_json(const GenerationRequest& request) {
  if (!request.grammar || request.grammar->member != "text") return R"({"type":"text"})";
  const grammar::GrammarSource& source = request.grammar->source;
  if (source.kind == grammar::GrammarKind::json) return R"({"type":"json_object"})";
  return fmt::format(R"({{"type":"json_schema","name":"answer","schema":{}}})", source.text);
}

std::string choice_json(const GenerationRequest& request) {
  if (!request.named_tool.empty())
    return fmt::format(R"({{"type":"function","name":{}}})", json_quote(request.named_tool));
  return request.must_call ? R"("required")" : request.tools.empty() ? R"("none")" : R"("auto")";
}

size_t num_items(const AnswerText& text) { return std::max<size_t>(text.items.size(), 1); }

}  // namespace

ResponsesForm::ResponsesForm(const PreparedRequest& prepared, const std::string& id, int64_t created)
    : prepared_(prepared), request_id_(id), id_("resp_" + id), created_(created) {}

// Of several items of one kind the later ones have a number in their name.
std::string ResponsesForm::item_id(const AnswerText& text, size_t number) const {
  const Kind kind = item_of(text, number).kind;
  const char* prefix = kind == Kind::content ? "msg_" : kind == Kind::reasoning ? "rs_" : "fc_";
  return prefix + request_id_ + (number ? fmt::format("_{}", number) : "");
}

std::string ResponsesForm::where(const AnswerText& text, size_t number) const {
  const bool has_parts = item_of(text, number).kind != Kind::call;
  return fmt::format(R"("item_id":{},"output_index":{}{})", json_quote(item_id(text, number)), number,
                     has_parts ? R"(,"content_index":0)" : "");
}

std::string ResponsesForm::item_json(const AnswerText& text, size_t number, bool is_done) const {
  const AnswerItem& item = item_of(text, number);
  const bool is_last = number + 1 == num_items(text);
  const char* status = !is_done ? "in_progress" : is_last ? status_of(text) : "completed";
  const std::string head = fmt::format(R"("id":{},"status":"{}")", json_quote(item_id(text, number)), status);
  if (item.kind == Kind::call)
    return fmt::format(R"({{"type":"function_call",{},"call_id":{},"name":{},"arguments":{}}})", head,
                       json_quote(item.id), json_quote(item.name), json_quote(is_done ? item.text : ""));
  if (item.kind == Kind::reasoning)
    return fmt::format(R"({{"type":"reasoning",{},"summary":[],"content":[{}]}})", head,
                       is_done ? fmt::format(R"({{"type":"reasoning_text","text":{}}})", json_quote(item.text)) : "");
  return fmt::format(R"({{"type":"message",{},"role":"assistant","content":[{}]}})", head,
                     is_done ? part_json(item.text) : "");
}

std::string ResponsesForm::event(const std::string& type, const std::string& members) {
  return fmt::format("event: {}\ndata: {{\"type\":\"{}\",\"sequence_number\":{},{}}}\n\n", type, type, number_++,
                     members);
}

std::string ResponsesForm::response_json(const char* status, const Texts* texts) const {
  const engine::Request& sequence = prepared_.sequences.front();
  const std::optional<int64_t>& limit = prepared_.request.max_tokens;
  const bool has_tools = !prepared_.request.tools.empty();
  std::string usage = "null", output, incomplete = "null";
  if (texts) {
    const AnswerText& text = texts->front();
    for (size_t i = 0; i < num_items(text); ++i) output += (i ? "," : "") + item_json(text, i, true);
    if (text.finish == "length") incomplete = R"({"reason":"max_output_tokens"})";
    usage = fmt::format(R"({{"input_tokens":{},"input_tokens_details":{{"cached_tokens":{}}},"output_tokens":{},)"
                        R"("output_tokens_details":{{"reasoning_tokens":{}}},"total_tokens":{}}})",
                        prepared_.prompt_tokens, text.cached_tokens, text.tokens, text.reasoning_tokens,
                        prepared_.prompt_tokens + text.tokens);
  }
  return fmt::format(
      R"({{"id":{},"object":"response","created_at":{},"status":"{}","error":null,"incomplete_details":{},)"
      R"("instructions":{},"max_output_tokens":{},"metadata":{{}},"model":{},"output":[{}],"parallel_tool_calls":{},)"
      R"("previous_response_id":null,"store":false,"temperature":{},"text":{{"format":{}}},)"
      R"("tool_choice":{},"tools":[],"top_p":{},"truncation":"disabled","usage":{}}})",
      json_quote(id_), created_, status, incomplete,
      prepared_.request.instructions ? json_quote(*prepared_.request.instructions) : "null",
      limit ? std::to_string(*limit) : "null", json_quote(prepared_.model), output,
      has_tools && prepared_.request.parallel_tool_calls, sequence.sampling.temperature, format_json(prepared_.request),
      choice_json(prepared_.request), sequence.sampling.top_p, usage);
}

std::string ResponsesForm::begin(size_t, const Texts&) {
  const std::string response = R"("response":)" + response_json("in_progress", nullptr);
  std::string events = event("response.created", response);
  events += event("response.in_progress", response);
  return events;
}

std::string ResponsesForm::item_begin(const AnswerText& text) {
  const size_t number = num_begun_++;
  is_open_ = true;
  std::string events = event("response.output_item.added",
                             fmt::format(R"("output_index":{},"item":{})", number, item_json(text, number, false)));
  if (item_of(text, number).kind == Kind::content)
    events += event("response.content_part.added", where(text, number) + R"(,"part":)" + part_json(""));
  return events;
}

std::string ResponsesForm::item_end(const AnswerText& text) {
  if (!std::exchange(is_open_, false)) return "";
  const size_t number = num_begun_ - 1;
  const AnswerItem& item = item_of(text, number);
  const std::string at = where(text, number), quoted = json_quote(item.text);
  std::string events;
  if (item.kind == Kind::call) {
    events = event("response.function_call_arguments.done",
                   fmt::format(R"({},"name":{},"arguments":{})", at, json_quote(item.name), quoted));
  } else if (item.kind == Kind::reasoning) {
    events = event("response.reasoning_text.done", fmt::format(R"({},"text":{})", at, quoted));
  } else {
    events = event("response.output_text.done", fmt::format(R"({},"text":{},"logprobs":[])", at, quoted));
    events += event("response.content_part.done", at + R"(,"part":)" + part_json(item.text));
  }
  events += event("response.output_item.done",
                  fmt::format(R"("output_index":{},"item":{})", number, item_json(text, number, true)));
  return events;
}

std::string ResponsesForm::part(size_t, const AnswerPiece& piece, const std::vector<TokenLogprob>&,
                                const Texts& texts) {
  const AnswerText& text = texts.front();
  if (piece.kind == Kind::call_end) return item_end(text);
  std::string events;
  if (num_begun_ < text.items.size()) {
    events = item_end(text);
    events += item_begin(text);
  }
  const std::string delta = fmt::format(R"({},"delta":{})", where(text, num_begun_ - 1), json_quote(piece.text));
  if (piece.kind == Kind::content)
    events += event("response.output_text.delta", delta + R"(,"logprobs":[])");
  else if (piece.kind == Kind::reasoning)
    events += event("response.reasoning_text.delta", delta);
  else if (piece.kind == Kind::arguments)
    events += event("response.function_call_arguments.delta", delta);
  return events;
}

std::string ResponsesForm::end(size_t, const Texts& texts) {
  const AnswerText& text = texts.front();
  std::string events = num_begun_ ? "" : item_begin(text);
  events += item_end(text);
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
