// On a GPU: every operator against the interpreter, the bundled model against transformers, the same bits on any number
// of workers and every time, and how a run is ended.
#include <fmt/format.h>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/temporary_folder.h"
#include "cuda/skip.h"
#include "cuda/stream_cases.h"
#include "megalith/base/file.h"
#include "megalith/engine/engine.h"
#include "megalith/jit/cuda/build.h"
#include "megalith/kernels/stream_limits.h"
#include "megalith/optimize/optimize.h"
#include "megalith/optimize/schedule.h"
#include "megalith/runtime/cuda/launcher.h"
#include "megalith/runtime/cuda/program.h"
#include "support/gates.h"
#include "support/models.h"
#include "support/operator_cases.h"
#include "support/sampling_cases.h"
#include "support/streamed.h"

namespace megalith {
namespace {

const std::string kGolden = MEGALITH_SOURCE_DIR "/tests/golden/storyteller";

void run_on_gpu(const graph::Graph& graph, testing::GraphMemory& memory, int num_workers,
                const std::string& override_directory = "") {
  const jit::CompiledKernel kernel = jit::compile(
      graph, {.target = "cuda", .num_workers = num_workers, .pipeline = {.override_directory = override_directory}});
  runtime::CudaProgram program(graph, kernel, memory.addresses());
  const runtime::CudaContextGuard context(program.ordinal());
  // Constants are on the card already, those that stream in an order of their own.
  std::vector<std::string> states;
  for (const graph::Tensor& tensor : graph.tensors())
    if (tensor.kind == graph::TensorKind::state) states.push_back(tensor.name);
  for (const std::string& name : states) program.upload(name);
  runtime::CudaLauncher launcher(program);
  ASSERT_EQ(launcher.run(), runtime::RunEnd::finished);
  for (const std::string& name : states) program.download(name);
}

// In parts, which processes of their own may run side by side: a kernel of all operators takes minutes to compile.
constexpr int kOperatorParts = 8;
class CudaOperators : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Part, CudaOperators, ::testing::Range(0, kOperatorParts));

TEST_P(CudaOperators, EqualTheInterpreterInAllDeclaredCases) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  std::vector<std::string> names;
  for (int i = 0; const std::string& name : testing::operators_with_cases())
    if (i++ % kOperatorParts == GetParam()) names.push_back(name);
  const testing::OperatorCases all = testing::operator_cases(names);
  testing::GraphMemory memory(all.graph);
  testing::fill_operator_cases(all, memory);
  loop::Arrays expected = memory.arrays();
  graph::interpret(all.graph, optimize::lower(all.graph, "cuda"), expected, 1);
  for (const int num_workers : {1, 3, 100}) {
    testing::fill_operator_cases(all, memory);  // some operators add to what is there
    run_on_gpu(all.graph, memory, num_workers);
    EXPECT_EQ(testing::wrong_operators(all, memory, expected, testing::gpu_slack, engine::kGpuRoundings, "cuda"), "")
        << num_workers << " workers";
  }
}

// However a schedule has weights stream past activations, what comes out is the product.
TEST(CudaOperator, ComputesTheSameHoweverItsWeightsStream) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> value(-1, 1);
  for (const testing::StreamCase& one : testing::stream_cases()) {
    const graph::Graph graph = one.graph();
    testing::GraphMemory memory(graph);
    for (const char* name : {"x", "w", "y"}) {
      std::vector<double> values(static_cast<size_t>(graph.tensor(graph.find(name)).num_elements()));
      for (double& element : values) element = value(random);
      memory.set(name, values);
    }
    loop::Arrays expected = memory.arrays();
    graph::interpret(graph, optimize::lower(graph, "cuda"), expected, 1);
    const test::TemporaryFolder folder;
    file_write_atomic(folder / "plan.txt", one.plan(graph));
    run_on_gpu(graph, memory, 100, folder.path);
    EXPECT_LT(testing::error_in_roundings(memory.array("y"), expected.at("y"), DType::f32, 60), 1) << one.plan(graph);
  }
}

// Gates that nobody wrote a body for.
TEST(CudaOperator, ComputesWhateverBringsTwoProductsTogether) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> value(-1, 1);
  const std::vector<std::pair<std::string, int64_t>> products = {
      {"linear", 1}, {"rmsnorm_linear", 2}, {"linear", 4}, {"linear_rmsnorm_scale", 8}, {"linear", 64}};
  for (const std::string& gate : testing::gates())
    for (const auto& [product, rows] : products) {
      const graph::Graph before = testing::gated_graph(gate, product, rows, DType::bf16, 1024, 258),
                         graph = optimize::optimize(before, "cuda");
      ASSERT_EQ(graph.nodes().size(), 1u);
      testing::GraphMemory memory(graph);
      for (const graph::Tensor& tensor : graph.tensors()) {
        if (tensor.kind == graph::TensorKind::activation) continue;
        std::vector<double> values(static_cast<size_t>(tensor.num_elements()));
        for (double& element : values) element = tensor.name == "squares" ? 300 + value(random) : value(random) / 4;
        memory.set(tensor.name, values);
      }
      loop::Arrays expected = memory.arrays();
      graph::interpret(graph, optimize::lower(graph, "cuda"), expected, 1);
      run_on_gpu(graph, memory, 100);
      // Rows times the norm's weight are rounded to bf16 before they are multiplied: a sum of K terms that are each off
      // by up to a half unit at random is off by about one unit of its own size, 3 of a thousand; and two are multiplied.
      const double roundings = product == "rmsnorm_linear" ? 4 : 1;
      EXPECT_LE(testing::error_in_roundings(memory.array("result"), expected.at("result"), DType::bf16, 1, roundings),
                1)
          << gate << " of " << product << ", " << rows << " rows";
    }
}

struct Prompt {
  std::string text;
  std::vector<int> ids, greedy;
  std::vector<double> lead;  // of each token's logit over the next best
};
std::vector<Prompt> golden_prompts() {
  std::vector<Prompt> prompts;
  const auto golden = nlohmann::json::parse(file_read(kGolden + ".json"));
  for (const auto& prompt : golden.at("prompts"))
    prompts.push_back({prompt.at("text").dump(), prompt.at("ids").get<std::vector<int>>(),
                       prompt.at("greedy").get<std::vector<int>>(), prompt.at("lead").get<std::vector<double>>()});
  return prompts;
}

std::vector<float> logits_of(engine::Engine& engine, const std::vector<int>& tokens) {
  engine.generate({{.prompt = tokens, .max_new_tokens = 1, .ignore_stop_tokens = true}});
  return {engine.logits(), engine.logits() + engine.config().vocab_size};
}

double worst_logit(const std::vector<float>& found, const WeightTensor& wanted) {
  double worst = 0;
  for (size_t v = 0; v < found.size(); ++v)
    worst =
        std::max(worst, std::abs(found[v] - element_load(wanted.bytes.data(), wanted.dtype, static_cast<int64_t>(v))));
  return worst;
}

// With more than 256 rows no operators are fused and activations stay in f32: the tokens are the same up to the first place
// where two are as likely as sums in another order can tell.
TEST(Cuda, TheStorytellerWritesTheTokensThatTransformersWrites) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  constexpr double kTied = 1e-3;  // of logits up to 20: what sums in f32 in another order may come to
  const Weights logits = Weights::open(kGolden + "_logits.safetensors");
  engine::Engine engine(test::kStoryteller, {.decoder = {.max_rows = stream::kMaxWideRows + 16}, .target = "cuda"});
  int index = 0;
  size_t num_equal = 0;
  for (const Prompt& prompt : golden_prompts()) {
    EXPECT_LT(worst_logit(logits_of(engine, prompt.ids), logits.get(fmt::format("prompt.{}", index++))), 2e-2)
        << "logits after " << prompt.text;
    const auto found = engine.generate({{.prompt = prompt.ids, .max_new_tokens = 64, .ignore_stop_tokens = true}});
    const std::vector<int>& tokens = found.tokens[0];
    ASSERT_EQ(tokens.size(), prompt.greedy.size());
    const auto other = static_cast<size_t>(std::ranges::mismatch(tokens, prompt.greedy).in1 - tokens.begin());
    EXPECT_TRUE(other == tokens.size() || prompt.lead[other] < kTied)
        << "token " << other << " after " << prompt.text << ", with a lead of " << prompt.lead[other];
    num_equal += other;
  }
  EXPECT_EQ(index, 8);
  EXPECT_GT(num_equal, 8U * 64 * 9 / 10);
}

double worst_logit(const std::vector<float>& found, const std::vector<float>& wanted) {
  double worst = 0;
  for (size_t v = 0; v < found.size(); ++v)
    worst = std::max(worst, std::abs(static_cast<double>(found[v]) - static_cast<double>(wanted[v])));
  return worst;
}

/// How far the logits of several texts are from those they should be, as a part of their size: in the L2 norm, of one text and of
/// all. Of one text a value that lies between two of bf16 may fall to the other side and take others with it, which doubles it.
class LogitErrors {
 public:
  template <class Wanted>
  double add(const std::vector<float>& found, const Wanted& wanted) {
    double error = 0, size = 0;
    for (size_t v = 0; v < found.size(); ++v) {
      const double logit = wanted(v), difference = found[v] - logit;
      error += difference * difference, size += logit * logit;
    }
    error_ += error, size_ += size;
    const double of_text = std::sqrt(error / size);
    worst_ = std::max(worst_, of_text);
    return of_text;
  }
  double worst() const { return worst_; }
  double of_all() const { return std::sqrt(error_ / size_); }

 private:
  double error_ = 0, size_ = 0, worst_ = 0;
};

// Fused, activations travel in bf16: 8 bits of mantissa, so each is off by 2^-9 at most. Logits, after each prompt and after 64
// tokens more, are those of f32 within that; texts are those of transformers' float32 run up to the first place where two
// tokens are as likely as that can tell.
TEST(Cuda, TheFusedStorytellerWritesThemWithinBf16Rounding) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  constexpr double kRounding = 0x1p-9;  // of the logits' size
  constexpr double kTied = 1e-1;        // of two logits
  const Weights logits = Weights::open(kGolden + "_logits.safetensors");
  engine::Engine exact(test::kStoryteller, {.decoder = {.max_rows = stream::kMaxWideRows + 16}, .target = "cuda"});
  for (const int64_t rows : {1, 4, 8, 16, 64, 128, 256, 512, 2048}) {
    engine::Engine engine(test::kStoryteller, {.decoder = {.max_rows = rows}, .target = "cuda"});
    ASSERT_TRUE(testing::streams_all_products(engine.graph()));
    int index = 0;
    LogitErrors errors;
    for (const Prompt& prompt : golden_prompts()) {
      std::vector<int> text = prompt.ids;
      text.insert(text.end(), prompt.greedy.begin(), prompt.greedy.end());
      const std::vector<float> of_f32 = logits_of(exact, text);
      const WeightTensor& of_prompt = logits.get(fmt::format("prompt.{}", index++));
      const double behind_text = errors.add(logits_of(engine, text), [&](size_t v) { return of_f32[v]; });
      const double behind_prompt = errors.add(logits_of(engine, prompt.ids), [&](size_t v) {
        return element_load(of_prompt.bytes.data(), of_prompt.dtype, static_cast<int64_t>(v));
      });
      EXPECT_LT(std::max(behind_text, behind_prompt), 2 * kRounding) << rows << " rows, logits after " << prompt.text;
      const auto found =
          engine.generate({{.prompt = prompt.ids, .max_new_tokens = 64, .ignore_stop_tokens = true}}).tokens[0];
      ASSERT_EQ(found.size(), prompt.greedy.size());
      const auto [differs, wanted] = std::ranges::mismatch(found, prompt.greedy);
      if (differs == found.end()) continue;
      std::vector<int> so_far = prompt.ids;
      so_far.insert(so_far.end(), found.begin(), differs);
      const std::vector<float> there = logits_of(exact, so_far);
      EXPECT_LT(there[static_cast<size_t>(*wanted)] - there[static_cast<size_t>(*differs)], kTied)
          << rows << " rows, token " << differs - found.begin() << " after " << prompt.text;
    }
    EXPECT_LT(errors.of_all(), kRounding) << rows << " rows";
    fmt::print("{} rows: logits are off by {:.2f} of 2^-9 of their size, by {:.2f} after one text\n", rows,
               errors.of_all() / kRounding, errors.worst() / kRounding);
  }
}

// Prompts of as many tokens as a kernel takes at a time, or not quite, or some more. The largest difference found on an H100
// was that of short ones.
TEST(Cuda, TheFusedStorytellerReadsLongPromptsWithinBf16Rounding) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  constexpr double kRounding = 5e-2;  // of a logit; 3.1e-2 were found
  std::vector<int> text;
  for (const Prompt& prompt : golden_prompts())
    for (const std::vector<int>* part : {&prompt.ids, &prompt.greedy})
      text.insert(text.end(), part->begin(), part->end());
  const std::vector<int> once = text;
  while (text.size() < 800) text.insert(text.end(), once.begin(), once.end());
  engine::Engine exact(test::kStoryteller, {.decoder = {.max_rows = stream::kMaxWideRows + 16}, .target = "cuda"});
  for (const int64_t rows : {256, 272, 512, 1024}) {
    engine::Engine engine(test::kStoryteller, {.decoder = {.max_rows = rows}, .target = "cuda"});
    ASSERT_TRUE(testing::streams_all_products(engine.graph()));
    double worst = 0;
    for (const size_t tokens : {200, 256, 257, 400, 512, 790}) {
      const std::vector<int> prompt(text.begin(), text.begin() + static_cast<ptrdiff_t>(tokens));
      worst = std::max(worst, worst_logit(logits_of(engine, prompt), logits_of(exact, prompt)));
      EXPECT_LT(worst, kRounding) << rows << " rows, logits after " << tokens << " tokens";
    }
    fmt::print("{} rows: no logit is off by more than {:.4f}\n", rows, worst);
  }
}

// Of a few tokens at a time attention takes its keys and values in other ways as a chunk of positions is longer: up to a tile
// a warp, up to what comes into the L2 ahead, and beyond. Beside it prompts are read 512 tokens at a time, which is another
// algorithm; both round activations to bf16. The model was trained on less, so what it makes of them means nothing.
TEST(Cuda, TheFusedStorytellerAttendsToLongSequencesWithinBf16Rounding) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  constexpr double kRounding = 0x1p-9;  // of the logits' size, of each of the two
  const test::TemporaryFolder folder;
  for (const auto& entry : std::filesystem::directory_iterator(test::kStoryteller))
    if (entry.path().filename() != "config.json")
      std::filesystem::create_symlink(entry.path(), folder / entry.path().filename().string());
  auto config = nlohmann::json::parse(file_read(test::kStoryteller + "/config.json"));
  config["max_position_embeddings"] = 16384;
  file_write_atomic(folder / "config.json", config.dump());
  std::vector<int> once, text;
  for (const Prompt& prompt : golden_prompts()) once.insert(once.end(), prompt.greedy.begin(), prompt.greedy.end());
  while (text.size() < 15000) text.insert(text.end(), once.begin(), once.end());
  const auto engine_of = [&](int64_t rows) {
    return std::make_unique<engine::Engine>(
        folder.path, engine::EngineOptions{.decoder = {.max_rows = rows, .max_seq_len = 16384}, .target = "cuda"});
  };
  const auto wide = engine_of(512);
  for (const int64_t rows : {1, 2, 8}) {
    const auto engine = engine_of(rows);
    for (const size_t tokens : {1500, 6000, 9000, 15000}) {
      const std::vector<int> prompt(text.begin(), text.begin() + static_cast<ptrdiff_t>(tokens));
      const std::vector<float> wanted = logits_of(*wide, prompt);
      LogitErrors errors;
      const double error = errors.add(logits_of(*engine, prompt), [&](size_t v) { return wanted[v]; });
      EXPECT_LT(error, 4 * kRounding) << rows << " rows, logits after " << tokens << " tokens";
      fmt::print("{} rows, {} tokens: logits are off by {:.2f} of 2^-9 of their size\n", rows, tokens,
                 error / kRounding);
    }
  }
}

std::vector<float> logits_after(engine::Engine& engine, const std::vector<int>& prompt, int64_t num_tokens) {
  engine.generate({{.prompt = prompt, .max_new_tokens = num_tokens, .ignore_stop_tokens = true}});
  return {engine.logits(), engine.logits() + engine.config().vocab_size};
}

TEST(Cuda, TheSameBitsEveryTimeAndOnAnyNumberOfWorkers) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  engine::Engine all(test::kStoryteller, {.target = "cuda"}),
      few(test::kStoryteller, {.target = "cuda", .num_workers = 7});
  const std::vector<float> first = logits_after(all, {1, 2, 3}, 100);
  EXPECT_EQ(logits_after(all, {1, 2, 3}, 100), first);
  EXPECT_EQ(logits_after(few, {1, 2, 3}, 100), first);
}

TEST(Cuda, ACancelledRunEndsAndTheNextOneWorks) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  engine::Engine engine(test::kStoryteller, {.target = "cuda"});
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

TEST(Cuda, SamplesWhatTheReferenceSamples) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  for (const int64_t vocab : {333, 5000})
    testing::expect_sampling_is_right(
        vocab, [](const graph::Graph& graph, testing::GraphMemory& memory) { run_on_gpu(graph, memory, 100); });
}

TEST(Cuda, SampledTextsAreThoseOfTheCpu) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  engine::Engine gpu(test::kStoryteller, {.target = "cuda"}), cpu(test::kStoryteller, {.num_workers = 2});
  const std::vector<engine::Request> requests = {
      {.prompt = {1, 2, 3},
       .max_new_tokens = 24,
       .sampling = {.temperature = 0.8f, .top_p = 0.9f, .top_k = 40, .seed = 7},
       .ignore_stop_tokens = true}};
  EXPECT_EQ(gpu.generate(requests).tokens, cpu.generate(requests).tokens);
}

TEST(CudaErrors, WithoutAGpuOneClearError) {
  if (testing::missing_gpu().empty()) GTEST_SKIP() << "[SKIP] there is a GPU";
  try {
    engine::Engine engine(test::kStoryteller, {.target = "cuda"});
    FAIL() << "it was made";
  } catch (const SystemError& error) {
    EXPECT_NE(std::string(error.what()).find("--target cpu"), std::string::npos) << error.what();
  }
}

// What a model runs on if nobody says it.
TEST(DefaultTarget, IsTheGpuIfThereIsOne) {
  {
    const test::EnvironmentVariable unsaid("MEGALITH_TARGET", "");
    EXPECT_EQ(jit::default_target(), testing::missing_gpu().empty() ? "cuda" : "cpu");
  }
  for (const std::string said : {"cpu", "cuda", "cuda:sm_90a"}) {
    const test::EnvironmentVariable target("MEGALITH_TARGET", said);
    EXPECT_EQ(jit::default_target(), said);
  }
  const test::EnvironmentVariable target("MEGALITH_TARGET", "gpu");
  EXPECT_THAT([] { jit::default_target(); },
              ::testing::ThrowsMessage<UserError>(::testing::HasSubstr("MEGALITH_TARGET is \"gpu\", want cpu")));
}

}  // namespace
}  // namespace megalith
