#include "megalith/model/weight_names.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "megalith/base/log.h"

namespace megalith {

namespace {

constexpr const char* kEmbedding = "model.embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";

// What the text model's names may begin with. Of a checkpoint that has several, such as a tower with layers of its own,
// the first one counts.
constexpr std::string_view kPrefixes[] = {"model.language_model.",
                                          "language_model.model.",
                                          "language_model.",
                                          "model.text_model.",
                                          "text_model.",
                                          "model.",
                                          ""};

std::string_view find_prefix(const std::vector<std::string>& names) {
  for (const std::string_view prefix : kPrefixes) {
    const std::string layers = std::string(prefix) + "layers.";
    if (std::ranges::any_of(names, [&](const std::string& name) { return name.starts_with(layers); })) return prefix;
  }
  return "model.";
}

// Tables that older exports wrote, and every implementation makes.
bool is_computed(std::string_view name) { return name.find("rotary_emb.") != std::string_view::npos; }

// The name in a graph, "" for what is no part of the text model.
std::string name_in_graph(std::string_view name, std::string_view prefix) {
  if (is_computed(name)) return "";
  for (const std::string_view head : {"lm_head.", "language_model.lm_head.", "model.lm_head."})
    if (name.starts_with(head)) return "lm_head." + std::string(name.substr(head.size()));
  if (!name.starts_with(prefix)) return "";
  const std::string_view rest = name.substr(prefix.size());
  // Beside a text model without a prefix anything may stand.
  if (prefix.empty() && !rest.starts_with("layers.") && !rest.starts_with("embed_tokens.") &&
      !rest.starts_with("norm."))
    return "";
  return "model." + std::string(rest);
}

bool are_equal(const WeightTensor& a, const WeightTensor& b) {
  return a.dtype == b.dtype && a.shape == b.shape && std::memcmp(a.bytes.data(), b.bytes.data(), a.bytes.size()) == 0;
}

void settle_tied(Weights& weights, ModelConfig& config) {
  const WeightTensor* const embedding = weights.find(kEmbedding);
  const WeightTensor* const head = weights.find(kHead);
  if (!config.tie_word_embeddings || !head) return;
  if (!embedding) {
    weights.rename([](const std::string& name) { return name == kHead ? kEmbedding : name; });
  } else if (are_equal(*embedding, *head)) {
    weights.rename([](const std::string& name) { return name == kHead ? "" : name; });
  } else {
    log_warn(
        "[weights] {}: config.json ties the output projection to the embedding, but \"{}\" differs from it, and is "
        "used",
        weights.path(), head->name);
    config.tie_word_embeddings = false;
  }
}

}  // namespace

Weights open_weights(const std::string& folder, ModelConfig& config) {
  Weights weights = Weights::open(folder);
  const std::string_view prefix = find_prefix(weights.names());
  weights.rename([&](const std::string& name) { return name_in_graph(name, prefix); });
  settle_tied(weights, config);
  return weights;
}

}  // namespace megalith
