// What a GPU's kernel makes of a draft model's steps (model/draft_model.h), without a GPU: all of them are fused, and mean what they
// stand for.
#include <gtest/gtest.h>

#include <algorithm>

#include "megalith/kernels/stream_limits.h"
#include "megalith/model/draft_model.h"
#include "megalith/optimize/schedule.h"
#include "support/decoder_steps.h"
#include "support/streamed.h"

namespace megalith {
namespace {

const std::string kDraftingModel = MEGALITH_SOURCE_DIR "/models/storyteller";
const std::string kDraftingShapes = MEGALITH_SOURCE_DIR "/models/shapes/";

struct DraftingRoom {
  int64_t rows, requests;
};

DecoderOptions drafting_options(const std::string& draft, DraftingRoom room, int64_t draft_tokens) {
  return {.max_rows = room.rows,
          .max_requests = room.requests,
          .max_seq_len = 128,
          .draft_tokens = draft_tokens,
          .draft_model = std::make_shared<const ModelConfig>(config_read(draft)),
          .target = "cuda:sm_90a"};
}

TEST(FusedDraftModel, HasNothingThatIsNotFused) {
  const ModelConfig large = config_read(kDraftingShapes + "Qwen3-8B");
  for (const DraftingRoom room : {DraftingRoom{2, 1},
                                  {5, 1},
                                  {8, 1},
                                  {64, 1},
                                  {512, 1},
                                  {8, 8},
                                  {32, 8},
                                  {240, 8},
                                  {496, 8},
                                  {32, 12},
                                  {96, 90}}) {
    const graph::Graph graph = build_decoder(
        large, drafting_options(kDraftingShapes + "Qwen3-0.6B", room, std::min<int64_t>(room.rows - 1, 4)));
    EXPECT_TRUE(testing::streams_all_products(graph, "cuda:sm_90a")) << room.rows << " rows, " << room.requests;
    const auto count = [&](auto is_one) { return std::ranges::count_if(graph.nodes(), is_one); };
    EXPECT_EQ(count([](const graph::Node& node) {
                return node.op->name == "attention" || node.op->name == "attention_partial" ||
                       node.op->name == "kv_append" || node.op->name == "argmax";
              }),
              0)
        << room.rows << " rows, " << room.requests;
    EXPECT_EQ(graph.lasting_sizes(), graph.find("counts"));
    // What several rows multiply next lies as tensor cores take it, in the first step and in those behind it.
    const graph::Schedule schedule = optimize::make_schedule(graph, "cuda:sm_90a");
    for (const char* name : {"draft.0.layer.0.gate_up", "draft.1.layer.0.gate_up"})
      if (graph.has(name) && graph.tensor(graph.find(name)).shape[0].size > stream::kMaxRowsOfWords) {
        EXPECT_EQ(schedule.layout(graph.find(name)), graph::Layout::fragments)
            << name << ", " << room.rows << " rows, " << room.requests;
      }
  }
}

// A draft model that is the model itself is always right, but for what rounds in another order: in each step come all drafts and one
// token. On a CPU, whose tasks are those of a GPU.
TEST(FusedDraftModel, IsRightIfItIsTheModelItself) {
  const test::EnvironmentVariable exact("MEGALITH_PRODUCTS",
                                        "f32");  // a CPU with tiles would round more than a GPU does
  const ModelConfig config = config_read(kDraftingModel);
  for (const DraftingRoom room : {DraftingRoom{5, 1}, {16, 3}}) {
    Weights weights = Weights::open(kDraftingModel), draft = Weights::open(kDraftingModel);
    DecoderOptions options = drafting_options(kDraftingModel, room, 4);
    options.weight_dtypes = weight_dtypes(weights, config.dtype);
    draft.rename([](const std::string& name) { return kDraftPrefix + name; });
    options.weight_dtypes.merge(weight_dtypes(draft, config.dtype));
    weights.join(std::move(draft));
    options = options.resolved(config);
    const graph::Graph graph = build_decoder(config, options);
    testing::CpuDecoderSteps steps(graph, "cpu", 2);
    engine::MemoryMap& memory = steps.memory();
    memory.bind_weights(graph, weights);
    for (const char* prefix : {"", kDraftPrefix}) memory.bind_rope(graph, config, options.max_seq_len, 0, prefix);
    std::vector<engine::Request> requests;
    for (int64_t n = 0; n < room.requests; ++n)
      requests.push_back({.prompt = std::vector<int>(static_cast<size_t>(3 + 4 * n), static_cast<int>(11 + 7 * n)),
                          .max_new_tokens = 60,
                          .ignore_stop_tokens = true});
    engine::batch_block_fill(graph, options, {}, requests, memory);
    const auto* const fields = memory.get<int32_t>("requests");
    int64_t drafted = 0, accepted = 0;
    for (int step = 0; step < 20; ++step) {
      std::vector<int32_t> before(fields, fields + room.requests * batch::kRequestFields);
      steps.run();
      for (int64_t n = 0; n < room.requests; ++n) {
        const auto at = static_cast<size_t>(n * batch::kRequestFields);
        const int32_t length = before[at + batch::kLength], drafts = before[at + batch::kDone] - length;
        if (before[at + batch::kState] != batch::kActive || drafts <= 0) continue;
        drafted += drafts;
        accepted += fields[at + batch::kLength] - length - 1;
      }
    }
    EXPECT_EQ(accepted, drafted);
    EXPECT_GT(drafted, 40 * room.requests);
  }
}

}  // namespace
}  // namespace megalith
