// Whole models: small random Qwen3 and Llama decoders of awkward sizes, run by the persistent kernel on 1 to 5 workers,
// against the same graph run by the interpreter in float64; with products of f32 and with those that round.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <random>

#include "base/temporary_folder.h"
#include "megalith/base/file.h"
#include "megalith/model/config.h"
#include "megalith/model/decoder.h"
#include "support/configurations.h"
#include "support/decoder_reference.h"
#include "support/graph_run.h"

namespace megalith {
namespace {

struct Shape {
  const char* name;
  const char* architecture;
  int hidden, intermediate, layers, heads, kv_heads, head_dim, vocab;
  bool tied;
  int workers;
  int page_size;
  std::vector<int> prompts;  // lengths
  int quant_columns = 0;
};

std::string write_config(const Shape& shape) {
  const std::string folder = ::testing::TempDir() + "megalith_" + shape.name;
  std::filesystem::create_directories(folder);
  const std::string rope_scaling =
      R"("rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 64},)";
  file_write_atomic(
      folder + "/config.json",
      fmt::format(R"({{"architectures": ["{}"], "model_type": "{}", "hidden_size": {}, "intermediate_size": {},
      "num_hidden_layers": {}, "num_attention_heads": {}, "num_key_value_heads": {}, "head_dim": {}, "vocab_size": {},
      "tie_word_embeddings": {}, {} "rope_theta": 10000.0, "rms_norm_eps": 1e-06, "hidden_act": "silu",
      "max_position_embeddings": 1024, "attention_bias": false, "torch_dtype": "bfloat16", "eos_token_id": 0}})",
                  shape.architecture, shape.architecture[0] == 'Q' ? "qwen3" : "llama", shape.hidden,
                  shape.intermediate, shape.layers, shape.heads, shape.kv_heads, shape.head_dim, shape.vocab,
                  shape.tied, shape.architecture[0] == 'Q' ? "" : rope_scaling));
  return folder;
}

std::vector<engine::Request> random_requests(const Shape& shape, int new_tokens) {
  std::mt19937 random(static_cast<unsigned>(shape.vocab));
  std::vector<engine::Request> requests;
  for (int length : shape.prompts) {
    engine::Request request{.max_new_tokens = new_tokens, .ignore_stop_tokens = true};
    for (int i = 0; i < length; ++i)
      request.prompt.push_back(static_cast<int>(random() % static_cast<unsigned>(shape.vocab)));
    requests.push_back(request);
  }
  return requests;
}

// Where products round, an activation that is as good as halfway between two numbers of bf16 may go either way, and all
// that follows from it with it: half of the rows may be off for that, by less than they would be without any rounding.
// Tiles round in attention, too.
void expect_equal_to_the_interpreter(const Shape& shape, const std::string& kind) {
  const test::EnvironmentVariable products("MEGALITH_PRODUCTS", kind.c_str());
  const bool rounds = kind != "f32";
  constexpr int kNewTokens = 3;
  constexpr uint64_t kSeed = 11;
  engine::EngineOptions options{.num_workers = shape.workers, .dummy_weights = true, .dummy_seed = kSeed};
  options.decoder.page_size = shape.page_size;
  options.decoder.max_seq_len = 600;
  options.decoder.max_requests = static_cast<int64_t>(shape.prompts.size());
  options.decoder.quant_columns = shape.quant_columns;
  engine::Engine engine(write_config(shape), options);
  const std::vector<engine::Request> requests = random_requests(shape, kNewTokens);

  const engine::Generation found = engine.generate(requests);
  const std::vector<testing::ReferenceStep> wanted =
      testing::decoder_reference(engine, requests, {}, kSeed, rounds, kind == "amx");

  // Requests that are through with their prompts are sampled in the order of requests. A text may part from the
  // reference's only where the two likeliest tokens are closer than rounding.
  std::vector<std::vector<int>> texts(requests.size());
  for (size_t r = 0; r < requests.size(); ++r) ASSERT_EQ(found.tokens[r].size(), static_cast<size_t>(kNewTokens));
  if (requests.size() == 1) {
    ASSERT_EQ(wanted.size(), static_cast<size_t>(kNewTokens));
    for (size_t i = 0; i < wanted.size(); ++i) {
      std::vector<double> sorted = wanted[i].logits[0];
      std::partial_sort(sorted.begin(), sorted.begin() + 2, sorted.end(), std::greater<>());
      if (found.tokens[0][i] != wanted[i].tokens[0]) {
        EXPECT_LT(sorted[0] - sorted[1], 1e-3) << "token " << i;
        return;
      }
    }
  }
  const std::vector<std::vector<double>>& last = wanted.back().logits;
  size_t parted = 0;
  for (size_t row = 0; row < last.size(); ++row) {
    loop::Array got, want;
    want.values = last[row];
    for (size_t v = 0; v < last[row].size(); ++v) got.values.push_back(engine.logits()[row * last[row].size() + v]);
    constexpr double kLimit = 0.05, kUnrounded = 2.3;  // the least of all shapes, if the interpreter does not round
    const double error = testing::error_in_roundings(got, want, DType::bf16);
    EXPECT_LE(error, rounds ? kUnrounded : kLimit) << "logits of row " << row;
    parted += error > kLimit;
  }
  EXPECT_LE(parted, last.size() / 2);
}

class Decoder : public ::testing::TestWithParam<Shape> {};

TEST_P(Decoder, EqualsTheInterpreter) { expect_equal_to_the_interpreter(GetParam(), "f32"); }

INSTANTIATE_TEST_SUITE_P(
    Shapes, Decoder,
    ::testing::Values(Shape{"q64", "Qwen3ForCausalLM", 96, 112, 2, 4, 2, 64, 501, true, 1, 1, {1}},
                      Shape{"l80", "LlamaForCausalLM", 72, 100, 2, 3, 1, 80, 517, false, 2, 16, {63}},
                      Shape{"q128", "Qwen3ForCausalLM", 64, 80, 1, 2, 1, 128, 333, false, 3, 4096, {64}},
                      Shape{"l64", "LlamaForCausalLM", 80, 144, 2, 2, 2, 64, 1031, true, 4, 1, {65}},
                      Shape{"q80", "Qwen3ForCausalLM", 40, 56, 1, 2, 1, 80, 259, true, 5, 16, {500}},
                      Shape{"l128", "LlamaForCausalLM", 48, 64, 1, 2, 2, 128, 127, false, 2, 4096, {500}},
                      Shape{"int8", "Qwen3ForCausalLM", 72, 100, 2, 4, 2, 64, 501, true, 2, 16, {9}, 32},
                      Shape{"int8_untied", "LlamaForCausalLM", 80, 144, 1, 2, 2, 64, 301, false, 3, 16, {65}, 128},
                      Shape{"batch", "Qwen3ForCausalLM", 64, 96, 2, 4, 2, 64, 301, true, 3, 16, {7, 1, 100, 65}}),
    [](const auto& shape) { return std::string(shape.param.name); });

class RoundingDecoder : public ::testing::TestWithParam<Shape> {};

TEST_P(RoundingDecoder, EqualsItInTiles) { expect_equal_to_the_interpreter(GetParam(), "amx"); }
TEST_P(RoundingDecoder, EqualsTheInterpreterThatRounds) { expect_equal_to_the_interpreter(GetParam(), "bf16"); }

INSTANTIATE_TEST_SUITE_P(
    Shapes, RoundingDecoder,
    ::testing::Values(Shape{"q64", "Qwen3ForCausalLM", 96, 112, 2, 4, 2, 64, 501, true, 1, 1, {1}},
                      Shape{"l80", "LlamaForCausalLM", 72, 100, 2, 3, 1, 80, 517, false, 2, 16, {63}},
                      Shape{"batch", "Qwen3ForCausalLM", 64, 96, 2, 4, 2, 64, 301, true, 3, 16, {7, 1, 100, 65}}),
    [](const auto& shape) { return std::string(shape.param.name); });

// Texts of a batch, or one by one where `batches` has one request each.
std::vector<std::vector<int>> texts_of(const std::string& folder, int workers, int64_t page_size, int64_t max_rows,
                                       const std::vector<std::vector<engine::Request>>& batches) {
  engine::EngineOptions options{.num_workers = workers, .dummy_weights = true};
  options.decoder.max_seq_len = 256;
  options.decoder.page_size = page_size;
  options.decoder.max_rows = max_rows;
  options.decoder.max_requests = static_cast<int64_t>(batches[0].size());
  engine::Engine engine(folder, options);
  std::vector<std::vector<int>> result;
  for (const auto& batch : batches)
    for (const auto& text : engine.generate(batch).tokens) result.push_back(text);
  return result;
}

class Batch : public ::testing::TestWithParam<const char*> {};

TEST_P(Batch, EachTextIsTheSameAsAloneAndOnAnyNumberOfWorkers) {
  const test::EnvironmentVariable products("MEGALITH_PRODUCTS", GetParam());
  Shape shape{"alone",
              "Qwen3ForCausalLM",
              64,
              96,
              2,
              4,
              2,
              64,
              301,
              true,
              1,
              16,
              {7, 1, 100, 65, 30, 2, 3, 11, 12, 13, 24, 25, 64, 128, 47, 5}};
  const std::string folder = write_config(shape);
  std::vector<engine::Request> requests = random_requests(shape, 24);
  requests[1].sampling = {.temperature = 0.9f, .top_p = 0.9f, .top_k = 0, .seed = 5};
  requests[2].sampling = {.temperature = 1.2f, .top_p = 1.0f, .top_k = 20, .seed = 6};
  requests[3].sampling = {.temperature = 0.7f, .top_p = 0.8f, .top_k = 50, .seed = 7};
  requests[4].max_new_tokens = 9;
  std::vector<std::vector<engine::Request>> one_by_one;
  for (const engine::Request& request : requests) one_by_one.push_back({request});

  const auto alone = texts_of(folder, 1, 16, 0, one_by_one);
  EXPECT_EQ(alone[4].size(), 9u);
  EXPECT_NE(alone[1], alone[0]);
  EXPECT_EQ(texts_of(folder, 1, 16, 0, {requests}), alone) << "batched";
  EXPECT_EQ(texts_of(folder, 5, 16, 0, {requests}), alone) << "batched, on five workers";
  EXPECT_EQ(texts_of(folder, 2, 16, 1, one_by_one), alone) << "prompts a row at a time";
  // Where a cache's rows lie is not a product's affair.
  if (std::string(GetParam()) != "f32" && !test::all_configurations()) return;
  EXPECT_EQ(texts_of(folder, 5, 4096, 0, {requests}), alone) << "batched, on five workers, in one page each";
  EXPECT_EQ(texts_of(folder, 2, 1, 16, {requests}), alone) << "batched, a row at a time, in pages of 1";
}

INSTANTIATE_TEST_SUITE_P(Products, Batch, ::testing::Values("f32", "bf16", "amx"),
                         [](const auto& products) { return std::string(products.param); });

// What is in between is as wide as all that read it take it, so it makes no difference.
class Width : public ::testing::TestWithParam<const char*> {};

std::vector<float> logits_of(const Shape& shape, const engine::EngineOptions& options) {
  engine::Engine engine(write_config(shape), options);
  engine.generate(random_requests(shape, 3));
  return {engine.logits(), engine.logits() + engine.config().vocab_size};
}

TEST_P(Width, OfWhatIsInBetweenChangesNoBit) {
  const test::EnvironmentVariable products("MEGALITH_PRODUCTS", GetParam());
  const Shape shape{"width", "Qwen3ForCausalLM", 64, 96, 2, 4, 2, 64, 301, true, 2, 16, {70}};
  engine::EngineOptions options{.num_workers = 2, .dummy_weights = true};
  options.decoder.max_seq_len = 256;
  const std::vector<float> found = logits_of(shape, options);
  options.decoder.kv_dtype = DType::f32;
  const test::EnvironmentVariable disable("MEGALITH_DISABLE", "cast_intermediate");
  EXPECT_EQ(found, logits_of(shape, options));
}

INSTANTIATE_TEST_SUITE_P(Products, Width, ::testing::Values("bf16", "amx"),
                         [](const auto& products) { return std::string(products.param); });

TEST(WidthInBetween, IsThatOfProductsAndOfAttentionWhereTheyRound) {
  const Shape shape{"width", "Qwen3ForCausalLM", 64, 96, 2, 4, 2, 64, 301, true, 2, 16, {70}};
  const auto halves = [&](const char* kind, int64_t quant_columns) {
    const test::EnvironmentVariable products("MEGALITH_PRODUCTS", kind);
    const ModelConfig config = config_read(write_config(shape));
    const graph::Graph graph = build_decoder(config, DecoderOptions{.quant_columns = quant_columns}.resolved(config));
    std::vector<std::string> names;
    for (const char* name : {"attention", "gate_up", "q_rope", "k_rope", "v", "k_cache", "v_cache", "o_sum", "q_norm"})
      if (graph.tensor(graph.find(fmt::format("layer.0.{}", name))).dtype == DType::bf16) names.emplace_back(name);
    return names;
  };
  typedef std::vector<std::string> Names;
  EXPECT_EQ(halves("f32", 0), Names{});
  EXPECT_EQ(halves("bf16", 0), (Names{"attention", "gate_up"}));
  EXPECT_EQ(halves("amx", 0), (Names{"attention", "gate_up", "q_rope", "k_rope", "v", "k_cache", "v_cache"}));
  EXPECT_EQ(halves("amx", 32), Names{}) << "int8 is multiplied with what was never rounded to bf16";
}

}  // namespace
}  // namespace megalith
