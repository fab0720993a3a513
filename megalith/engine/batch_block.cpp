#include "megalith/engine/batch_block.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "megalith/base/error.h"
#include "megalith/runtime/batch.h"

namespace megalith::engine {

namespace {

// Whoever wants all that there is room for may say so with the largest number: it is bounded before it is added.
int64_t length_limit(const DecoderOptions& options, const Request& request) {
  const auto length = static_cast<int64_t>(request.prompt.size());
  return length + std::min(request.max_new_tokens, options.max_seq_len - length);
}

// Hands out the pages of the cache, one behind the other. Where pages are in pairs (kernels/page_pairs.h) the texts of
// one task of attention get even ones, those of the next one odd ones, as long as there are any: a task's number and its
// worker's are alike in that.
class Pages {
 public:
  Pages(const graph::Graph& graph, const DecoderOptions& options) : count_(options.num_pages()) {
    // In others they lie one behind the other, and it does not matter.
    for (const graph::Node& node : graph.nodes()) {
      if (!node.op->name.ends_with("rope_attention")) continue;
      step_ = 2;
      texts_of_task_ = node.tile.at("t");
      return;
    }
  }
  int32_t next(int64_t text) {
    int64_t& mine = next_[text / texts_of_task_ % step_];
    int64_t& taken = mine < count_ ? mine : next_[1 - text / texts_of_task_ % step_];
    return static_cast<int32_t>(std::exchange(taken, taken + step_));
  }

 private:
  const int64_t count_;
  int64_t step_ = 1, texts_of_task_ = 1;
  int64_t next_[2] = {0, 1};
};

}  // namespace

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

void batch_block_fill_requests(const graph::Graph& graph, const graph::Graph& tables, const DecoderOptions& options,
                               const std::vector<int>& stop_tokens, const std::vector<Request>& requests,
                               const MemoryMap& memory) {
  const int64_t max_seq_len = options.max_seq_len;
  Pages free_pages(graph, options);
  for (const std::string& name : batch_block_tensors())
    std::memset(memory.get<void>(name), 0, static_cast<size_t>(tables.tensor(tables.find(name)).bytes()));

  for (int64_t e = 0; e < options.max_stop_tokens; ++e)
    memory.get<int32_t>("stop_tokens")[e] =
        e < static_cast<int64_t>(stop_tokens.size()) ? stop_tokens[static_cast<size_t>(e)] : -1;
  for (size_t r = 0; r < requests.size(); ++r) {
    const Request& request = requests[r];
    const auto length = static_cast<int64_t>(request.prompt.size());
    int32_t* fields = memory.get<int32_t>("requests") + r * batch::kRequestFields;
    fields[batch::kState] = batch::kActive;
    fields[batch::kLength] = static_cast<int32_t>(length);
    fields[batch::kDone] = static_cast<int32_t>(request.cached_tokens);
    fields[batch::kLimit] = static_cast<int32_t>(length_limit(options, request));
    fields[batch::kPrompt] = static_cast<int32_t>(length);
    int32_t* pages = memory.get<int32_t>("page_table") + static_cast<int64_t>(r) * options.pages_per_request();
    for (int64_t page = 0; page < pages_needed(options, request); ++page)
      pages[page] = free_pages.next(static_cast<int64_t>(r));
    fields[batch::kIgnoreStop] = request.ignore_stop_tokens;
    std::copy(request.prompt.begin(), request.prompt.end(),
              memory.get<int32_t>("history") + static_cast<int64_t>(r) * max_seq_len);
    float* f32s = memory.get<float>("sampling_f32") + r * batch::kSamplingFloats;
    f32s[batch::kTemperature] = request.sampling.temperature;
    f32s[batch::kTopP] = request.sampling.top_p;
    f32s[batch::kMinP] = request.sampling.min_p;
    f32s[batch::kRepetitionPenalty] = request.sampling.repetition_penalty;
    f32s[batch::kPresencePenalty] = request.sampling.presence_penalty;
    f32s[batch::kFrequencyPenalty] = request.sampling.frequency_penalty;
    int32_t* i32s = memory.get<int32_t>("sampling_i32") + r * batch::kSamplingInts;
    i32s[batch::kTopK] = request.sampling.top_k;
    i32s[batch::kLogprobs] = request.logprobs;
    i32s[batch::kSeedLow] = static_cast<int32_t>(request.sampling.seed);
    i32s[batch::kSeedHigh] = static_cast<int32_t>(request.sampling.seed >> 32);
  }
}

void batch_block_fill(const graph::Graph& graph, const DecoderOptions& options, const std::vector<int>& stop_tokens,
                      const std::vector<Request>& requests, const MemoryMap& memory) {
  batch_block_fill_requests(graph, graph, options, stop_tokens, requests, memory);
  memory.get<int32_t>("counts")[batch::kMaxWaiting] = std::numeric_limits<int32_t>::max();
  runtime::lay_out_first_rows(row_tables(graph, memory));
}

}  // namespace megalith::engine
