#include "megalith/engine/batch_block.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <string_view>

#include "megalith/engine/page_pool.h"
#include "megalith/runtime/batch.h"

namespace megalith::engine {

// Whoever wants all that there is room for may say so with the largest number: it is bounded before it is added.
int64_t length_limit(const DecoderOptions& options, const Request& request) {
  const auto length = static_cast<int64_t>(request.prompt.size());
  return length + std::min(request.max_new_tokens, options.max_seq_len - length);
}

int64_t pages_needed(const DecoderOptions& options, const Request& request) {
  return (length_limit(options, request) + options.page_size - 1) / options.page_size;
}

int most_top_tokens(const Request& request) {
  return std::max(request.top_logprobs, request.prompt_logprobs.value_or(0));
}

std::vector<TopToken> top_tokens_asked(std::vector<TopToken> top, int count) {
  if (top.size() > static_cast<size_t>(count)) top.resize(static_cast<size_t>(count));
  return top;
}

bool ends_request(const Request& request, const std::vector<int>& stop_tokens, int token) {
  return (!request.ignore_stop_tokens && std::ranges::binary_search(stop_tokens, token)) ||
         std::ranges::find(request.stop_token_ids, token) != request.stop_token_ids.end();
}

std::vector<int> ends_of(const Request& request, const std::vector<int>& stop_tokens) {
  std::vector<int> ends = request.stop_token_ids;
  if (!request.ignore_stop_tokens) ends.insert(ends.end(), stop_tokens.begin(), stop_tokens.end());
  return ends;
}

namespace {

/// Tokens of which the request wants other logits, with what is added to them.
std::map<int, float> biases_of(const Request& request) {
  if (request.allowed_token_ids.empty()) return request.logit_bias;
  std::map<int, float> biases;
  for (const int token : request.allowed_token_ids) {
    const auto bias = request.logit_bias.find(token);
    biases[token] = bias == request.logit_bias.end() ? 0 : bias->second;
  }
  return biases;
}

int64_t bad_tokens(const Request& request) {
  int64_t tokens = 0;
  for (const std::vector<int>& word : request.bad_words) tokens += static_cast<int64_t>(word.size());
  return tokens;
}

void write_logit_edits(const Request& request, int64_t place, const MemoryMap& memory) {
  int32_t* const i32s = memory.get<int32_t>("sampling_i32") + place * batch::kSamplingInts;
  int32_t* const tokens = memory.get<int32_t>("bias_tokens") + place * batch::kMaxBiases;
  float* const values = memory.get<float>("biases") + place * batch::kMaxBiases;
  int32_t count = 0;
  for (const auto& [token, bias] : biases_of(request)) {
    tokens[count] = token;
    values[count++] = bias;
  }
  i32s[batch::kBiases] = count;
  for (const std::vector<int>& word : request.bad_words) {
    std::ranges::copy(word, tokens + count);
    std::fill_n(values + count, word.size(), 0.0F);
    count += static_cast<int32_t>(word.size());
    values[count - 1] = static_cast<float>(word.size());
  }
  i32s[batch::kBadTokens] = count - i32s[batch::kBiases];
  i32s[batch::kMinTokens] =
      static_cast<int32_t>(std::min<int64_t>(request.min_tokens, std::numeric_limits<int32_t>::max()));
  i32s[batch::kExtras] =
      (request.logprobs || request.prompt_logprobs ? batch::kLogprobs : 0) |
      (most_top_tokens(request) > 0 ? batch::kTop : 0) | (count > 0 || request.min_tokens > 0 ? batch::kEdits : 0) |
      (request.allowed_token_ids.empty() ? 0 : batch::kOnly) | (request.grammar ? batch::kMasked : 0);
}

}  // namespace

std::vector<LinePart> sampling_lines(const Request& request) {
  const int64_t biases = static_cast<int64_t>(biases_of(request).size()) + bad_tokens(request);
  return {{"sampling_f32", batch::kSamplingFloats, batch::kSamplingFloats},
          {"sampling_i32", batch::kSamplingInts, batch::kSamplingInts},
          {"own_stops", batch::kMaxOwnStops, request.stop_token_ids.empty() ? 0 : batch::kMaxOwnStops},
          {"bias_tokens", batch::kMaxBiases, biases},
          {"biases", batch::kMaxBiases, biases}};
}

const std::vector<std::string>& batch_block_tensors() {
  static const std::vector<std::string> names = {
      "counts",         "row_token", "row_request",  "row_position", "row_start", "sample_row",
      "sample_request", "requests",  "sampling_f32", "sampling_i32", "history",   "stop",
      "stop_tokens",    "own_stops", "bias_tokens",  "biases",       "page_table"};
  return names;
}

// Three tables fewer are three copies fewer to a GPU in front of each run.
std::vector<std::string> batch_block_changes(const std::vector<Request>& requests) {
  std::vector<std::string> names = batch_block_tensors();
  for (const std::string_view table : {"own_stops", "bias_tokens", "biases"}) {
    const auto is_used = [&](const Request& request) {
      const std::vector<LinePart> parts = sampling_lines(request);
      return std::ranges::any_of(parts, [&](const LinePart& part) { return part.table == table && part.used > 0; });
    };
    if (std::ranges::none_of(requests, is_used)) std::erase(names, table);
  }
  return names;
}

const std::vector<std::string>& row_tensors() {
  static const std::vector<std::string> names = {"counts",         "row_token", "row_request",
                                                 "row_position",   "row_start", "sample_row",
                                                 "sample_request", "requests",  "stop"};
  return names;
}

const task::ChangeTables& change_tables() {
  static const task::ChangeTables tables = {.rows = "row_token",
                                            .samples = "sample_row",
                                            .requests = "requests",
                                            .lines = {"row_token", "sample_row", "draft.token", "draft.drafter_row"},
                                            .stop = "stop",
                                            .laid_out = row_tensors()};
  return tables;
}

runtime::RowTables row_tables(const graph::Graph& graph, const MemoryMap& memory) {
  const auto of = [&](const char* name) { return memory.get<int32_t>(name); };
  const auto size = [&](const char* name, size_t d) { return graph.tensor(graph.find(name)).shape[d].size; };
  return {.num_requests = size("requests", 0),
          .history_length = size("history", 1),
          .max_rows = size("row_token", 0),
          .max_samples = size("sample_request", 0),
          .requests = of("requests"),
          .history = of("history"),
          .counts = of("counts"),
          .row_token = of("row_token"),
          .row_request = of("row_request"),
          .row_position = of("row_position"),
          .row_start = of("row_start"),
          .sample_row = of("sample_row"),
          .sample_request = of("sample_request")};
}

std::array<int32_t, batch::kRequestFields> batch_block_write(const DecoderOptions& options, const Request& request,
                                                             int64_t place, const std::vector<int32_t>& pages,
                                                             const MemoryMap& memory) {
  const auto length = static_cast<int64_t>(request.prompt.size());
  std::ranges::copy(pages, memory.get<int32_t>("page_table") + place * options.pages_per_request());
  std::ranges::copy(request.prompt, memory.get<int32_t>("history") + place * options.max_seq_len);
  float* f32s = memory.get<float>("sampling_f32") + place * batch::kSamplingFloats;
  f32s[batch::kTemperature] = request.sampling.temperature;
  f32s[batch::kTopP] = request.sampling.top_p;
  f32s[batch::kMinP] = request.sampling.min_p;
  f32s[batch::kRepetitionPenalty] = request.sampling.repetition_penalty;
  f32s[batch::kPresencePenalty] = request.sampling.presence_penalty;
  f32s[batch::kFrequencyPenalty] = request.sampling.frequency_penalty;
  int32_t* i32s = memory.get<int32_t>("sampling_i32") + place * batch::kSamplingInts;
  i32s[batch::kTopK] = request.sampling.top_k;
  i32s[batch::kSeedLow] = static_cast<int32_t>(request.sampling.seed);
  i32s[batch::kSeedHigh] = static_cast<int32_t>(request.sampling.seed >> 32);
  write_logit_edits(request, place, memory);
  int32_t* const own_stops = memory.get<int32_t>("own_stops") + place * batch::kMaxOwnStops;
  std::fill_n(own_stops, batch::kMaxOwnStops, -1);
  std::ranges::copy(request.stop_token_ids, own_stops);

  std::array<int32_t, batch::kRequestFields> fields{};
  fields[batch::kState] = batch::kActive;
  fields[batch::kLength] = fields[batch::kPrompt] = static_cast<int32_t>(length);
  fields[batch::kDone] = static_cast<int32_t>(request.cached_tokens);
  fields[batch::kLimit] = static_cast<int32_t>(length_limit(options, request));
  fields[batch::kFlags] =
      (request.ignore_stop_tokens ? batch::kIgnoreStop : 0) | (request.stop_token_ids.empty() ? 0 : batch::kOwnStops) |
      (request.grammar ? batch::kNoDrafts : 0) | (request.prompt_logprobs ? batch::kPromptLogprobs : 0) |
      most_top_tokens(request) << batch::kTopShift;
  return fields;
}

void batch_block_clear(const graph::Graph& tables, const DecoderOptions& options, const std::vector<int>& stop_tokens,
                       const MemoryMap& memory) {
  for (const std::string& name : batch_block_tensors())
    std::memset(memory.get<void>(name), 0, static_cast<size_t>(tables.tensor(tables.find(name)).bytes()));
  int32_t* const places = memory.get<int32_t>("stop_tokens");
  std::fill_n(places, options.max_stop_tokens, -1);
  std::ranges::copy(stop_tokens, places);
}

void batch_block_fill_requests(const graph::Graph& tables, const DecoderOptions& options,
                               const std::vector<int>& stop_tokens, const std::vector<Request>& requests,
                               const MemoryMap& memory) {
  batch_block_clear(tables, options, stop_tokens, memory);
  PagePool pool(options.num_pages());
  for (size_t r = 0; r < requests.size(); ++r) {
    const auto place = static_cast<int64_t>(r);
    const auto fields =
        batch_block_write(options, requests[r], place, pool.take(pages_needed(options, requests[r])), memory);
    std::ranges::copy(fields, memory.get<int32_t>("requests") + r * batch::kRequestFields);
  }
}

void batch_block_fill(const graph::Graph& graph, const DecoderOptions& options, const std::vector<int>& stop_tokens,
                      const std::vector<Request>& requests, const MemoryMap& memory) {
  batch_block_fill_requests(graph, options, stop_tokens, requests, memory);
  memory.get<int32_t>("counts")[batch::kMaxWaiting] = std::numeric_limits<int32_t>::max();
  runtime::lay_out_first_rows(row_tables(graph, memory));
}

}  // namespace megalith::engine
