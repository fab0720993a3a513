#include "megalith/serve/llama_form.h"

#include <fmt/format.h>

#include <algorithm>

#include "megalith/base/json_quote.h"

namespace megalith::serve {

using Kind = AnswerPiece::Kind;

namespace {

std::string ids_json(const std::vector<TokenLogprob>& tokens) {
  std::string list;
  for (const TokenLogprob& one : tokens) list += fmt::format("{}{}", list.empty() ? "" : ",", one.token);
  return "[" + list + "]";
}

std::string probability_json(int token, const std::string& bytes, float logprob) {
  std::string list;
  for (const char byte : bytes)
    list += fmt::format("{}{}", list.empty() ? "" : ",", static_cast<unsigned>(static_cast<unsigned char>(byte)));
  return fmt::format(R"("id":{},"token":{},"bytes":[{}],"logprob":{})", token, json_quote(bytes), list, logprob);
}

const char* stop_type(const AnswerText& text) {
  return text.finish == "length" ? "limit" : !text.stop_word.empty() ? "word" : text.finish == "stop" ? "eos" : "none";
}

}  // namespace

// Samplers that this server does not have are said to do nothing.
std::string settings_json(const engine::Sampling& sampling, int64_t max_tokens, int64_t seed) {
  return fmt::format(
      R"({{"n_predict":{},"max_tokens":{},"seed":{},"temperature":{},"top_k":{},"top_p":{},"min_p":{},)"
      R"("repeat_penalty":{},"repeat_last_n":-1,"presence_penalty":{},"frequency_penalty":{},"dynatemp_range":0.0,)"
      R"("typical_p":1.0,"xtc_probability":0.0,"dry_multiplier":0.0,"mirostat":0,"adaptive_target":-1.0,)"
      R"("adaptive_decay":0.0}})",
      max_tokens, max_tokens, seed, sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p,
      sampling.repetition_penalty, sampling.presence_penalty, sampling.frequency_penalty);
}

std::string LlamaForm::probabilities_json(const std::vector<TokenLogprob>& logprobs) const {
  if (!prepared_.request.logprobs) return "";
  std::string list;
  for (const TokenLogprob& one : logprobs) {
    std::string top;
    for (const TopLogprob& other : one.top)
      top += fmt::format("{}{{{}}}", top.empty() ? "" : ",", probability_json(other.token, other.bytes, other.logprob));
    list += fmt::format(R"({}{{{},"top_logprobs":[{}]}})", list.empty() ? "" : ",",
                        probability_json(one.token, one.bytes, one.logprob.value_or(0)), top);
  }
  return R"(,"completion_probabilities":[)" + list + "]";
}

std::string LlamaForm::part(size_t index, const AnswerPiece& piece, const std::vector<TokenLogprob>& logprobs,
                            const Texts& texts) {
  const AnswerText& text = texts[index];
  const auto prompt = static_cast<int64_t>(prepared_.sequences[index].prompt.size());
  return fmt::format(
      "data: {{\"index\":{},\"content\":{},\"tokens\":{},\"stop\":false,\"tokens_predicted\":{},"
      "\"tokens_evaluated\":{}{}{}}}\n\n",
      index, json_quote(piece.text), ids_json(logprobs), text.tokens, prompt, probabilities_json(logprobs),
      prepared_.request.timings_per_token
          ? ",\"timings\":" + timings_json(text.times, prompt, text.cached_tokens, text.tokens)
          : "");
}

std::string LlamaForm::result_json(size_t index, const AnswerText& text, bool is_whole) const {
  const engine::Request& sequence = prepared_.sequences[index];
  const GenerationRequest& request = prepared_.request;
  const auto prompt = static_cast<int64_t>(sequence.prompt.size());
  const std::string content = is_whole ? text.text(Kind::content) : "";
  const std::string tokens = is_whole && request.return_tokens ? ids_json(text.logprobs) : "[]";
  const bool is_cut = text.finish == "length" && prompt + text.tokens >= prepared_.max_seq_len;
  return fmt::format(
      R"({{"index":{},"content":{},"tokens":{},"stop":true,"model":{},"tokens_predicted":{},"tokens_evaluated":{},)"
      R"("tokens_cached":{},"generation_settings":{},"prompt":{},"has_new_line":{},"truncated":{},"stop_type":"{}",)"
      R"("stopping_word":{},"timings":{}{}}})",
      index, json_quote(content), tokens, json_quote(prepared_.model), text.tokens, prompt, prompt + text.tokens,
      settings_json(sequence.sampling, sequence.max_new_tokens, static_cast<int64_t>(sequence.sampling.seed)),
      json_quote(prepared_.prompt_texts[index / static_cast<size_t>(request.n)]), text.has_new_line, is_cut,
      stop_type(text), json_quote(text.stop_word), timings_json(text.times, prompt, text.cached_tokens, text.tokens),
      is_whole ? probabilities_json(text.logprobs) : "");
}

std::string LlamaForm::end(size_t index, const Texts& texts) {
  return fmt::format("data: {}\n\n", result_json(index, texts[index], false));
}

std::string LlamaForm::error(const std::string& error) { return fmt::format("data: {}\n\n", error); }

std::string LlamaForm::body(const Texts& texts) {
  std::string list;
  for (size_t i = 0; i < texts.size(); ++i) list += (i ? "," : "") + result_json(i, texts[i], true);
  return texts.size() == 1 ? list : "[" + list + "]";
}

}  // namespace megalith::serve
