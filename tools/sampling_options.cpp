#include "tools/sampling_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <random>
#include <string_view>
#include <utility>

#include "megalith/base/log.h"
#include "megalith/engine/engine.h"
#include "tools/command.h"

namespace megalith::tools {

namespace {

// More than any context holds.
constexpr int64_t kMaxNewTokens = 1 << 24;
constexpr int64_t kDrawSeed = -1;
constexpr int64_t kMaxTokenId = std::numeric_limits<int>::max();

// "42=-1.5": a token, and its bias.
std::pair<int, float> bias_of(const std::string& text) {
  const size_t middle = text.find('=');
  int token = -1;
  float bias = 0;
  const auto is_read = [](std::string_view part, auto& number) {
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    return !part.empty() && error == std::errc() && end == part.data() + part.size();
  };
  const std::string_view all = text;
  if (middle == std::string::npos || !is_read(all.substr(0, middle), token) || token < 0 ||
      !is_read(all.substr(middle + 1), bias))
    throw UsageError{fmt::format("--logit-bias is \"{}\", want a token's id and its bias, such as 42=-1.5", text)};
  return {token, bias};
}

}  // namespace

void SamplingOptions::declare(Arguments& arguments) {
  arguments.group("Generation (what is not given is as generation_config.json says)");
  arguments.integer(
      "-n,--max-new-tokens,--predict,--n-predict", max_new_tokens,
      fmt::format("tokens to make at most ({}); -1: until the text ends or the context is full", max_new_tokens), 1,
      kMaxNewTokens, kMaxNewTokens);
  declare_drawing(arguments);
  arguments.texts("--stop", stops, "TEXT", "stop string: ends the output before it; may be given several times");
  arguments.integers("--stop-token-ids", stop_token_ids, "tokens that end the text, beside the model's", 0,
                     kMaxTokenId);
  arguments.flag("--ignore-eos", ignore_eos, "go on where the model would stop");
  arguments.integer("--min-tokens,--min-new-tokens", min_tokens, "before so many new tokens nothing ends the text", 0,
                    kMaxNewTokens);
  arguments.texts("--logit-bias", logit_biases, "ID=BIAS",
                  "added to the logit of a token, -100 to 100; may be given several times");
  arguments.integers("--allowed-token-ids", allowed_token_ids, "the tokens that alone may come", 0, kMaxTokenId);
  arguments.flag("--show-special", show_special, "show special tokens, and the one that ends the text");
}

void SamplingOptions::declare_drawing(Arguments& arguments) {
  arguments.number("--temp,--temperature", temperature, "0: greedy, the token with the largest logit", 0, 99);
  arguments.integer("--top-k", top_k, "sample among the k likeliest tokens; 0 or -1: all", 0, 1 << 24, 0);
  arguments.number("--top-p", top_p, "sample among the most probable tokens that reach this probability together", 1e-6,
                   1);
  arguments.number("--min-p", min_p, "and among those with at least this share of the largest probability", 0, 1);
  arguments.number("--repetition-penalty,--repeat-penalty", repetition_penalty,
                   "above 1: tokens of the sequence so far, prompt included, become less probable", 0.01, 100);
  arguments.number("--presence-penalty", presence_penalty, "the same for tokens made already, by subtraction", -100,
                   100);
  arguments.number("--frequency-penalty", frequency_penalty, "and for each time that they were made", -100, 100);
  arguments.integer("-s,--seed", seed,
                    fmt::format("the same seed gives the same text ({}); -1: another one each time",
                                seed ? fmt::format("{}", *seed) : "random; shown by -v"),
                    0, std::numeric_limits<int64_t>::max(), kDrawSeed);
}

GenerationConfig SamplingOptions::makers_wishes(const std::string& folder) {
  GenerationConfig theirs = generation_config_read(folder);
  if (!theirs.unsupported.empty())
    log_warn("{}: {}: not supported, and ignored", theirs.file, fmt::join(theirs.unsupported, ", "));
  return theirs;
}

engine::TextOptions SamplingOptions::text_options(const GenerationConfig& theirs, const engine::Engine& engine) const {
  engine::TextOptions options{.stops = stops, .show_special = show_special, .min_tokens = min_tokens};
  options.stop_tokens.assign(stop_token_ids.begin(), stop_token_ids.end());
  if (!ignore_eos) {
    options.stops.insert(options.stops.end(), theirs.stop_strings.begin(), theirs.stop_strings.end());
    options.stop_tokens.insert(options.stop_tokens.end(), engine.stop_tokens().begin(), engine.stop_tokens().end());
  }
  std::ranges::sort(options.stop_tokens);
  return options;
}

engine::Request SamplingOptions::request(std::vector<int> prompt, const engine::Sampling& sampling) const {
  engine::Request request{std::move(prompt), max_new_tokens, sampling, ignore_eos};
  request.stop_token_ids.assign(stop_token_ids.begin(), stop_token_ids.end());
  request.allowed_token_ids.assign(allowed_token_ids.begin(), allowed_token_ids.end());
  request.min_tokens = min_tokens;
  for (const std::string& text : logit_biases)
    if (const auto [token, bias] = bias_of(text); !request.logit_bias.emplace(token, bias).second)
      throw UsageError{fmt::format("--logit-bias names the token {} twice", token)};
  return request;
}

engine::Sampling SamplingOptions::over(const GenerationConfig& theirs) const {
  engine::Sampling sampling;
  // A temperature given is a wish to sample; otherwise the model's makers decide.
  sampling.temperature = static_cast<float>(temperature.value_or(theirs.do_sample ? theirs.temperature : 0));
  sampling.top_p = static_cast<float>(top_p.value_or(theirs.do_sample ? theirs.top_p : 1));
  sampling.top_k = static_cast<int>(top_k.value_or(theirs.do_sample ? theirs.top_k : 0));
  sampling.min_p = static_cast<float>(min_p.value_or(theirs.do_sample ? theirs.min_p : 0));
  sampling.repetition_penalty = static_cast<float>(repetition_penalty.value_or(theirs.repetition_penalty));
  sampling.presence_penalty = static_cast<float>(presence_penalty.value_or(theirs.presence_penalty));
  sampling.frequency_penalty = static_cast<float>(frequency_penalty.value_or(theirs.frequency_penalty));
  if (seed.value_or(kDrawSeed) != kDrawSeed) {
    sampling.seed = static_cast<uint64_t>(*seed);
  } else {
    std::random_device device;
    sampling.seed = device();  // 32 bits, easy to type again
  }
  log_info("temperature {}, top-p {}, top-k {}, seed {}, min-p {}, penalties: repetition {}, presence {}, frequency {}",
           sampling.temperature, sampling.top_p, sampling.top_k, sampling.seed, sampling.min_p,
           sampling.repetition_penalty, sampling.presence_penalty, sampling.frequency_penalty);
  return sampling;
}

}  // namespace megalith::tools
