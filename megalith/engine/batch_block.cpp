#include "megalith/engine/batch_block.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

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

const std::vector<std::string>& batch_block_tensors() {
  static const std::vector<std::string> names = {
      "counts",   "row_token",    "row_request",  "row_position", "row_start", "sample_row",  "sample_request",
      "requests", "sampling_f32", "sampling_i32", "history",      "stop",      "stop_tokens", "page_table"};
  return names;
}

const std::vector<std::string>& row_tensors() {
  static const std::vector<std::string> names = {"counts",         "row_token", "row_request",
                                                 "row_position",   "row_start", "sample_row",
                                                 "sample_request", "requests",  "stop"};
  return names;
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
  i32s[batch::kLogprobs] = request.logprobs;
  i32s[batch::kSeedLow] = static_cast<int32_t>(request.sampling.seed);
  i32s[batch::kSeedHigh] = static_cast<int32_t>(request.sampling.seed >> 32);

  std::array<int32_t, batch::kRequestFields> fields{};
  fields[batch::kState] = batch::kActive;
  fields[batch::kLength] = fields[batch::kPrompt] = static_cast<int32_t>(length);
  fields[batch::kDone] = static_cast<int32_t>(request.cached_tokens);
  fields[batch::kLimit] = static_cast<int32_t>(length_limit(options, request));
  fields[batch::kIgnoreStop] = request.ignore_stop_tokens;
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

void batch_block_fill_requests(const graph::Graph& graph, const graph::Graph& tables, const DecoderOptions& options,
                               const std::vector<int>& stop_tokens, const std::vector<Request>& requests,
                               const MemoryMap& memory) {
  batch_block_clear(tables, options, stop_tokens, memory);
  PagePool pool(graph, options.num_pages());
  for (size_t r = 0; r < requests.size(); ++r) {
    const auto place = static_cast<int64_t>(r);
    const auto fields =
        batch_block_write(options, requests[r], place, pool.take(place, pages_needed(options, requests[r])), memory);
    std::ranges::copy(fields, memory.get<int32_t>("requests") + r * batch::kRequestFields);
  }
}

void batch_block_fill(const graph::Graph& graph, const DecoderOptions& options, const std::vector<int>& stop_tokens,
                      const std::vector<Request>& requests, const MemoryMap& memory) {
  batch_block_fill_requests(graph, graph, options, stop_tokens, requests, memory);
  memory.get<int32_t>("counts")[batch::kMaxWaiting] = std::numeric_limits<int32_t>::max();
  runtime::lay_out_first_rows(row_tables(graph, memory));
}

}  // namespace megalith::engine
