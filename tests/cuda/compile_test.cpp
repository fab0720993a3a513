// Every kernel of the bundled model, of the three shapes and of all operators compiles for six kinds of GPUs, as far as
// docs/gpu-testing.md says. No GPU is needed for that. A compilation takes five seconds, half of them to PTX, so where
// bodies are the same at other sizes one of them stands for all, and what the optimiser and the assembler make of them is
// looked at on sm_90a, which they are tuned for; `make test-all` optimises and assembles the others as well.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/temporary_folder.h"
#include "cuda/skip.h"
#include "cuda/stream_cases.h"
#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/base/log.h"
#include "megalith/codegen/emit.h"
#include "megalith/graph/lower.h"
#include "megalith/graph/text.h"
#include "megalith/jit/compile.h"
#include "megalith/jit/cuda/build.h"
#include "megalith/kernels/shared_budget.h"
#include "megalith/machine/machine.h"
#include "megalith/model/decoder.h"
#include "megalith/ops/registry.h"
#include "megalith/optimize/optimize.h"
#include "megalith/optimize/schedule.h"
#include "support/configurations.h"
#include "support/confusing_epilogue.h"
#include "support/gates.h"
#include "support/operator_cases.h"
#include "support/parallel_block.h"
#include "support/stacked_attention.h"
#include "support/streamed.h"

namespace megalith {
namespace {

const machine::Gpu& hopper() { return machine::gpu("sm_90a"); }

std::vector<machine::Gpu> others() {
  std::vector<machine::Gpu> all(machine::gpus().begin(), machine::gpus().end());
  std::erase_if(all, [](const machine::Gpu& gpu) { return gpu.architecture == hopper().architecture; });
  return all;
}

using test::all_configurations;

/// Numbers of rows.
std::vector<int64_t> some_rows(std::vector<int64_t> always, const std::vector<int64_t>& rest) {
  return test::some_of(std::move(always), rest);
}

graph::Graph decoder_graph(const std::string& folder, const std::string& target, int64_t max_rows,
                           int64_t max_requests = 1, DType weights = DType::bf16, int64_t quant_columns = 0,
                           bool shares_caches = false) {
  ModelConfig config = config_read(MEGALITH_SOURCE_DIR "/models/" + folder);
  config.dtype = weights;
  return build_decoder(config, {.max_rows = max_rows,
                                .max_requests = max_requests,
                                .shares_caches = shares_caches,
                                .target = target,
                                .quant_columns = quant_columns});
}

bool is_fused(const std::string& folder, const std::string& target, int64_t max_rows) {
  return target != "cpu" && testing::streams_all_products(decoder_graph(folder, target, max_rows), target);
}

/// Generated bodies may put a few registers aside, but nothing in the decode step of a fused model may. Of many rows
/// the attention may, which stages the heads of a prompt's rows eight at a time beside its sums.
enum class Bodies { generated, few_rows, many_rows };

void expect_compiles(const graph::Graph& graph, const graph::Schedule& schedule, const std::string& name,
                     const machine::Gpu& gpu, Bodies bodies = Bodies::few_rows) {
  const std::string source = codegen::emit_cuda(graph::lower(graph, schedule).kernels, name, schedule.worker).text;
  const auto info = nlohmann::json::parse(codegen::source_info(source));
  const auto scratch_bytes = info.at("scratch_bytes").get<int64_t>(), area_bytes = info.at("area_bytes").get<int64_t>();
  // Found in the cache where neither this kernel nor the compiler has changed: what is checked is the same.
  const jit::CudaBuild result = jit::compile_cubin(name, source, std::string(gpu.architecture));
  EXPECT_FALSE(result.cubin.empty());
  EXPECT_NE(result.ptx.find("megalith_worker"), std::string::npos);
  EXPECT_EQ(result.log.find("warning"), std::string::npos) << result.log;
  EXPECT_GT(result.resources.registers, 0) << result.log;
  EXPECT_LE(result.resources.registers, 112);
  const std::string what = fmt::format("{} for {}: {}", name, gpu.architecture, result.resources.text());
  // Registers that go to local memory are traffic that no plan knows of. The worker keeps a few there around a call,
  // and sampling, which comes once a token, may.
  for (const auto& [function, bytes] : result.resources.spills)
    if (function != "megalith_worker" && function.find("sampl") == std::string::npos && bodies != Bodies::generated) {
      EXPECT_TRUE(bodies == Bodies::many_rows && function.find("rope_attention") != std::string::npos) << what;
    }
  // Where few rows stream, or none, the worker's variables lie in what a launch asks for (common/shared_variables.cuh).
  const auto configured = [&](const char* of) {
    const std::string field = fmt::format(".{} = ", of);
    return std::stoll(source.substr(source.find(field) + field.size()));
  };
  const int64_t streamed = configured("stream_rows");
  const bool knows_addresses = result.ptx.find("dynamic_shared") == std::string::npos;
  EXPECT_EQ(knows_addresses, gpu.architecture == hopper().architecture && streamed <= stream::kMaxRowsOfWords &&
                                 configured("table_rows") <= 128);
  const int64_t more_variables = stream::more_variables_bytes(streamed);
  EXPECT_LE(result.resources.shared_bytes,
            stream::kStaticBytes + (knows_addresses ? 0 : stream::kVariablesBytes + more_variables))
      << "what the compiler keeps there";
  // Where a row of weights is one chunk (the small model) ways part inside of what the tensor cores have under way.
  if (name.starts_with("shapes/")) {
    EXPECT_EQ(result.log.find("serialized"), std::string::npos) << "tensor cores wait for each other: " << result.log;
  }
  // Of architectures that nothing was tuned for, it is 116 bytes at most with few rows, and 408 with many.
  if (bodies != Bodies::generated) {
    const bool is_tuned = gpu.architecture == hopper().architecture, is_few = bodies == Bodies::few_rows;
    const auto worker = result.resources.spills.find("megalith_worker");
    const int spilled = worker == result.resources.spills.end() ? 0 : worker->second;
    EXPECT_LE(spilled, is_tuned ? 0 : is_few ? 120 : 420) << what;
  }
  EXPECT_EQ(scratch_bytes, 0) << what << ": it would lie in device memory";
  const int64_t scale_bytes = info.value("scale_bytes", 0);
  const int64_t ring_bytes =
      (stream::kChunkBytes + scale_bytes) * stream::ring_slots(gpu.shared_bytes, area_bytes, streamed, scale_bytes);
  EXPECT_GT(ring_bytes, 0) << what << ": no room for weights beside an area of " << area_bytes;
  EXPECT_LE(stream::kReservedBytes + more_variables + area_bytes + ring_bytes, gpu.shared_bytes) << what;
  std::printf("%s, an area of %d bytes and a ring of %d\n", what.c_str(), static_cast<int>(area_bytes),
              static_cast<int>(ring_bytes));
}

/// Half the time, or a tenth with MEGALITH_OPTIMIZE=little: what the optimiser and the assembler make of it is not looked
/// at. Tests that call it run in a process of their own (tests/CMakeLists.txt): what NVRTC 13 compiles behind a quick
/// compilation has other registers than alone, in the worker for sm_120a 152 bytes of spills instead of 36.
void expect_ptx(const graph::Graph& graph, const std::string& name, const machine::Gpu& gpu) {
  const std::string target = fmt::format("cuda:{}", gpu.architecture), architecture(gpu.architecture);
  const graph::Schedule schedule = optimize::make_schedule(graph, target);
  const std::string source = codegen::emit_cuda(graph::lower(graph, schedule).kernels, name, schedule.worker).text;
  const jit::NvrtcResult result =
      jit::nvrtc_compile(source, name, "compute_" + architecture.substr(3), codegen::cuda_compile_flags(architecture));
  EXPECT_NE(result.ptx.find("megalith_worker"), std::string::npos);
  EXPECT_EQ(result.log.find("warning"), std::string::npos) << result.log;
}

void expect_compiles(const graph::Graph& graph, const std::string& name, const machine::Gpu& gpu,
                     Bodies bodies = Bodies::few_rows) {
  const std::string target = fmt::format("cuda:{}", gpu.architecture);
  expect_compiles(graph, optimize::make_schedule(graph, target), name, gpu, bodies);
}

class CudaCompile : public ::testing::TestWithParam<const char*> {};

TEST_P(CudaCompile, EveryKernelOfTheModel) {
  MEGALITH_SKIP_IF(testing::missing_compiler());
  const std::string folder = GetParam();
  // Sizes are all that the others' generated bodies have of their own, and the largest takes the most registers.
  if (folder == "shapes/Qwen3-8B" || all_configurations())
    expect_compiles(decoder_graph(folder, "cpu", 64), folder, hopper(), Bodies::generated);
}

void expect_fused_compiles(const std::string& folder, const machine::Gpu& gpu, int64_t rows, int64_t requests = 1,
                           DType weights = DType::bf16, int64_t quant_columns = 0) {
  const std::string target = fmt::format("cuda:{}", gpu.architecture);
  expect_compiles(decoder_graph(folder, target, rows, requests, weights, quant_columns),
                  fmt::format("{}, {} rows, {} texts{}{}", folder, rows, requests,
                              weights == DType::bf16 ? "" : fmt::format(", {}", dtype_name(weights)),
                              quant_columns == 0 ? "" : ", int8"),
                  gpu,
                  !is_fused(folder, target, rows) ? Bodies::generated
                  : rows > stream::kMaxRows       ? Bodies::many_rows
                                                  : Bodies::few_rows);
}

// Where shared memory has no room for the weights beside so many rows the decoder is not fused; it compiles all the
// same. The largest shows each kind of body: of one row, whose weight tiles are cut in two slices as those of 4 are; of 8
// in one slice; of many, 64 or 128; and of more, whose activations come through the ring. The small model's rows of
// weights are one chunk, where ways part. Qwen3-0.6B has the largest's heads and fewer of all else, and as many rows as there are.
TEST_P(CudaCompile, EveryFusedKernelOfTheModel) {
  MEGALITH_SKIP_IF(testing::missing_compiler());
  const std::string folder = GetParam();
  const bool is_largest = folder == "shapes/Qwen3-8B";
  for (const int64_t rows : is_largest                      ? some_rows({1, 8, 64, 256}, {4, 128})
                            : folder == "storyteller"       ? some_rows({64}, {1, 4, 8, 128})
                            : folder == "shapes/Qwen3-0.6B" ? some_rows({2048}, {1, 4, 8, 64, 128, 512, 1024})
                                                            : some_rows({}, {1, 4, 8, 64, 128}))
    expect_fused_compiles(folder, hopper(), rows);
  // Whose caches lie in pairs of heads: of 128 and of 64 values.
  if (is_largest || folder == "shapes/Llama-3.2-1B" || all_configurations())
    expect_fused_compiles(folder, hopper(), 64, 64);
}
INSTANTIATE_TEST_SUITE_P(Models, CudaCompile,
                         ::testing::Values("storyteller", "shapes/Qwen3-0.6B", "shapes/Llama-3.2-1B",
                                           "shapes/Qwen3-8B"),
                         [](const auto& one) {
                           std::string name = one.param;
                           std::ranges::replace_if(
                               name, [](char c) { return !std::isalnum(c); }, '_');
                           return name;
                         });

// With an epilogue, of one row, a few and many; of one row F16TakesTheSameRegisters has it, too.
TEST(CudaCompile, EpiloguesSpillNothing) {
  MEGALITH_SKIP_IF(testing::missing_compiler());
  for (const int64_t rows : some_rows({64}, {1, 4})) {
    ASSERT_TRUE(is_fused("shapes/Qwen2.5-7B", "cuda:sm_90a", rows));
    expect_fused_compiles("shapes/Qwen2.5-7B", hopper(), rows);
  }
}

// A block that nobody wrote an operator for: its sums are epilogues, one of them of an activation. Many rows hold the
// most in registers.
TEST(CudaCompile, ABlockThatNobodyDrewSpillsNothing) {
  MEGALITH_SKIP_IF(testing::missing_compiler());
  testing::add_parallel_block();
  const std::string folder = "../examples/parallel_block";
  for (const int64_t rows : some_rows({64}, {1, 4})) {
    ASSERT_TRUE(is_fused(folder, "cuda:sm_90a", rows));
    expect_fused_compiles(folder, hopper(), rows);
  }
}

// Whatever brings two products together, behind a norm or not: each of them behind one product, and one of them behind
// each.
TEST(CudaCompile, AnyGateIsAnEpilogueOfBothProducts) {
  MEGALITH_SKIP_IF(testing::missing_compiler());
  const std::vector<std::pair<std::string, int64_t>> products = {
      {"linear", 1}, {"rmsnorm_linear", 2}, {"linear_rmsnorm_scale", 8}, {"linear", 4}, {"linear", 64}};
  for (const std::string& gate : testing::gates())
    for (const auto& [product, rows] : products) {
      const graph::Graph fused =
          optimize::optimize(testing::gated_graph(gate, product, rows, DType::bf16, 1024, 256), "cuda:sm_90a");
      ASSERT_EQ(fused.nodes().size(), 1u) << gate << " of " << product;
      if (gate != testing::gates().front() && std::pair(product, rows) != products.back() && !all_configurations())
        continue;
      expect_compiles(fused, fmt::format("{} of {}, {} rows", gate, product, rows), hopper());
    }
}

// A gate without a norm in front, of rows that are no whole blocks.
TEST(CudaCompile, AParallelBlockHasItsGateInOneNode) {
  MEGALITH_SKIP_IF(testing::missing_compiler());
  testing::add_parallel_block();
  ModelConfig config = config_read(MEGALITH_SOURCE_DIR "/tests/golden/tiny/llama_untied");
  config.architecture = "ParallelBlockForCausalLM";
  for (const int64_t rows : {2, 64}) {
    const graph::Graph graph = build_decoder(config, {.max_rows = rows, .max_seq_len = 128, .target = "cuda:sm_90a"});
    EXPECT_TRUE(std::ranges::any_of(graph.nodes(),
                                    [](const auto& n) { return n.op->name.find("gate_up") != std::string::npos; }));
    if (rows == 64 || all_configurations()) expect_ptx(graph, "block", hopper());
  }
}

TEST(CudaCompile, AProductSpillsNothingHoweverItsWeightsStream) {
  MEGALITH_SKIP_IF(testing::missing_compiler());
  for (const testing::StreamCase& one : std::span(testing::stream_cases()).first(4)) {
    const graph::Graph graph = one.graph();
    const graph::Schedule schedule = graph::parse_schedule(one.plan(graph), graph, "cuda");
    optimize::check_schedule(graph, schedule);
    expect_compiles(graph, schedule, fmt::format("a product of {} tokens", one.tokens), hopper());
  }
}

// Whatever an epilogue's operands are called, bodies have their own.
TEST(CudaCompile, AnEpilogueIsNotTakenForWhatItStandsBehind) {
  MEGALITH_SKIP_IF(testing::missing_compiler());
  constexpr int64_t kOutputs = 64, kColumns = 1024;
  const std::vector<std::pair<std::string, int64_t>> producers = {{"rmsnorm_linear", 1},        {"linear", 1},
                                                                  {"linear_rmsnorm_scale", 8},  {"linear", 8},
                                                                  {"linear_rmsnorm_scale", 64}, {"linear", 64}};
  for (const auto& [op, rows] : producers) {
    graph::Graph g(testing::registry_with_confusing_epilogue());
    std::vector<graph::TensorId> inputs = {g.state("x", DType::bf16, {rows, kColumns})};
    if (op == "rmsnorm_linear") inputs.push_back(g.constant("norm", DType::bf16, {kColumns}));
    if (op == "linear_rmsnorm_scale") inputs.push_back(g.state("squares", DType::f32, {rows, 3}));
    inputs.push_back(g.constant("weight", DType::bf16, {kOutputs, kColumns}));
    testing::add_confusing(g, g.apply(op, "first", inputs, {.dtypes = {{"y", DType::bf16}}}), DType::bf16, rows,
                           kOutputs);
    const graph::Graph fused = optimize::optimize(g, "cuda:sm_90a");
    ASSERT_EQ(fused.nodes().size(), 1u) << op << " of " << rows;
    for (const std::string& operand : fused.nodes()[0].op->epilogue->operands)
      EXPECT_TRUE(operand.starts_with("epilogue_")) << operand;
    expect_compiles(fused, fmt::format("{} with an epilogue, {} rows", op, rows), hopper());
  }
}

// Weights of f16 are multiplied by the same bodies: many rows, which hold the most in registers, and one.
TEST(CudaCompile, F16TakesTheSameRegisters) {
  MEGALITH_SKIP_IF(testing::missing_compiler());
  for (const int64_t rows : some_rows({64}, {1, 2, 4, 8, 128}))
    expect_fused_compiles("shapes/Qwen3-8B", hopper(), rows, 1, DType::f16);
  expect_fused_compiles("shapes/Qwen2.5-7B", hopper(), 1, 1, DType::f16);  // with an epilogue
}

// Tables of angles may be of bf16, and as wide as a head. The first few are of each kind of attention: of a few rows, of
// a prompt's, of many requests'; and one is narrow, one of f32.
TEST(CudaCompile, TablesOfWholeHeadsSpillNothing) {
  MEGALITH_SKIP_IF(testing::missing_compiler());
  struct Tables {
    int64_t rows, requests;
    bool wide;
    DType dtype;
  };
  const std::vector<Tables> tables = test::some_of<Tables>(
      {{8, 2, true, DType::bf16}, {64, 64, true, DType::bf16}, {4, 2, false, DType::bf16}, {64, 2, true, DType::f32}},
      {{1, 1, true, DType::bf16}, {4, 2, true, DType::bf16}, {64, 2, true, DType::bf16}, {4, 2, true, DType::f32}});
  for (const auto& [rows, requests, wide, dtype] : tables) {
    const graph::Graph g = optimize::optimize(testing::stacked_attention({.rows = rows,
                                                                          .head_norms = true,
                                                                          .head = 128,
                                                                          .groups = 8,
                                                                          .wide_tables = wide,
                                                                          .tables = dtype,
                                                                          .requests = requests,
                                                                          .pages = 64,
                                                                          .page = 64,
                                                                          .hidden = 1024}),
                                              "cuda:sm_90a");
    EXPECT_EQ(std::ranges::count(g.rewrites(), "fuse_attention", &graph::Rewrite::rule), 2) << graph::print(g);
    expect_compiles(g,
                    fmt::format("attention of {} rows, {} texts, {} tables of {}", rows, requests,
                                wide ? "wide" : "narrow", dtype_name(dtype)),
                    hopper(), rows > stream::kMaxRows ? Bodies::many_rows : Bodies::few_rows);
  }
}

// Of a prompt's last layer only rows that are sampled are left, so its kernel has bodies of both; and with room for many it has
// grown beyond what the compiler inlines by itself.
TEST(CudaCompile, PromptsWithRoomForManySequencesMultiplySideBySide) {
  MEGALITH_SKIP_IF(testing::missing_compiler());
  for (const int64_t requests : {64, 128}) {
    const graph::Graph graph = decoder_graph("shapes/Qwen3-8B", "cuda:sm_90a", 512, requests, DType::bf16, 0, true);
    const graph::Schedule schedule = optimize::make_schedule(graph, "cuda:sm_90a");
    const std::string source =
        codegen::emit_cuda(graph::lower(graph, schedule).kernels, "prompts", schedule.worker).text;
    const jit::KernelResources resources = jit::compile_cubin("prompts", source, "sm_90a").resources;
    EXPECT_FALSE(resources.multiplies_one_by_one) << requests;
    EXPECT_LE(resources.shared_bytes, stream::kStaticBytes + stream::kVariablesBytes) << requests;
  }
}

// In int8 nothing spills either: many rows, which hold the most in registers, and one.
TEST(CudaCompile, Int8SpillsNothing) {
  MEGALITH_SKIP_IF(testing::missing_compiler());
  for (const int64_t rows : some_rows({64}, {1, 2, 4, 8, 16, 128}))
    expect_fused_compiles("shapes/Qwen3-8B", hopper(), rows, 1, DType::bf16, 32);
  for (const int64_t rows : some_rows({1}, {8, 64}))
    expect_fused_compiles("shapes/Qwen3-8B", hopper(), rows, 1, DType::f16, 128);
}

// Other GPUs compile the small model both ways, of a few, a chunk's and many sequences' rows, and those that have room for
// its activations the largest shape: sm_80 and sm_100a. Their bodies are the same source, so each of the two has some of
// the kernels, to PTX, and each shows that the assembler takes one. The rest are those two with less shared memory, of
// which sm_120a is assembled; to our source sm_89 is sm_86.
class CudaCompileOther : public ::testing::TestWithParam<machine::Gpu> {};
TEST_P(CudaCompileOther, TheSmallModelAndTheLargest) {
  MEGALITH_SKIP_IF(testing::missing_compiler());
  const machine::Gpu& gpu = GetParam();
  const std::string target = fmt::format("cuda:{}", gpu.architecture);
  const bool is_oldest = gpu.architecture == "sm_80", is_newest = gpu.architecture == "sm_100a",
             all = all_configurations();
  if (all || is_oldest || is_newest || gpu.architecture == "sm_120a") expect_fused_compiles("storyteller", gpu, 4);
  if (!all) return;
  expect_compiles(decoder_graph("storyteller", "cpu", 64), "storyteller", gpu, Bodies::generated);
  if (gpu.architecture == "sm_89") return;
  expect_fused_compiles("storyteller", gpu, 128);
  expect_fused_compiles("storyteller", gpu, 64, 64);
  if (is_fused("shapes/Qwen3-8B", target, 4)) expect_fused_compiles("shapes/Qwen3-8B", gpu, 4);
  for (const int64_t rows : {1, 4, 64}) expect_fused_compiles("storyteller", gpu, rows, 1, DType::f16);
  for (const int64_t rows : {1, 4, 8, 64})
    if (is_fused("storyteller", target, rows)) expect_fused_compiles("storyteller", gpu, rows, 1, DType::bf16, 32);
}

TEST_P(CudaCompileOther, SomeToPtx) {
  MEGALITH_SKIP_IF(testing::missing_compiler());
  const machine::Gpu& gpu = GetParam();
  const std::string target = fmt::format("cuda:{}", gpu.architecture);
  if (gpu.architecture == "sm_80") {
    expect_ptx(decoder_graph("shapes/Qwen3-8B", target, 4), "Qwen3-8B", gpu);
    expect_ptx(decoder_graph("storyteller", target, 64, 64), "storyteller, many sequences", gpu);
    expect_ptx(decoder_graph("storyteller", target, 64, 1, DType::f16), "storyteller, f16", gpu);
  } else if (gpu.architecture == "sm_100a") {
    expect_ptx(decoder_graph("storyteller", "cpu", 64), "storyteller, generated", gpu);
    expect_ptx(decoder_graph("storyteller", target, 128), "storyteller, many rows", gpu);
    expect_ptx(decoder_graph("storyteller", target, 8, 1, DType::bf16, 32), "storyteller, int8", gpu);
  } else {
    expect_ptx(decoder_graph("storyteller", target, 4), "storyteller", gpu);
  }
}
INSTANTIATE_TEST_SUITE_P(Architectures, CudaCompileOther, ::testing::ValuesIn(others()),
                         [](const auto& one) { return std::string(one.param.architecture); });

TEST(CudaCompile, KernelsForRacecheck) {
  MEGALITH_SKIP_IF(testing::missing_compiler());
  const std::string architecture(hopper().architecture);
  const std::vector<std::string> usual = codegen::cuda_compile_flags(architecture);
  const test::EnvironmentVariable racecheck("MEGALITH_RACECHECK", "1");
  EXPECT_EQ(codegen::cuda_compile_flags(architecture).size(), usual.size() + 1);
  for (const int64_t rows : some_rows({64}, {1}))  // of many there is more that a barrier guards
    expect_ptx(decoder_graph("storyteller", "cuda:sm_90a", rows), fmt::format("storyteller, {} rows", rows), hopper());
}

// Where ptxas optimises little, shared memory that a launch asks for begins right behind the variables.
TEST(CudaCompile, KernelsThatAreCompiledQuickly) {
  MEGALITH_SKIP_IF(testing::missing_compiler());
  const test::EnvironmentVariable optimize("MEGALITH_OPTIMIZE", "full");
  const std::string architecture(hopper().architecture);
  const std::vector<std::string> flags = codegen::cuda_compile_flags(architecture, codegen::Effort::quick);
  for (const int64_t rows : some_rows({1, 64}, {8, 512})) {
    const graph::Graph graph = decoder_graph("storyteller", "cuda:sm_90a", rows);
    const graph::Schedule schedule = optimize::make_schedule(graph, "cuda:sm_90a");
    const std::string source = codegen::emit_cuda(graph::lower(graph, schedule).kernels, "quick", schedule.worker).text;
    const jit::CudaBuild result =
        jit::compile_cubin("quick", source, architecture, jit::KernelCache::from_environment(), flags);
    EXPECT_GT(result.resources.registers, 0) << result.log;
    const bool knows_addresses = result.ptx.find("dynamic_shared") == std::string::npos;
    EXPECT_EQ(knows_addresses, rows <= stream::kMaxRowsOfWords);
    EXPECT_LE(result.resources.shared_bytes, stream::kStaticBytes + (knows_addresses ? 0 : stream::kVariablesBytes));
    EXPECT_EQ(result.ptx.find(".extern .shared .align 1024 "), std::string::npos)
        << "addresses would be taken for multiples of that, which they are not";
  }
}

// A kernel for each operator: a hundred bodies in one take twice as long. What differs between architectures, and what
// the assembler makes of bodies, shows in the models' kernels.
class CudaCompileOperator : public ::testing::TestWithParam<std::string> {};
TEST_P(CudaCompileOperator, InEveryDtype) {
  MEGALITH_SKIP_IF(testing::missing_compiler());
  const testing::OperatorCases cases = testing::some_operator_cases(GetParam());
  if (all_configurations())
    expect_compiles(cases.graph, GetParam(), hopper(), Bodies::generated);
  else
    expect_ptx(cases.graph, GetParam(), hopper());
}
INSTANTIATE_TEST_SUITE_P(Operators, CudaCompileOperator, ::testing::ValuesIn(testing::operators_with_cases()),
                         [](const auto& one) { return one.param; });

// Steps of one row beside a first step and a large model of several.
TEST(CudaCompile, ADraftModelsStepsSpillNothing) {
  MEGALITH_SKIP_IF(testing::missing_compiler());
  const std::string shapes = MEGALITH_SOURCE_DIR "/models/shapes/";
  const DecoderOptions options{.max_rows = 5,
                               .draft_tokens = 2,
                               .draft_model = std::make_shared<const ModelConfig>(config_read(shapes + "Qwen3-0.6B")),
                               .target = "cuda:sm_90a"};
  expect_compiles(build_decoder(config_read(shapes + "Qwen3-8B"), options), "shapes/Qwen3-8B with Qwen3-0.6B",
                  hopper());
}

// The streams of weights were made for a ring of another length.
TEST(CudaCompile, AnEditedWorkspaceThatLeavesAShortRingIsRefused) {
  MEGALITH_SKIP_IF(testing::missing_compiler());
  graph::Graph graph(ops::builtin(), "projection");
  graph.add("linear", "projected",
            {graph.state("x", DType::bf16, {64, 512}), graph.constant("w", DType::bf16, {24000, 512})},
            {.outputs = {{"y", graph.state("y", DType::bf16, {64, 24000})}}});
  jit::CompileOptions options{.target = "cuda:sm_90a", .num_workers = 132, .plan_only = true, .pipeline = {}};
  std::string source = jit::compile(graph, options).source;
  const auto area = nlohmann::json::parse(codegen::source_info(source)).at("area_bytes").get<int64_t>();
  for (const char* before : {".area_bytes = ", "\"area_bytes\": "}) {
    const std::string text = fmt::format("{}{}", before, area);
    const size_t at = source.find(text);
    ASSERT_NE(at, std::string::npos) << text;
    source.replace(at, text.size(), fmt::format("{}{}", before, area + (64 << 10)));
  }
  const test::TemporaryFolder folder;
  file_write_atomic(folder / "kernel.cu", source);
  options.plan_only = false, options.pipeline.override_directory = folder.path;
  EXPECT_EQ(test::message_of<UserError>([&] { jit::compile(graph, options); }),
            fmt::format("[jit] the source's workspace of {} bytes leaves a ring of 4 weight tiles, and the streams of "
                        "weights come in an order for at least 5: leave area_bytes of kWorkerConfig as it was emitted",
                        area + (64 << 10)));
}

TEST(CudaCompile, ADecodersSizesAreLookedUpOnceAnIteration) {
  for (const int64_t rows : {1, 8, 64, 256})
    for (const char* target : {"cpu", "cuda"}) {
      const graph::Graph graph = decoder_graph("storyteller", target, rows);
      EXPECT_EQ(graph.lasting_sizes(), graph.find("counts")) << target << ", " << rows;
    }
}

TEST(CudaCompile, DecodersAreFusedWhereWeightsHaveRoomBesideActivations) {
  EXPECT_TRUE(is_fused("storyteller", "cuda:sm_80", 8));
  EXPECT_TRUE(is_fused("shapes/Qwen3-8B", "cuda", 4));
  EXPECT_TRUE(is_fused("shapes/Qwen3-8B", "cuda", 8)) << "8 rows of 12288 values are 192 KiB, but come in parts";
  EXPECT_TRUE(is_fused("shapes/Llama-3.2-1B", "cuda:sm_90a", 8));
  EXPECT_TRUE(is_fused("shapes/Llama-3.2-1B", "cuda:sm_80", 8));
  EXPECT_TRUE(is_fused("shapes/Qwen3-8B", "cuda:sm_86", 8)) << "a task of attention has one row at a time";
  EXPECT_TRUE(is_fused("storyteller", "cuda", 64));
  EXPECT_FALSE(is_fused("shapes/Qwen3-8B", "cuda:sm_86", 64));
  EXPECT_TRUE(is_fused("storyteller", "cuda", 512));
  EXPECT_TRUE(is_fused("storyteller", "cuda", 2048));
  EXPECT_FALSE(is_fused("storyteller", "cuda", 2049));
  EXPECT_FALSE(is_fused("storyteller", "cpu", 4));
}

TEST(CudaForms, WhatSeveralRowsMultiplyNextLiesInBlocks) {
  const auto blocked = [](int64_t rows) {
    const graph::Graph graph = decoder_graph("storyteller", "cuda:sm_90a", rows);
    const graph::Schedule schedule = optimize::make_schedule(graph, "cuda");
    std::set<std::string> names;
    for (size_t i = 0; i < graph.tensors().size(); ++i) {
      const std::string& name = graph.tensors()[i].name;
      if (schedule.layouts[i] == graph::Layout::fragments &&
          (name.starts_with("layer.0.") || name.starts_with("embed")))
        names.insert(name);
    }
    return names;
  };
  const std::set<std::string> all = {"embed.copy", "layer.0.o.copy", "layer.0.gate_up", "layer.0.down.copy"};
  const auto with = [&](const char* name) {
    std::set<std::string> names = all;
    names.insert(name);
    return names;
  };
  EXPECT_EQ(blocked(64), with("layer.0.attention"));
  for (const int64_t rows : {3, 4, 8}) EXPECT_EQ(blocked(rows), with("layer.0.attention")) << rows;
  EXPECT_THAT(blocked(2), ::testing::IsEmpty());
}

// What runs a node, and how its tensors lie, does not depend on which of the two kinds of floats its weights are.
TEST(CudaForms, OfF16AreThoseOfBf16) {
  for (const char* folder : {"shapes/Llama-3.2-1B", "shapes/Qwen3-8B", "shapes/Qwen2.5-7B"})
    for (const auto& [rows, requests] : {std::pair<int64_t, int64_t>(1, 1), {4, 1}, {8, 4}, {64, 1}, {128, 64}}) {
      const auto forms = [&](DType weights) {
        const graph::Graph graph = decoder_graph(folder, "cuda:sm_90a", rows, requests, weights);
        const graph::Schedule schedule = optimize::make_schedule(graph, "cuda");
        std::vector<std::string> all;
        for (size_t n = 0; n < graph.nodes().size(); ++n) {
          const graph::TunedBody* const body = schedule.body(n);
          std::string text = fmt::format("{}: {}", graph.nodes()[n].name, body ? body->name : "generated");
          for (const graph::TensorId tensor : graph.nodes()[n].operands)
            text += fmt::format(", {}", graph::kLayoutNames[static_cast<size_t>(schedule.layout(tensor))]);
          all.push_back(text);
        }
        return all;
      };
      EXPECT_EQ(forms(DType::f16), forms(DType::bf16)) << folder << ", " << rows << " rows";
    }
}

// All that is streamed comes in int8, and nothing else is different.
TEST(CudaForms, OfInt8AreThoseOfBf16ButForTheStreams) {
  for (const int64_t rows : {1, 8, 64}) {
    const graph::Graph plain = decoder_graph("shapes/Qwen3-8B", "cuda:sm_90a", rows),
                       int8 = decoder_graph("shapes/Qwen3-8B", "cuda:sm_90a", rows, 1, DType::bf16, 32);
    const graph::Schedule of_plain = optimize::make_schedule(plain, "cuda"),
                          of_int8 = optimize::make_schedule(int8, "cuda");
    ASSERT_EQ(int8.nodes().size(), plain.nodes().size());
    int64_t num_streamed = 0;
    for (size_t n = 0; n < int8.nodes().size(); ++n) {
      const graph::TunedBody* const body = of_int8.body(n);
      EXPECT_EQ(body, of_plain.body(n)) << int8.nodes()[n].name;
      for (size_t i = 0; i < int8.nodes()[n].operands.size(); ++i) {
        const graph::TensorId tensor = int8.nodes()[n].operands[i];
        const bool is_streamed = body && body->streamed &&
                                 std::ranges::find(body->streamed->operands, int8.nodes()[n].op->operands[i].name) !=
                                     body->streamed->operands.end();
        if (!is_streamed) continue;
        ++num_streamed;
        EXPECT_EQ(of_int8.layout(tensor), graph::Layout::int8) << int8.tensor(tensor).name;
      }
    }
    EXPECT_EQ(num_streamed, 36 * 5 + 1);
  }
}

TEST(CudaCompile, TheCompilersErrorsNameTheKernel) {
  MEGALITH_SKIP_IF(testing::missing_compiler());
  try {
    jit::nvrtc_compile("not C++", "broken", "sm_90a", {});
    FAIL() << "it compiled";
  } catch (const SystemError& error) {
    EXPECT_NE(std::string(error.what()).find("does not compile \"broken\" for sm_90a"), std::string::npos)
        << error.what();
  }
}

// It goes on beside the plan, and takes seconds; a kernel that it had ended with would be in the cache.
TEST(CudaCompile, NobodyWaitsForTheCompilerIfThePlanFails) {
  MEGALITH_SKIP_IF(testing::missing_compiler());
  const test::TemporaryFolder folder;
  const test::EnvironmentVariable cache("MEGALITH_CACHE_DIR", folder.path);
  try {
    jit::compile(decoder_graph("storyteller", "cuda:sm_90a", 1), {.target = "cuda:sm_90a", .num_workers = 2000});
    FAIL() << "it was planned";
  } catch (const UserError& error) { EXPECT_THAT(error.what(), ::testing::HasSubstr("2000 workers, want 1 to 1024")); }
  const std::filesystem::path kernels = folder / "kernels";
  EXPECT_TRUE(!std::filesystem::exists(kernels) || std::filesystem::is_empty(kernels));
}

TEST(CudaResources, AreReadFromTheAssemblersReport) {
  const jit::KernelResources found = jit::parse_resources(
      "ptxas info    : Function properties for megalith_worker\n"
      "ptxas         .     48 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads\n"
      "ptxas info    : Used 72 registers, used 1 barriers, 48 bytes cumulative stack size, 320 bytes smem\n");
  EXPECT_EQ(found.text(),
            "72 registers, 320 bytes of shared memory, 48 bytes of stack, 12 bytes of spills in "
            "megalith_worker");
  EXPECT_EQ(
      jit::parse_resources("ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are "
                           "serialized due to wgmma "
                           "pipeline crossing function boundary at a function call in the function 'megalith_worker'\n"
                           "ptxas info    : Used 96 registers, used 1 barriers, 320 bytes smem\n")
          .text(),
      "96 registers, 320 bytes of shared memory, 0 bytes of stack, no spills, tensor cores multiply one by one");
}

TEST(CudaLibraries, SayWhereTheyWereLookedFor) {
  try {
    jit::SharedLibrary({"libmegalith_no_such.so"}, {"/nowhere"}, "do this");
    FAIL() << "it was opened";
  } catch (const SystemError& error) {
    EXPECT_STREQ(error.what(),
                 "[cuda] cannot open libmegalith_no_such.so: looked where the dynamic linker looks and in "
                 "/nowhere; do this");
  }
}

}  // namespace
}  // namespace megalith
