#include "tools/load_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <random>
#include <string_view>

#include "megalith/base/error.h"
#include "megalith/base/json_quote.h"
#include "megalith/model/json.h"
#include "tools/terminal.h"

namespace megalith::tools {

namespace {

constexpr size_t kMaxPromptFile = size_t{1} << 30;
constexpr int64_t kMaxPlannedTokens = 500'000'000;  // some 3 GB of bodies
constexpr int64_t kMaxPromptId = (int64_t{1} << 31) - 1;
// Below it many vocabularies have special tokens.
constexpr int64_t kLeastTokenId = 10;

// Words of a token each in most vocabularies. A chat has no token ids.
constexpr const char* kWords[] = {
    "time",  "year",   "people", "way",   "day",   "man",  "thing", "woman", "life",  "child",  "world",
    "house", "hand",   "part",   "place", "case",  "week", "work",  "night", "point", "home",   "water",
    "room",  "mother", "area",   "money", "story", "fact", "month", "lot",   "right", "study",  "book",
    "eye",   "job",    "word",   "side",  "kind",  "head", "far",   "black", "long",  "little", "good",
    "new",   "first",  "last",   "great", "old",   "big",  "high",  "small", "large", "next",   "early",
    "young", "few",    "same",   "able",  "light", "king", "tree",  "road",  "river"};

// Of the standard library the engine alone is the same everywhere; the distributions are not.
class Draw {
 public:
  Draw(int64_t seed, int64_t series)
      : engine_(static_cast<uint64_t>(seed) * 0x9E3779B97F4A7C15 + static_cast<uint64_t>(series)) {}

  int64_t between(int64_t least, int64_t most) {  // to be exact to 1e-10 is enough for numbers of tokens
    return least + static_cast<int64_t>(engine_() % static_cast<uint64_t>(most - least + 1));
  }
  /// In (0, 1].
  double uniform() { return (static_cast<double>(engine_() >> 11) + 1) * 0x1p-53; }
  double normal() {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }
  /// Of mean `shape` (Marsaglia and Tsang, A Simple Method for Generating Gamma Variables, 2000).
  double gamma(double shape) {
    if (shape < 1) return gamma(shape + 1) * std::pow(uniform(), 1 / shape);
    const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
    while (true) {
      const double x = normal(), root = 1 + c * x, v = root * root * root;
      if (v > 0 && std::log(uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
    }
  }

 private:
  std::mt19937_64 engine_;
};

int64_t length_of(Draw& draw, int64_t middle, double ratio, int64_t least) {
  const auto half = ratio * static_cast<double>(middle);
  const auto low = static_cast<int64_t>(std::floor(static_cast<double>(middle) - half)),
             high = static_cast<int64_t>(std::ceil(static_cast<double>(middle) + half));
  return draw.between(std::max(low, least), std::max(high, least));
}

// A list of token ids, or words in quotes.
std::string random_prompt(Draw& prefix, int64_t prefix_len, Draw& own, int64_t length, const LoadPlan& plan) {
  fmt::memory_buffer text;
  const auto add = [&](Draw& draw) {
    if (plan.is_chat)
      fmt::format_to(std::back_inserter(text), "{}{}", text.size() ? " " : "",
                     kWords[draw.between(0, std::ssize(kWords) - 1)]);
    else
      fmt::format_to(std::back_inserter(text), "{}{}", text.size() ? "," : "",
                     draw.between(std::min(kLeastTokenId, plan.vocab_size - 1), plan.vocab_size - 1));
  };
  for (int64_t i = 0; i < prefix_len; ++i) add(prefix);
  for (int64_t i = 0; i < length; ++i) add(own);
  return plan.is_chat ? fmt::format("\"{}\"", fmt::to_string(text)) : fmt::format("[{}]", fmt::to_string(text));
}

// "{...," with all but the prompt and the number of tokens.
std::string common_body(const LoadPlan& plan) {
  nlohmann::ordered_json body = {{"model", plan.model},
                                 {"stream", true},
                                 {"stream_options", {{"include_usage", true}, {"continuous_usage_stats", true}}},
                                 {"temperature", 0}};
  if (plan.ignore_eos) body["ignore_eos"] = true;
  if (!plan.extra_body.empty()) body.update(nlohmann::ordered_json::parse(plan.extra_body));
  std::string text = body.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  text.back() = ',';
  return text;
}

std::vector<double> due_times(const LoadPlan& plan, int64_t count) {
  std::vector<double> due(static_cast<size_t>(count), 0);
  if (!plan.rate || count == 0) return due;
  Draw draw(plan.seed, -1);
  double sum = 0;
  for (double& ms : due) ms = sum += draw.gamma(plan.burstiness);
  // As in vLLM's benchmark: all of them together have the rate that was asked for.
  const double scale = sum > 0 ? static_cast<double>(count) / *plan.rate * 1e3 / sum : 0;
  for (double& ms : due) ms *= scale;
  return due;
}

}  // namespace

std::vector<PromptLine> read_prompts(const std::string& path, bool is_chat) {
  const std::string text = read_input(path, kMaxPromptFile), name = path == "-" ? "stdin" : path;
  std::vector<PromptLine> prompts;
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const JsonFile file = JsonFile::parse(line, fmt::format("line {} of {}", number, name));
    if (!file.root().is_object()) file.root().fail("is " + file.root().excerpt() + R"(, want {"prompt": "..."})");
    const JsonValue prompt = file.root().at("prompt");
    PromptLine& one = prompts.emplace_back();
    if (const auto tokens = file.root().find("output_tokens")) one.output_tokens = tokens->integer(1, 1 << 20);
    if (prompt.is_array()) {
      if (is_chat)
        prompt.fail("is a list, and a chat takes no token ids: want a string, or --endpoint /v1/completions");
      std::vector<int64_t> ids;
      prompt.each_element([&](const JsonValue& id) { ids.push_back(id.integer(0, kMaxPromptId)); });
      if (ids.empty()) prompt.fail("is empty, want token ids");
      one.size = std::ssize(ids);
      one.prompt = fmt::format("[{}]", fmt::join(ids, ","));
    } else {
      one.prompt = json_quote(prompt.string());
    }
  }
  MEGALITH_CHECK(!prompts.empty(), R"({} has no prompts: want lines of {{"prompt": "..."}})", name);
  return prompts;
}

void LoadPlan::check() const {
  if (extra_body.empty()) return;
  const JsonFile file = JsonFile::parse(extra_body, "--extra-body");
  const JsonValue root = file.root();
  if (!root.is_object()) root.fail("is " + root.excerpt() + ", want a JSON object");
  for (const char* name : {"prompt", "messages", "max_tokens", "max_completion_tokens"})
    if (root.has(name)) root.fail(fmt::format("has \"{}\", which has options of its own here", name));
  for (const char* name : {"n", "best_of"})
    if (const auto value = root.find(name))
      (void)value->integer(1, 1);  // tokens of several answers would be taken for one's
  MEGALITH_CHECK(nlohmann::json::accept(extra_body), "--extra-body has a NaN or an Infinity, which are no JSON");
  if (const auto stream = root.find("stream"); stream && !(stream->is_boolean() && stream->boolean()))
    stream->fail("is " + stream->excerpt() + ", and times are measured on streams: leave it out");
}

std::vector<LoadRequest> LoadPlan::requests(int64_t count, int64_t series, int64_t first) const {
  const double most = (1 + range_ratio) * static_cast<double>(input_len) + static_cast<double>(prefix_len);
  MEGALITH_CHECK(!prompts.empty() || most * static_cast<double>(count) <= kMaxPlannedTokens,
                 "{} prompts of {:.0f} tokens do not fit into the client's memory: give fewer (--num-prompts)", count,
                 most);
  const std::string common = common_body(*this);
  const std::vector<double> due = due_times(*this, count);
  Draw draw(seed, series);
  std::vector<LoadRequest> requests;
  for (int64_t i = 0; i < count; ++i) {
    LoadRequest request{.body = common, .due_ms = due[static_cast<size_t>(i)]};
    std::string prompt;
    if (prompts.empty()) {
      Draw prefix(seed, -2);
      const int64_t length = length_of(draw, input_len, range_ratio, prefix_len > 0 ? 0 : 1);
      request.asked_tokens = length_of(draw, output_len, range_ratio, 1);
      request.prompt_tokens = prefix_len + length;
      prompt = random_prompt(prefix, prefix_len, draw, length, *this);
    } else {
      const PromptLine& line = prompts[static_cast<size_t>((first + i) % std::ssize(prompts))];
      request.asked_tokens = line.output_tokens.value_or(output_len);
      request.prompt_tokens = line.size.value_or(0);
      prompt = line.prompt;
    }
    request.body += is_chat ? fmt::format(R"("messages":[{{"role":"user","content":{}}}],"max_completion_tokens":{}}})",
                                          prompt, request.asked_tokens)
                            : fmt::format(R"("prompt":{},"max_tokens":{}}})", prompt, request.asked_tokens);
    requests.push_back(std::move(request));
  }
  return requests;
}

}  // namespace megalith::tools
