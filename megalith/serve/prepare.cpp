#include "megalith/serve/prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "megalith/base/error.h"
#include "megalith/base/random_hex.h"
#include "megalith/engine/bad_words.h"
#include "megalith/serve/api_error.h"
#include "megalith/serve/call_grammar.h"

namespace megalith::serve {

namespace {

// OpenAI's default for completions.
constexpr int64_t kCompletionTokens = 16;

uint64_t random_seed() {
  std::random_device device;
  return device();
}

void check_prompt(const ServedModel& model, const GenerationRequest& request, const std::vector<int>& tokens) {
  const char* field = prompt_member(request.api);
  if (tokens.empty()) throw ApiError::invalid("the prompt is empty, want at least one token", field);
  for (const int token : tokens)
    if (token < 0 || token >= model.vocab_size)
      throw ApiError::invalid(
          fmt::format("the prompt has the token id {}, but the vocabulary has {}", token, model.vocab_size), field);
  const auto length = static_cast<int64_t>(tokens.size());
  if (length >= model.max_seq_len)
    throw ApiError(400, "exceed_context_size_error",
                   fmt::format("the prompt has {} tokens and exceeds the available context size: a sequence may have "
                               "{}, and needs room for one more. Shorten it, or start the server with a larger "
                               "--max-seq-len",
                               length, model.max_seq_len),
                   field)
        .with("n_prompt_tokens", std::to_string(length))
        .with("n_ctx", std::to_string(model.max_seq_len));
}

std::vector<int> tokens_of(const ServedModel& model, const GenerationRequest& request, const Prompt& prompt) {
  bool add_special = request.add_special_tokens.value_or(true);
  if (const auto* ids = std::get_if<std::vector<int>>(&prompt)) return *ids;
  if (const auto* text = std::get_if<std::string>(&prompt)) return model.encode(*text, add_special);
  std::vector<int> tokens;
  for (const auto& part : std::get<MixedPrompt>(prompt).parts) {
    const auto* ids = std::get_if<std::vector<int>>(&part);
    const std::vector<int> more = ids ? *ids : model.encode(std::get<std::string>(part), add_special);
    tokens.insert(tokens.end(), more.begin(), more.end());
    add_special = false;  // of the text's beginning
  }
  return tokens;
}

std::string text_of(const ServedModel& model, const Prompt& prompt, const std::vector<int>& tokens) {
  const auto* text = std::get_if<std::string>(&prompt);
  return text ? *text : model.decode(tokens);
}

// Tokens that a request names beside its prompt.
void check_tokens(const ServedModel& model, const GenerationRequest& request) {
  const auto check = [&](int token, const char* field) {
    if (token >= model.vocab_size)
      throw ApiError::invalid(
          fmt::format("\"{}\" names the token id {}, but the vocabulary has {}", field, token, model.vocab_size),
          field);
  };
  for (const int token : request.stop_token_ids) check(token, "stop_token_ids");
  for (const auto& [token, bias] : request.logit_bias) check(token, "logit_bias");
  for (const int token : request.allowed_token_ids) check(token, "allowed_token_ids");
}

std::vector<std::vector<int>> bad_words_of(const ServedModel& model, const GenerationRequest& request) {
  if (request.bad_words.empty()) return {};
  if (!model.tokenizer)
    throw ApiError::invalid("this model has no tokenizer.json, and knows no words: use \"logit_bias\"", "bad_words");
  try {
    return engine::bad_word_tokens(*model.tokenizer, request.bad_words);
  } catch (const UserError& error) { throw ApiError::invalid(error.what(), "bad_words"); }
}

// Which parts the answers of a request have.
AnswerSyntax syntax_of(const ServedModel& model, const GenerationRequest& request) {
  if (has_prompts(request.api)) return {};
  AnswerSyntax syntax = model.syntax;
  if (request.tools.empty()) {
    syntax.calls = CallFormat::none;
  } else if (syntax.calls == CallFormat::none) {
    throw ApiError::unsupported(
        fmt::format(
            "\"tools\" are given, but the chat template of this model shows no calls in a form that this server "
            "knows: leave them out, or start the server with --tool-call-parser, which is one of {}",
            fmt::join(call_format_names(), ", ")),
        "tools");
  }
  return syntax;
}

engine::TextOptions text_options(const ServedModel& model, const GenerationRequest& request,
                                 const AnswerSyntax& syntax) {
  engine::TextOptions options{
      .stops = request.stops, .show_special = !request.skip_special_tokens, .min_tokens = request.min_tokens};
  if (model.tokenizer) options.shown_special = marker_tokens(*model.tokenizer, answer_markers(syntax));
  if (request.ignore_eos) return options;
  options.stops.insert(options.stops.end(), model.stops.begin(), model.stops.end());
  options.stop_tokens = model.stop_tokens;
  return options;
}

// The grammar of the answers, compiled, which begins behind their reasoning.
grammar::GrammarUse grammar_of(const ServedModel& model, const GenerationRequest& request, const AnswerSyntax& syntax,
                               bool begins_reasoning) {
  const auto source = answer_grammar(model, request, syntax);
  if (!source) return {};
  const std::string member = request.grammar ? request.grammar->member : request.must_call ? "tool_choice" : "tools";
  // A wish that needs no grammar, but would have one for the better.
  if (!model.grammars && !request.grammar && !request.must_call) return {};
  if (!model.grammars)
    throw ApiError::unsupported("answers of a given form need a tokenizer, but this model's folder has none", member);
  grammar::GrammarUse use;
  try {
    use.grammar = model.grammars->compile(*source);
  } catch (const UserError& error) { throw ApiError::invalid(fmt::format("\"{}\": {}", member, error.what()), member); }
  if (!syntax.splits_reasoning()) return use;
  const auto marker = [&](const std::string& name) {
    const auto id = model.tokenizer->token_id(name);
    return id && model.tokenizer->is_added(*id) ? *id : -1;
  };
  use.begins_in_reasoning = begins_reasoning;
  use.reasoning_end = syntax.think_end;
  use.end_token = marker(syntax.think_end);
  if (!begins_reasoning) use.reasoning_token = marker(syntax.think_begin);
  return use;
}

}  // namespace

engine::Sampling sampling_of(const SamplingFields& asked, const SamplingFields& otherwise) {
  const auto pick = [&](const auto SamplingFields::*field, auto neutral) {
    return (asked.*field).value_or((otherwise.*field).value_or(neutral));
  };
  engine::Sampling sampling;
  sampling.temperature = static_cast<float>(pick(&SamplingFields::temperature, 1.0));
  sampling.top_p = static_cast<float>(pick(&SamplingFields::top_p, 1.0));
  sampling.min_p = static_cast<float>(pick(&SamplingFields::min_p, 0.0));
  sampling.top_k = static_cast<int>(pick(&SamplingFields::top_k, int64_t{0}));
  sampling.repetition_penalty = static_cast<float>(pick(&SamplingFields::repetition_penalty, 1.0));
  sampling.presence_penalty = static_cast<float>(pick(&SamplingFields::presence_penalty, 0.0));
  sampling.frequency_penalty = static_cast<float>(pick(&SamplingFields::frequency_penalty, 0.0));
  sampling.seed = asked.seed ? *asked.seed : otherwise.seed ? *otherwise.seed : random_seed();
  return sampling;
}

void check_name(const ServedModel& model, const std::optional<std::string>& name) {
  if (!name || model.is_called(*name)) return;
  throw ApiError::not_found(
      fmt::format("there is no model \"{}\" here: this server has {}", *name, fmt::join(model.names, ", ")), "model");
}

bool needs_compiler(const ServedModel& model, const PreparedRequest& prepared) {
  const auto source = answer_grammar(model, prepared.request, prepared.syntax);
  return source && model.grammars && !model.grammars->is_at_hand(*source);
}

void add_grammar(const ServedModel& model, PreparedRequest& prepared) {
  const grammar::GrammarUse use = grammar_of(model, prepared.request, prepared.syntax, prepared.begins_reasoning);
  for (engine::Request& sequence : prepared.sequences) sequence.grammar = use;
}

PreparedRequest prepare(const ServedModel& model, GenerationRequest request) {
  PreparedRequest prepared = prepare_tokens(model, std::move(request));
  add_grammar(model, prepared);
  return prepared;
}

PreparedRequest prepare_tokens(const ServedModel& model, GenerationRequest request) {
  check_name(model, request.model);
  const int64_t count = request.n * static_cast<int64_t>(std::max<size_t>(request.prompts.size(), 1));
  if (count > model.max_sequences)
    throw ApiError::invalid(fmt::format("the request asks for {} answers at once, want at most {} (--max-batch and "
                                        "--max-queue of this server)",
                                        count, model.max_sequences),
                            request.n > 1 ? "n" : "prompt");
  check_tokens(model, request);
  const AnswerSyntax syntax = syntax_of(model, request);
  PreparedRequest prepared{.text = text_options(model, request, syntax),
                           .syntax = syntax,
                           .max_seq_len = model.max_seq_len,
                           .model = request.model.value_or(model.names.front())};
  std::vector<std::vector<int>> prompts;
  if (!has_prompts(request.api)) {
    ChatTokens chat = model.encode(request);
    prompts.push_back(std::move(chat.tokens));
    prepared.begins_reasoning = chat.begins_reasoning;
  }
  for (const Prompt& prompt : request.prompts) prompts.push_back(tokens_of(model, request, prompt));
  engine::Request sequence;
  sequence.sampling = sampling_of(request.sampling, model.sampling);
  sequence.ignore_stop_tokens = request.ignore_eos;
  sequence.stop_token_ids = request.stop_token_ids;
  sequence.min_tokens = request.min_tokens;
  sequence.logit_bias = request.logit_bias;
  for (const auto& [text, bias] : request.text_bias)
    for (const int token : model.encode(text, false)) sequence.logit_bias[token] = bias;
  sequence.allowed_token_ids = request.allowed_token_ids;
  sequence.bad_words = bad_words_of(model, request);
  sequence.logprobs = request.logprobs;
  sequence.top_logprobs = static_cast<int>(std::min<int64_t>(request.top_logprobs, model.vocab_size));
  const int of_echo = request.echo && request.logprobs ? request.top_logprobs : -1;
  if (const int of_prompt = std::max(of_echo, request.prompt_logprobs.value_or(-1)); of_prompt >= 0)
    sequence.prompt_logprobs = static_cast<int>(std::min<int64_t>(of_prompt, model.vocab_size));
  sequence.priority = request.priority;
  sequence.cache_salt = request.cache_prompt ? request.cache_salt : random_hex();  // which nobody else has
  const uint64_t seed = sequence.sampling.seed;
  for (size_t p = 0; p < prompts.size(); ++p) {
    check_prompt(model, request, prompts[p]);
    const auto length = static_cast<int64_t>(prompts[p].size());
    const int64_t room = model.max_seq_len - length;
    const int64_t usual = request.api == Api::completion ? kCompletionTokens : room;
    // The engine makes one in any case, behind which a prompt is worked through.
    const int64_t asked = std::max<int64_t>(request.max_tokens.value_or(model.max_tokens.value_or(usual)), 1);
    sequence.max_new_tokens = std::min(room, asked);
    if (request.min_tokens > sequence.max_new_tokens)
      throw ApiError::invalid(
          fmt::format("\"min_tokens\" is {}, want at most the {} tokens that \"max_tokens\" and the context leave",
                      request.min_tokens, sequence.max_new_tokens),
          "min_tokens");
    const bool is_said = request.echo || request.api == Api::llama;
    const std::string said = is_said ? text_of(model, request.prompts[p], prompts[p]) : "";
    prepared.echoes.push_back(request.echo ? said : "");
    if (request.api == Api::llama) prepared.prompt_texts.push_back(said);
    sequence.prompt = std::move(prompts[p]);
    prepared.prompt_tokens += length;
    for (int64_t i = 0; i < request.n; ++i) {
      sequence.sampling.seed = seed + static_cast<uint64_t>(i);  // another answer each time
      prepared.sequences.push_back(sequence);
    }
  }
  prepared.request = std::move(request);
  return prepared;
}

}  // namespace megalith::serve
