// What all commands that take a model have in common: where it is, how large the running system shall be, and the graph
// that follows from both. The same options give the same kernel in every command, so that `compile` warms the cache for
// `run`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megalith/graph/graph.h"
#include "megalith/model/config.h"
#include "megalith/model/decoder.h"
#include "tools/arguments.h"

namespace megalith::engine {
struct EngineOptions;
}

namespace megalith::tools {

inline constexpr const char* kDefaultContext = "the model's limit, at most 4096";

/// Where drafts come from, and how many there are.
struct Speculation {
  std::string model;  // "": from what stood in the text before
  int64_t tokens, match;
};

struct ModelOptions {
  std::string positional, model;
  int64_t max_seq_len = 0;
  int64_t max_batch = 0;               // 0: as many as there are prompts
  int64_t max_rows = 0;                // 0: chosen (model/decoder.h)
  std::vector<int64_t> regimes;        // of engine/engine.h; 0 alone: none; nothing: chosen
  std::optional<int64_t> prompt_rows;  // likewise; nothing: chosen
  bool batch_invariant = false;
  std::string draft_model, speculative_config;
  int64_t draft_tokens = 0, draft_match = DecoderOptions{}.draft_match;
  int64_t page_size = DecoderOptions{}.page_size;
  int64_t num_pages = 0;  // 0: enough for max_batch texts of max_seq_len
  int64_t num_workers = 0;
  std::string quantization = "none", kv_dtype = "auto", load_format = "auto";
  std::string target;  // once options are read: what was said, or chosen

  /// `context` and `batch` are what 0 stands for in this command.
  void declare(Arguments& arguments, const char* context = kDefaultContext,
               const char* batch = "the number of prompts");

  /// What the options for drafts and --speculative-config say together.
  Speculation speculation() const;
  /// The model's folder; UsageError if none was given, or two.
  std::string folder() const;
  bool dummy() const { return load_format == "dummy"; }
  int workers() const;
  DecoderOptions decoder(int64_t num_requests) const;
  engine::EngineOptions engine(int64_t num_requests) const;
};

/// The longest text for a measurement that needs so many positions: what was asked for, or room in whole chunks of
/// attention, so that measurements of about a size share a kernel. UserError if that is more than a text may have: a
/// text that ends early would be taken for a fast one.
int64_t context_for(int64_t positions, const ModelOptions& options, const ModelConfig& config);

struct ModelGraph {
  ModelConfig config;
  DecoderOptions options;
  graph::Graph graph;
};

/// The graph that `run` would compile. Reads config.json, and the headers of the weights if there are some; no weight
/// is touched.
ModelGraph model_graph(const ModelOptions& options);

}  // namespace megalith::tools
