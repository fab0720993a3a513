#include "megalith/model/draft_model.h"

#include <algorithm>
#include <cstdlib>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/base/json_quote.h"
#include "megalith/model/tokenizer.h"
#include "megalith/optimize/limits.h"

namespace megalith {

using graph::Dim;
using graph::Graph;
using graph::TensorId;

namespace {

// Rows of embeddings that belong to no token: models of one tokenizer are padded to different sizes.
constexpr int64_t kMaxPadding = 128;

std::string of_draft(const std::string& name) { return kDraftPrefix + name; }

}  // namespace

std::shared_ptr<const ModelConfig> read_draft_model(const std::string& folder, const std::string& target) {
  const auto has_tokenizer = [](const std::string& of) { return file_exists(of + "/tokenizer.json"); };
  if (has_tokenizer(folder) && has_tokenizer(target)) {
    const Tokenizer small = Tokenizer::open(folder), large = Tokenizer::open(target);
    for (int id = 0; id < std::min(small.vocab_size(), large.vocab_size()); ++id)
      MEGALITH_CHECK(small.token_bytes(id) == large.token_bytes(id),
                     "the token {} is {} in --draft-model {}, but {} in {}: want a small model of the same tokenizer",
                     id, json_quote(small.token_bytes(id)), folder, json_quote(large.token_bytes(id)), target);
  }
  return std::make_shared<const ModelConfig>(config_read(folder));
}

void check_draft_model(const ModelConfig& draft, const ModelConfig& target, int64_t max_seq_len) {
  MEGALITH_CHECK(
      std::abs(draft.vocab_size - target.vocab_size) <= kMaxPadding,
      "--draft-model {} has a vocabulary of {} tokens, but {} has {}: want a small model of the same tokenizer",
      draft.name, draft.vocab_size, target.name, target.vocab_size);
  const int64_t longest = draft.longest_sequence();
  MEGALITH_CHECK(
      max_seq_len <= longest,
      "--max-seq-len is {}, but --draft-model {} works on sequences of up to {} tokens: try --max-seq-len {}",
      max_seq_len, draft.name, longest, longest);
}

void build_draft_model(Graph& graph, const ModelConfig& draft, const DecoderOptions& options, int64_t vocabulary) {
  const int64_t requests = options.max_requests, steps = options.draft_tokens,
                drafters = optimize::whole_rows(options.target, requests);  // room for a row of each
  const auto state = [&](const std::string& name, Dim size) {
    return graph.state(of_draft(name), DType::i32, {std::move(size)});
  };
  const TensorId counts = state("counts", 1 + steps);
  graph.dynamic_size("draft_rows", counts, 0);
  for (int64_t step = 0; step < steps; ++step) graph.dynamic_size(fmt::format("drafters_{}", step), counts, 1 + step);
  const Dim rows(options.draft_model_rows(), "draft_rows");
  const TensorId token = state("token", rows), request = state("request", rows), position = state("position", rows),
                 start = state("row_start", rows), drafter = state("drafter", requests),
                 drafter_row = state("drafter_row", Dim(drafters, "drafters_0"));
  const TensorId of_requests = graph.find("requests"), history = graph.find("history"),
                 row_request = graph.find("row_request"), row_position = graph.find("row_position");
  const auto own_vocabulary = static_cast<double>(draft.vocab_size);
  graph.add("draft_rows", of_draft("rows"),
            {of_requests, history, row_request, row_position, graph.find("row_start"), counts, token, request, position,
             start, state("last_row", requests), drafter, drafter_row},
            {.attributes = {{"draft_vocabulary", own_vocabulary}}});

  DecoderBuilder::Place place = {graph, kDraftPrefix, of_draft("0."), token, request, position};
  TensorId sampled = drafter_row;  // the rows that the next draft comes behind
  for (int64_t step = 0; step < steps; ++step) {
    place.nodes = of_draft(fmt::format("{}.", step));
    DecoderBuilder model(draft, options, place);
    TensorId x = model.embed();
    for (int64_t layer = 0; layer < draft.num_layers; ++layer) x = model.layer(layer, x);
    const TensorId logits = step == 0 ? model.head(x, sampled) : model.head(x);
    const TensorId best = graph.apply("argmax", place.nodes + "argmax", {logits});
    const auto next = [&](const char* what) {
      const std::string name = fmt::format("{}.{}", step + 1, what);
      return step + 1 < steps ? state(name, Dim(drafters, fmt::format("drafters_{}", step + 1)))
                              : state(name, drafters);
    };
    place.token = next("token"), place.request = next("request"), place.position = next("position");
    graph.add("draft_token", place.nodes + "draft",
              {best, drafter, of_requests, row_request, row_position, history, graph.find("row_token"), place.token,
               place.request, place.position, next("row_start")},
              {.attributes = {{"step", static_cast<double>(step)},
                              {"vocabulary", static_cast<double>(vocabulary)},
                              {"draft_vocabulary", own_vocabulary}}});
  }
}

}  // namespace megalith
