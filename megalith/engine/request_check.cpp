#include "megalith/engine/request_check.h"

#include <algorithm>
#include <set>
#include <utility>

#include "megalith/base/error.h"

namespace megalith::engine {

namespace {

void check_sampling(const Sampling& s) {
  MEGALITH_CHECK(s.temperature >= 0 && s.temperature < 100, "the temperature is {}, want 0 to 100", s.temperature);
  MEGALITH_CHECK(s.top_p > 0 && s.top_p <= 1, "top-p is {}, want more than 0 and at most 1", s.top_p);
  MEGALITH_CHECK(s.top_k >= 0, "top-k is {}, want 0 (all) or more", s.top_k);
  MEGALITH_CHECK(s.min_p >= 0 && s.min_p <= 1, "min-p is {}, want 0 to 1", s.min_p);
  MEGALITH_CHECK(s.repetition_penalty > 0 && s.repetition_penalty <= 100,
                 "the repetition penalty is {}, want more than 0 and at most 100; 1 changes nothing",
                 s.repetition_penalty);
  for (const auto& [name, value] : {std::pair("presence", s.presence_penalty), {"frequency", s.frequency_penalty}})
    MEGALITH_CHECK(value >= -100 && value <= 100, "the {} penalty is {}, want -100 to 100; 0 changes nothing", name,
                   value);
}

void check_token(int token, const char* option, int64_t vocabulary) {
  MEGALITH_CHECK(token >= 0 && token < vocabulary, "{} names the token {}, but the vocabulary has {} tokens", option,
                 token, vocabulary);
}

// Which tokens may come, and when.
void check_tokens(const Request& request, int64_t vocabulary, const std::vector<int>& stop_tokens) {
  MEGALITH_CHECK(request.stop_token_ids.size() <= size_t{batch::kMaxOwnStops},
                 "stop_token_ids has {} tokens, want at most {}", request.stop_token_ids.size(), batch::kMaxOwnStops);
  for (const int token : request.stop_token_ids) check_token(token, "stop_token_ids", vocabulary);
  MEGALITH_CHECK(request.min_tokens >= 0 && request.min_tokens <= request.max_new_tokens,
                 "min_tokens is {}, want 0 to the {} new tokens that the request may have at most", request.min_tokens,
                 request.max_new_tokens);
  MEGALITH_CHECK(request.logit_bias.size() <= size_t{batch::kMaxBiases}, "logit_bias names {} tokens, want at most {}",
                 request.logit_bias.size(), batch::kMaxBiases);
  for (const auto& [token, bias] : request.logit_bias) {
    check_token(token, "logit_bias", vocabulary);
    MEGALITH_CHECK(bias >= -100 && bias <= 100, "logit_bias of the token {} is {}, want -100 to 100; 0 changes nothing",
                   token, bias);
  }
  const int64_t most_top = std::min<int64_t>(batch::kMaxTop, vocabulary);
  for (const auto& [name, count] :
       {std::pair("top_logprobs", request.top_logprobs), {"prompt_logprobs", request.prompt_logprobs.value_or(0)}})
    MEGALITH_CHECK(count >= 0 && count <= most_top, "{} is {}, want 0 to {}", name, count, most_top);
  MEGALITH_CHECK(!request.prompt_logprobs || request.cached_tokens == 0,
                 "prompt_logprobs is {}, but {} tokens of the prompt are taken for cached without being worked through",
                 request.prompt_logprobs.value_or(0), request.cached_tokens);
  const std::set<int> allowed(request.allowed_token_ids.begin(), request.allowed_token_ids.end());
  MEGALITH_CHECK(allowed.size() <= size_t{batch::kMaxBiases}, "allowed_token_ids names {} tokens, want at most {}",
                 allowed.size(), batch::kMaxBiases);
  for (const int token : allowed) check_token(token, "allowed_token_ids", vocabulary);
  size_t bad_tokens = 0;
  for (const std::vector<int>& word : request.bad_words) {
    MEGALITH_CHECK(!word.empty(), "bad_words has one without tokens, want at least one token in each");
    for (const int token : word) check_token(token, "bad_words", vocabulary);
    bad_tokens += word.size();
  }
  const size_t biases = allowed.empty() ? request.logit_bias.size() : allowed.size();
  MEGALITH_CHECK(biases + bad_tokens <= size_t{batch::kMaxBiases},
                 "bad_words has {} tokens beside {} of {}, want at most {} together: name fewer or shorter words",
                 bad_tokens, biases, allowed.empty() ? "logit_bias" : "allowed_token_ids", batch::kMaxBiases);
  const auto is_bad = [&](int token) { return std::ranges::count(request.bad_words, std::vector{token}) > 0; };
  MEGALITH_CHECK(allowed.empty() || !std::ranges::all_of(allowed, is_bad),
                 "each token that allowed_token_ids names is one of bad_words: allow another one");
  const auto ends = [&](int token) { return ends_request(request, stop_tokens, token); };
  MEGALITH_CHECK(allowed.empty() || request.min_tokens == 0 || !std::ranges::all_of(allowed, ends),
                 "min_tokens is {}, but each token that allowed_token_ids names ends the request: allow another one",
                 request.min_tokens);
}

// A grammar and something else that leaves tokens out could leave none, and a grammar says itself where a sequence ends.
void check_grammar(const Request& request, const std::vector<int>& stop_tokens) {
  if (!request.grammar) return;
  MEGALITH_CHECK(request.min_tokens == 0, "min_tokens is {} beside a grammar, which says itself where a sequence ends",
                 request.min_tokens);
  MEGALITH_CHECK(request.allowed_token_ids.empty(),
                 "allowed_token_ids names {} tokens beside a grammar: want one of them",
                 request.allowed_token_ids.size());
  MEGALITH_CHECK(request.bad_words.empty(), "bad_words names {} words beside a grammar: want one of them",
                 request.bad_words.size());
  MEGALITH_CHECK(!ends_of(request, stop_tokens).empty(), "a grammar needs a token that ends the sequence, but {}",
                 request.ignore_stop_tokens ? "those of the model are ignored" : "this model names none");
}

}  // namespace

void check_batch(const std::vector<Request>& requests, const ModelConfig& config, const DecoderOptions& decoder,
                 const std::vector<int>& stop_tokens, bool dummy_weights) {
  MEGALITH_CHECK(!requests.empty(), "there is no prompt to continue");
  MEGALITH_CHECK(static_cast<int64_t>(requests.size()) <= decoder.max_requests,
                 "{} prompts in one batch, but the kernel was compiled for {} (--max-batch)", requests.size(),
                 decoder.max_requests);
  int64_t pages = 0;
  for (size_t r = 0; r < requests.size(); ++r) {
    const Request& request = requests[r];
    const auto length = static_cast<int64_t>(request.prompt.size());
    MEGALITH_CHECK(length > 0, "prompt {} is empty: give at least one token", r + 1);
    MEGALITH_CHECK(length < decoder.max_seq_len,
                   "prompt {} has {} tokens, but a sequence may have {} (--max-seq-len) and needs room for one more",
                   r + 1, length, decoder.max_seq_len);
    MEGALITH_CHECK(request.max_new_tokens >= 1, "request {} asks for {} new tokens, want at least 1", r + 1,
                   request.max_new_tokens);
    MEGALITH_CHECK(request.cached_tokens == 0 || dummy_weights,
                   "request {} takes {} tokens for cached without working through them, which makes sense only for "
                   "dummy weights (--load-format dummy)",
                   r + 1, request.cached_tokens);
    MEGALITH_CHECK(request.cached_tokens >= 0 && request.cached_tokens < length,
                   "request {} takes {} tokens for cached, want 0 to {}: the last one of the prompt is worked through",
                   r + 1, request.cached_tokens, length - 1);
    for (int token : request.prompt)
      MEGALITH_CHECK(token >= 0 && token < config.vocab_size,
                     "prompt {} contains the token {}, but the vocabulary has {} tokens", r + 1, token,
                     config.vocab_size);
    check_sampling(request.sampling);
    check_tokens(request, config.vocab_size, stop_tokens);
    check_grammar(request, stop_tokens);
    pages += pages_needed(decoder, request);
  }
  MEGALITH_CHECK(pages <= decoder.num_pages(),
                 "the prompts and what shall be made of them take {} KV pages of {} tokens, but there are {} "
                 "(--num-pages): make fewer tokens, or give more pages",
                 pages, decoder.page_size, decoder.num_pages());
}

}  // namespace megalith::engine
