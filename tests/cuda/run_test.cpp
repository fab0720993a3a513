// On a GPU: every operator against the interpreter, the bundled model against transformers, the same bits on any number
// of workers and every time, and how a run is ended.
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "cuda/skip.h"
#include "megalith/base/file.h"
#include "megalith/engine/engine.h"
#include "megalith/runtime/cuda/launcher.h"
#include "megalith/runtime/cuda/program.h"
#include "support/operator_cases.h"

namespace megalith {
namespace {

const std::string kModel = MEGALITH_SOURCE_DIR "/models/storyteller";
const std::string kGolden = MEGALITH_SOURCE_DIR "/tests/golden/storyteller";

void run_on_gpu(const testing::OperatorCases& all, testing::GraphMemory& memory, int num_workers) {
  const jit::CompiledKernel kernel = jit::compile(all.graph, {.target = "cuda", .num_workers = num_workers});
  runtime::CudaProgram program(all.graph, kernel, memory.addresses());
  for (const auto& [name, address] : memory.addresses()) program.upload(name);
  runtime::CudaLauncher launcher(program);
  ASSERT_EQ(launcher.run(), runtime::RunEnd::finished);
  const runtime::CudaContextGuard context(program.ordinal());
  for (const auto& [name, address] : memory.addresses()) program.download(name);
}

TEST(Cuda, EveryDeclaredCaseOfEveryOperatorEqualsTheInterpreter) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  const testing::OperatorCases all = testing::operator_cases();
  testing::GraphMemory memory(all.graph);
  testing::fill_operator_cases(all, memory);
  loop::Arrays expected = memory.arrays();
  graph::interpret(all.graph, graph::lower(all.graph, "cuda"), expected, 1);
  // A score's rounding is multiplied by the exponential that follows; in another order than a CPU's the largest error
  // of attention_partial was 9.3 roundings.
  constexpr double kSlack = 16;
  for (const int num_workers : {1, 3, 100}) {
    run_on_gpu(all, memory, num_workers);
    EXPECT_EQ(testing::wrong_operators(all, memory, expected, kSlack), "") << num_workers << " workers";
  }
}

TEST(Cuda, TheStorytellerWritesTheTokensThatTransformersWrites) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  const auto golden = nlohmann::json::parse(file_read(kGolden + ".json"));
  const Weights logits = Weights::open(kGolden + "_logits.safetensors");
  engine::Engine engine(kModel, {.target = "cuda"});
  int index = 0;
  for (const auto& prompt : golden.at("prompts")) {
    const auto ids = prompt.at("ids").get<std::vector<int>>();
    engine.generate({{.prompt = ids, .max_new_tokens = 1, .ignore_stop_tokens = true}});
    const WeightTensor& wanted = logits.get(fmt::format("prompt.{}", index++));
    double worst = 0;
    for (int64_t v = 0; v < engine.config().vocab_size; ++v)
      worst = std::max(worst, std::abs(engine.logits()[v] - element_load(wanted.bytes.data(), wanted.dtype, v)));
    EXPECT_LT(worst, 2e-2) << "logits after \"" << prompt.at("text") << "\"";
    const auto found = engine.generate({{.prompt = ids, .max_new_tokens = 64, .ignore_stop_tokens = true}});
    EXPECT_EQ(found.tokens[0], prompt.at("greedy").get<std::vector<int>>()) << "after \"" << prompt.at("text") << "\"";
  }
  EXPECT_EQ(index, 8);
}

std::vector<float> logits_after(engine::Engine& engine, const std::vector<int>& prompt, int64_t num_tokens) {
  engine.generate({{.prompt = prompt, .max_new_tokens = num_tokens, .ignore_stop_tokens = true}});
  return {engine.logits(), engine.logits() + engine.config().vocab_size};
}

TEST(Cuda, TheSameBitsEveryTimeAndOnAnyNumberOfWorkers) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  engine::Engine all(kModel, {.target = "cuda"}), few(kModel, {.target = "cuda", .num_workers = 7});
  const std::vector<float> first = logits_after(all, {1, 2, 3}, 100);
  EXPECT_EQ(logits_after(all, {1, 2, 3}, 100), first);
  EXPECT_EQ(logits_after(few, {1, 2, 3}, 100), first);
}

TEST(Cuda, ACancelledRunEndsAndTheNextOneWorks) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  engine::Engine engine(kModel, {.target = "cuda"});
  const auto whole = engine.generate({{.prompt = {1, 2, 3}, .max_new_tokens = 40, .ignore_stop_tokens = true}});
  std::chrono::steady_clock::time_point cancelled_at;
  const auto cut = engine.generate({{.prompt = {1, 2, 3}, .max_new_tokens = 200, .ignore_stop_tokens = true}},
                                   [&](const engine::TokenEvent&) {
                                     if (cancelled_at == std::chrono::steady_clock::time_point{})
                                       cancelled_at = std::chrono::steady_clock::now();
                                     engine.cancel();
                                   });
  EXPECT_LT(std::chrono::steady_clock::now() - cancelled_at, std::chrono::milliseconds(100));
  EXPECT_LE(cut.tokens[0].size(), 200u);
  const auto again = engine.generate({{.prompt = {1, 2, 3}, .max_new_tokens = 40, .ignore_stop_tokens = true}});
  EXPECT_EQ(again.tokens, whole.tokens);
}

TEST(Cuda, SampledTextsAreThoseOfTheCpu) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  engine::Engine gpu(kModel, {.target = "cuda"}), cpu(kModel, {.num_workers = 2});
  const std::vector<engine::Request> requests = {
      {.prompt = {1, 2, 3},
       .max_new_tokens = 24,
       .sampling = {.temperature = 0.8f, .top_p = 0.9f, .top_k = 40, .seed = 7},
       .ignore_stop_tokens = true}};
  EXPECT_EQ(gpu.generate(requests).tokens, cpu.generate(requests).tokens);
}

TEST(CudaErrors, WithoutAGpuOneClearError) {
  if (testing::missing_gpu().empty()) GTEST_SKIP() << "there is a GPU";
  try {
    engine::Engine engine(kModel, {.target = "cuda"});
    FAIL() << "it was made";
  } catch (const SystemError& error) {
    EXPECT_NE(std::string(error.what()).find("--target cpu"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace megalith
