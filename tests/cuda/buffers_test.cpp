// Every buffer of a decode step on the GPU against the CPU's on the same graph, in the order of the program, so that
// what differs first is named: task, buffer, element. Step by step the GPU goes on from the CPU's states.
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "base/temporary_folder.h"
#include "cuda/skip.h"
#include "megalith/base/file.h"
#include "megalith/engine/quantize.h"
#include "megalith/kernels/stream_limits.h"
#include "megalith/model/config.h"
#include "megalith/model/decoder.h"
#include "megalith/optimize/schedule.h"
#include "megalith/runtime/cuda/launcher.h"
#include "megalith/runtime/cuda/program.h"
#include "support/configurations.h"
#include "support/decoder_steps.h"
#include "support/parallel_block.h"
#include "support/streamed.h"

namespace megalith {
namespace {

using testing::CpuDecoderSteps;
using testing::DecoderSteps;

const std::string kStoryteller = MEGALITH_SOURCE_DIR "/models/storyteller";
const std::string kTiny = MEGALITH_SOURCE_DIR "/tests/golden/tiny/";

class CudaDecoderSteps : public DecoderSteps {
 public:
  using DecoderSteps::DecoderSteps;
  void run() override {
    const runtime::CudaContextGuard context(jit::cuda_device().ordinal);
    if (!program_) {
      program_ = std::make_unique<runtime::CudaProgram>(graph_, kernel_, memory_.addresses(),
                                                        std::set<std::string>{"mailbox"});
      program_->set_num_iterations(1);
      mail_ = runtime::PinnedMemory(kRecords * sizeof(runtime::MailRecord), "the mail");
    }
    auto* const mailbox = program_->shared<runtime::Mailbox>("mailbox");
    runtime::mailbox_init(mailbox, mail_.data<runtime::MailRecord>(), kRecords);
    each_state([&](const std::string& name) { program_->upload(name); });
    runtime::CudaLauncher(*program_, {.mailbox = mailbox}).run();
    each_state([&](const std::string& name) { program_->download(name); });
  }

 private:
  void each_state(const std::function<void(const std::string&)>& visit) const {
    for (const graph::Tensor& tensor : graph_.tensors())
      if (tensor.kind == graph::TensorKind::state && tensor.name != "mailbox") visit(tensor.name);
  }
  void read(graph::TensorId activation, void* to) const override {
    const runtime::CudaContextGuard context(program_->ordinal());
    program_->download(graph_, activation, to);
  }
  // Nobody takes them; a step wants room for all that 32 sequences may have to say.
  static constexpr runtime::u32 kRecords = 1024;
  std::unique_ptr<runtime::CudaProgram> program_;
  runtime::PinnedMemory mail_;
};

/// A model, its graph for a GPU, and a text of one token to go on from.
struct Model {
  ModelConfig config;
  std::optional<Weights> weights;
  DecoderOptions options;
  std::optional<graph::Graph> graph;
  engine::Request request{.prompt = {5}, .max_new_tokens = 24, .ignore_stop_tokens = true};
  std::vector<engine::Request> others = {};  // beside it

  /// One row at a time, so that each step writes all of each buffer. `intermediate`, `hidden`: other sizes, of a random one.
  Model(const std::string& folder, bool random, int64_t rows = 1, int64_t requests = 1, int64_t intermediate = 0,
        const std::string& architecture = "", int64_t quant_columns = 0, int64_t layers = 0, int64_t max_seq_len = 128,
        bool shares_caches = false, int64_t head_dim = 0, int64_t hidden = 0)
      : config(config_read(folder)) {
    if (!architecture.empty()) config.architecture = architecture;
    if (intermediate > 0) config.intermediate_size = intermediate;
    if (layers > 0) config.num_layers = layers;
    if (head_dim > 0) config.head_dim = head_dim;
    if (hidden > 0) config.hidden_size = hidden;
    if (random) config.vocab_size += config.vocab_size % 2;  // rows of the head stream in pairs
    options = {.max_rows = rows,
               .max_requests = requests,
               .max_seq_len = max_seq_len,
               .shares_caches = shares_caches,
               .target = "cuda:sm_90a",
               .quant_columns = quant_columns};
    if (!random) {
      weights = Weights::open(folder);
      options.weight_dtypes = weight_dtypes(*weights, config.dtype);
    }
    options = options.resolved(config);
    graph = build_decoder(config, options);
  }
  void bind(DecoderSteps& steps) const {
    engine::MemoryMap& memory = steps.memory();
    if (weights)
      memory.bind_weights(*graph, *weights);
    else
      memory.bind_random(*graph, 7);
    memory.bind_rope(*graph, config, options.max_seq_len);
    std::vector<engine::Request> requests = {request};
    requests.insert(requests.end(), others.begin(), others.end());
    engine::batch_block_fill(*graph, options, {}, requests, memory);
  }
};

/// Rows with which nothing is fused on a GPU.
constexpr int64_t kUnfused = stream::kMaxWideRows + 16;

bool has_slices(const Model& model) {
  return std::ranges::any_of(model.graph->nodes(), [](const auto& node) { return node.op->name == "linear_slices"; });
}

/// Products that two workers have together.
int64_t num_shared_products(const Model& model) {
  const graph::Schedule schedule = optimize::make_schedule(*model.graph, "cuda");
  return std::ranges::count_if(schedule.nodes, [](const graph::NodeSchedule& node) {
    const auto partners = node.stream.find("partners");
    return partners != node.stream.end() && partners->second == 1;
  });
}

/// The first difference of `num_steps` steps, with the step.
std::string first_difference(DecoderSteps& found, DecoderSteps& wanted, int num_steps, double roundings) {
  double worst = 0;
  for (int step = 0; step < num_steps; ++step) {
    found.take_states(wanted);
    wanted.run();
    found.run();
    const std::string difference = testing::first_difference(found, wanted, roundings, &worst);
    if (!difference.empty()) return fmt::format("step {}: {}", step, difference);
  }
  std::printf("the largest difference was %.2f roundings of bf16, of %.0f allowed\n", worst, roundings);
  return "";
}

// Activations are rounded to bf16 on both sides at the same places, but what is rounded was summed in another order: an
// element may fall to the other side, which is two units here, and what is made of it differs in turn.
constexpr double kRoundings = 12;  // 8.7 were found on an H200
constexpr int kSteps = 20;

// Matrices that are multiplied, of a random model, become such as int8 leaves as they are: of each group whole numbers up
// to 127, one of them that, times a power of two. So all sides have the same weights, exactly.
void make_exact_in_int8(const Model& model, DecoderSteps& steps) {
  const graph::Schedule schedule = optimize::make_schedule(*model.graph, "cuda");
  for (size_t id = 0; id < model.graph->tensors().size(); ++id) {
    if (schedule.layouts[id] != graph::Layout::int8) continue;
    const graph::Tensor& matrix = model.graph->tensors()[id];
    ASSERT_EQ(matrix.dtype, DType::bf16);
    auto* const values = steps.memory().get<uint16_t>(matrix.name);
    const int64_t columns = matrix.shape[1].size;
    for (int64_t row = 0; row < matrix.shape[0].size; ++row)
      for (int64_t first = 0; first < columns; first += matrix.quant_columns) {
        const std::span<uint16_t> group(values + row * columns + first,
                                        static_cast<size_t>(std::min(matrix.quant_columns, columns - first)));
        const auto is_smaller = [](uint16_t x, uint16_t y) {
          return std::abs(bf16_to_float(x)) < std::abs(bf16_to_float(y));
        };
        const auto largest = std::ranges::max_element(group, is_smaller);
        const float most = bf16_to_float(*largest);
        // The nearest one: groups are as often a little smaller as a little larger than they were.
        const float scale = most == 0 ? 1 : std::exp2(std::round(std::log2(std::abs(most) / 127)));
        for (uint16_t& value : group)
          value = bf16_from_float(std::clamp(std::round(bf16_to_float(value) / scale), -127.0F, 127.0F) * scale);
        *largest = bf16_from_float(std::copysign(127 * scale, most));
      }
  }
}

/// A CPU with tiles would round more than a GPU does.
struct ExactProducts : test::EnvironmentVariable {
  ExactProducts() : EnvironmentVariable("MEGALITH_PRODUCTS", "f32") {}
};

void expect_same_buffers(const Model& model, int num_steps = kSteps, double roundings = kRoundings) {
  const ExactProducts products;
  CudaDecoderSteps gpu(*model.graph, "cuda", jit::cuda_device().num_multiprocessors);
  CpuDecoderSteps cpu(*model.graph, "cpu", 2);
  model.bind(gpu);
  model.bind(cpu);
  if (model.options.quant_columns > 0)
    for (DecoderSteps* steps : {static_cast<DecoderSteps*>(&gpu), static_cast<DecoderSteps*>(&cpu)})
      make_exact_in_int8(model, *steps);
  EXPECT_EQ(first_difference(gpu, cpu, num_steps, roundings), "");
}

// Weights that are exact in int8 make what the same ones in bf16 do: each is multiplied in bf16 and added up in f32. But a
// run of columns is scaled when it is summed, and of many tokens a weight tile has twice the columns, so sums round
// elsewhere: an element may fall to the other side, which is two units here, and so may what is made of it. That is less
// than what a CPU may differ by, by which this model, whose gates are large, differs in either dtype.
void expect_same_as_in_bf16(const Model& int8, const Model& bf16) {
  CudaDecoderSteps found(*int8.graph, "cuda", jit::cuda_device().num_multiprocessors);
  CudaDecoderSteps wanted(*bf16.graph, "cuda", jit::cuda_device().num_multiprocessors);
  for (const auto& [model, steps] : {std::pair{&int8, &found}, {&bf16, &wanted}}) {
    model->bind(*steps);
    make_exact_in_int8(int8, *steps);
  }
  constexpr double kTwoFlips = 4;  // 2.1 were found on an H200
  EXPECT_EQ(first_difference(found, wanted, kSteps, kTwoFlips), "");
}

TEST(CudaBuffers, EveryBufferOfTheStorytellerIsTheCpus) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  expect_same_buffers(Model(kStoryteller, false));
}

TEST(CudaBuffers, EveryBufferOfARandomModelIsTheCpus) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  for (const char* name : {"qwen3_tied", "llama_untied"}) expect_same_buffers(Model(kTiny + name, true));
}

TEST(CudaBuffers, WithRoomForAFewTextsToo) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  for (const auto& [rows, requests] : {std::pair<int64_t, int64_t>(2, 2), {4, 1}, {8, 1}, {8, 4}}) {
    const Model model(kStoryteller, false, rows, requests);
    ASSERT_TRUE(testing::streams_all_products(*model.graph));
    expect_same_buffers(model);
  }
}

// Each by itself: half of a minute is compilation.
class CudaBuffersOfManyRows : public ::testing::TestWithParam<std::pair<int64_t, int64_t>> {};
INSTANTIATE_TEST_SUITE_P(Rooms, CudaBuffersOfManyRows,
                         ::testing::Values(std::pair<int64_t, int64_t>(16, 1), std::pair<int64_t, int64_t>(64, 1),
                                           std::pair<int64_t, int64_t>(128, 1), std::pair<int64_t, int64_t>(208, 1),
                                           std::pair<int64_t, int64_t>(256, 4), std::pair<int64_t, int64_t>(512, 4),
                                           std::pair<int64_t, int64_t>(2048, 4), std::pair<int64_t, int64_t>(64, 32),
                                           std::pair<int64_t, int64_t>(128, 128)),
                         [](const auto& room) {
                           return fmt::format("{}RowsOf{}", room.param.first, room.param.second);
                         });
TEST_P(CudaBuffersOfManyRows, AreTheCpus) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  const Model model(kStoryteller, false, GetParam().first, GetParam().second);
  ASSERT_TRUE(testing::streams_all_products(*model.graph));
  expect_same_buffers(model);
}

std::vector<int> prompt_of(int64_t length) {
  std::vector<int> tokens = {5};
  for (int64_t i = 1; i < length; ++i) tokens.push_back(static_cast<int>((i * 37 + 5) % 4001));
  return tokens;
}
/// A prompt that fills an iteration, or all but the place of a token behind it.
void fill(Model& model) {
  model.request.prompt = prompt_of(std::min(model.options.max_rows, model.options.max_seq_len - 1));
}

// Sequences of a few tokens and of many go on, a row each, beside a prompt that is longer than an iteration. Kernels that work
// in turns give such rows parts of a block, one alone tiles of queries.
TEST(CudaBuffers, OfRowsThatStandAloneAreThoseOfTiles) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  std::deque<Model> models;
  for (const bool shares_caches : {true, false}) {
    Model& model = models.emplace_back(kStoryteller, false, 512, 8, 0, "", 0, 0, 1024, shares_caches);
    model.request.prompt = prompt_of(700);
    for (const int64_t length : {70, 3, 17, 1, 5, 26, 8}) {
      model.others.push_back(model.request);
      model.others.back().prompt = prompt_of(length);
    }
  }
  CudaDecoderSteps found(*models[0].graph, "cuda", jit::cuda_device().num_multiprocessors),
      wanted(*models[1].graph, "cuda", jit::cuda_device().num_multiprocessors);
  models[0].bind(found);
  models[1].bind(wanted);
  EXPECT_EQ(first_difference(found, wanted, 4, kRoundings), "");
}

// A prompt again and again, on a cache that nobody has written: what is read before it is there, or written over while it is
// still read, shows sooner or later.
TEST(CudaBuffers, OfAPromptAreTheSameEveryTime) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  std::deque<Model> models;
  for (const int64_t rows : {64, 128, 256, 512}) models.emplace_back(kStoryteller, false, rows, 1, 0, "", 0, 0, 1024);
  for (const int64_t rows : {512, 1024}) {
    models.emplace_back(kStoryteller, true, rows, 1, 2048, "", 0, 4, 1024);
    ASSERT_EQ(num_shared_products(models.back()), 3);  // but for the last layer's, where one row is left
  }
  for (Model& model : models) {
    const int64_t rows = model.options.max_rows;
    fill(model);
    CudaDecoderSteps found(*model.graph, "cuda", jit::cuda_device().num_multiprocessors),
        wanted(*model.graph, "cuda", jit::cuda_device().num_multiprocessors);
    model.bind(found);
    model.bind(wanted);
    const auto begin = [&](DecoderSteps& steps) {
      for (const graph::Tensor& tensor : model.graph->tensors())
        if (tensor.kind == graph::TensorKind::state && tensor.name != "mailbox")
          std::memset(steps.memory().get<void>(tensor.name), 0, static_cast<size_t>(tensor.bytes()));
      engine::batch_block_fill(*model.graph, model.options, {}, {model.request}, steps.memory());
      steps.run();
    };
    const auto is_same = [&](const graph::Tensor& tensor) {
      return tensor.kind != graph::TensorKind::state || tensor.name == "mailbox" ||
             std::memcmp(found.memory().get<void>(tensor.name), wanted.memory().get<void>(tensor.name),
                         static_cast<size_t>(tensor.bytes())) == 0;
    };
    begin(wanted);
    double worst = 0;
    for (int run = 0; run < 100; ++run) {
      begin(found);
      if (std::ranges::all_of(model.graph->tensors(), is_same)) continue;
      ADD_FAILURE() << rows << " tokens, run " << run << ": " << testing::first_difference(found, wanted, 0, &worst);
      break;
    }
  }
}

TEST(CudaBuffers, WithPartnersToo) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  for (const int64_t rows : {512, 304}) {
    const Model model(kStoryteller, true, rows, 1, 2048, "", 0, 4);  // of one token
    ASSERT_EQ(num_shared_products(model), 3);
    expect_same_buffers(model);
  }
  // Of weights that are exact in int8 gates are larger: 13.7 roundings from a CPU's were found on an H200.
  const Model int8(kStoryteller, true, 512, 1, 2048, "", 32, 4);
  ASSERT_EQ(num_shared_products(int8), 3);
  expect_same_as_in_bf16(int8, Model(kStoryteller, true, 512, 1, 2048, "", 0, 4));
  // Of a prompt, the largest of 512 times as many elements: 12.1 were found on an H100 in the first layer, whose gates are
  // large, and 21.2 in the second.
  constexpr double kRoundingsOfPrompt = 16;
  const test::EnvironmentVariable all_rows("MEGALITH_DISABLE", "gather_first");  // of the one layer
  Model prompt(kStoryteller, true, 512, 1, 2048, "", 0, 1, 1024);
  ASSERT_EQ(num_shared_products(prompt), 1);
  fill(prompt);
  expect_same_buffers(prompt, 1, kRoundingsOfPrompt);
}

// Two workers share several groups of rows one behind the other, and most of those are of tokens that are nobody's: neither may be
// two tasks ahead of the other.
TEST(CudaBuffers, WithPartnersThatShareSeveralTasks) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  const Model model(kStoryteller, true, 2048, 1, 2048, "", 0, 4, 128, false, 0, 2048);  // of one token
  ASSERT_GE(num_shared_products(model), 3);
  expect_same_buffers(model, 3);
  CudaDecoderSteps steps(*model.graph, "cuda", jit::cuda_device().num_multiprocessors);
  model.bind(steps);
  for (int step = 0; step < 20; ++step) steps.run();
}

// Of heads of 128 values the copy engine brings whole tiles of keys by a map of the caches, the rest of one comes otherwise.
TEST(CudaBuffers, WithHeadsOfTwoLinesToo) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  const test::EnvironmentVariable all_rows("MEGALITH_DISABLE", "gather_first");
  constexpr double kRoundingsOfPrompt = 16;  // as above
  for (const int64_t length : {512, 500, 900}) {
    Model model(kStoryteller, true, 512, 1, 0, "", 0, 1, 1024, false, 128);
    model.request.prompt = prompt_of(length);
    expect_same_buffers(model, length > 512 ? 2 : 1, kRoundingsOfPrompt);
  }
}

TEST(CudaBuffers, WithSplitKSlicesToo) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  // With more than 128 rows shorter ones are cut, too. What rounding makes of random weights grows from layer to layer.
  const Model most(kStoryteller, true, 512, 1, 6144, "", 0, 3), many(kStoryteller, true, 256, 1, 2048, "", 0, 3),
      model(kStoryteller, true, 128, 1, 6144);
  for (const Model* one : {&most, &many, &model}) {
    ASSERT_TRUE(has_slices(*one));
    expect_same_buffers(*one);
  }
}

/// The storyteller's folder with its weights in f16.
const std::string& storyteller_of_f16() {
  static const test::TemporaryFolder folder;
  static const std::string path = [] {
    const Weights weights = Weights::open(kStoryteller);
    std::deque<std::vector<uint16_t>> values;
    std::vector<WeightTensor> tensors;
    for (const std::string& name : weights.names()) {
      WeightTensor tensor = weights.get(name);
      std::vector<uint16_t>& of_tensor = values.emplace_back(tensor.bytes.size() / sizeof(uint16_t));
      for (size_t i = 0; i < of_tensor.size(); ++i)
        of_tensor[i] = f16_from_float(
            static_cast<float>(element_load(tensor.bytes.data(), tensor.dtype, static_cast<int64_t>(i))));
      tensor.dtype = DType::f16, tensor.bytes = std::as_bytes(std::span(of_tensor));
      tensors.push_back(tensor);
    }
    safetensors_write(folder / "model.safetensors", tensors);
    std::string config = file_read(kStoryteller + "/config.json");
    const std::string from = "\"bfloat16\"";
    config.replace(config.find(from), from.size(), "\"float16\"");
    file_write_atomic(folder / "config.json", config);
    return folder.path;
  }();
  return path;
}

/// Tokens and requests at a time.
class CudaBuffersOfF16 : public ::testing::TestWithParam<std::pair<int64_t, int64_t>> {};

TEST_P(CudaBuffersOfF16, AreTheCpus) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  const Model model(storyteller_of_f16(), false, GetParam().first, GetParam().second);
  ASSERT_TRUE(testing::streams_all_products(*model.graph));
  expect_same_buffers(model);
}

INSTANTIATE_TEST_SUITE_P(, CudaBuffersOfF16,
                         ::testing::Values(std::pair<int64_t, int64_t>(1, 1), std::pair<int64_t, int64_t>(2, 2),
                                           std::pair<int64_t, int64_t>(4, 1), std::pair<int64_t, int64_t>(8, 1),
                                           std::pair<int64_t, int64_t>(8, 4), std::pair<int64_t, int64_t>(16, 1),
                                           std::pair<int64_t, int64_t>(64, 32), std::pair<int64_t, int64_t>(128, 1),
                                           std::pair<int64_t, int64_t>(256, 1)));

TEST(CudaBuffers, WithWeightsOfF16Too) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  for (const int64_t rows : {1, 4, 8}) expect_same_buffers(Model(kTiny + "qwen2_sharded", false, rows));  // with biases
  const Model model(storyteller_of_f16(), true, 128, 1, 6144);
  ASSERT_TRUE(has_slices(model));
  expect_same_buffers(model);
}

/// Tokens and requests at a time, and columns that share a scale.
class CudaBuffersInInt8 : public ::testing::TestWithParam<std::tuple<std::pair<int64_t, int64_t>, int64_t>> {};

TEST_P(CudaBuffersInInt8, AreThoseOfTheSameWeightsInBf16) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  const auto& [load, columns] = GetParam();
  const auto& [rows, requests] = load;
  const Model model(kTiny + "mistral_sharded", true, rows, requests, 6144, "", columns);
  ASSERT_TRUE(testing::streams_all_products(*model.graph));
  // Split-K has other slices in bf16, so there it is the CPU that says what is right.
  if (has_slices(model))
    expect_same_buffers(model);
  else
    expect_same_as_in_bf16(model, Model(kTiny + "mistral_sharded", true, rows, requests, 6144));
}

using Load = std::pair<int64_t, int64_t>;
INSTANTIATE_TEST_SUITE_P(, CudaBuffersInInt8,
                         ::testing::Combine(::testing::Values(Load(1, 1), Load(2, 2), Load(4, 1), Load(8, 1),
                                                              Load(8, 4), Load(16, 1), Load(64, 32), Load(128, 1),
                                                              Load(256, 1), Load(512, 1)),
                                            ::testing::Values(32, 128)));

// The bias of q, k and v, which the projection adds where it writes.
bool has_epilogues(const Model& model) {
  return std::ranges::any_of(model.graph->nodes(), [](const auto& node) { return node.op->epilogue.has_value(); });
}

TEST(CudaBuffers, WithBiasesToo) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  for (const auto& [rows, requests] :
       {std::pair<int64_t, int64_t>(1, 1), {4, 1}, {8, 4}, {64, 1}, {128, 1}, {256, 1}}) {
    const Model model(kTiny + "qwen2_tied", false, rows, requests);
    ASSERT_TRUE(testing::streams_all_products(*model.graph) && has_epilogues(model));
    expect_same_buffers(model);
  }
}

TEST(CudaBuffers, OfABlockThatNobodyDrewToo) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  testing::add_parallel_block();
  for (const auto& [rows, requests] :
       {std::pair<int64_t, int64_t>(1, 1), {2, 2}, {4, 1}, {8, 4}, {64, 1}, {128, 1}, {256, 1}}) {
    const Model model(kTiny + "llama_untied", true, rows, requests, 0, "ParallelBlockForCausalLM");
    ASSERT_TRUE(testing::streams_all_products(*model.graph) && has_epilogues(model));
    expect_same_buffers(model);
  }
}

TEST(CudaBuffers, WithoutFusionToo) {
  MEGALITH_SKIP_IF(testing::missing_gpu());
  Model model(kStoryteller, false, kUnfused);
  ASSERT_FALSE(testing::streams_all_products(*model.graph));
  expect_same_buffers(model);
}

// ---- that the parts of a fused decoder mean what they stand for, without a GPU ------------------

// By how much a logit of two decoders on a CPU is off at most.
double worst_logit(const Model& one, const Model& other) {
  const ExactProducts products;
  CpuDecoderSteps found(*one.graph, "cpu", 2), wanted(*other.graph, "cpu", 2);
  one.bind(found);
  other.bind(wanted);
  double worst = 0;
  for (int step = 0; step < kSteps; ++step) {
    found.run();
    wanted.run();
    const loop::Array a = found.array(one.graph->find("logits")), b = wanted.array(other.graph->find("logits"));
    for (int64_t v = 0; v < one.config.vocab_size; ++v)
      worst = std::max(worst, std::abs(a.values[static_cast<size_t>(v)] - b.values[static_cast<size_t>(v)]));
  }
  return worst;
}

// A decoder of few rows, of many, of many with their norm at the end, against the one that is not fused.
TEST(FusedDecoder, HasTheLogitsOfOneInParts) {
  constexpr double kRounding = 5e-2;  // of a logit, as for the GPU: activations travel in bf16
  const Model parts(kStoryteller, false, kUnfused);
  ASSERT_FALSE(testing::streams_all_products(*parts.graph));
  for (const auto& [rows, requests] : {std::pair<int64_t, int64_t>(4, 1), {16, 1}, {16, 16}}) {
    const Model fused(kStoryteller, false, rows, requests);
    ASSERT_TRUE(testing::streams_all_products(*fused.graph));
    const double worst = worst_logit(fused, parts);
    EXPECT_GT(worst, 0) << "the same bits: were these two decoders?";
    EXPECT_LT(worst, kRounding) << rows << " rows, " << requests << " texts";
    std::printf("%d rows, %d texts: no logit is off by more than %.4f\n", static_cast<int>(rows),
                static_cast<int>(requests), worst);
  }
}

// The logits of a model behind a prompt, on a CPU. Tokens of its own would depend on how a random model's logits round.
std::vector<double> logits_of_prompt(Model& model) {
  const ExactProducts products;
  model.request.prompt = {5, 17, 99, 3, 250, 44, 7, 12, 200, 1, 8};
  CpuDecoderSteps steps(*model.graph, "cpu", 2);
  model.bind(steps);
  const auto length = static_cast<int64_t>(model.request.prompt.size());
  for (int64_t done = 0; done < length; done += model.options.max_rows) steps.run();
  return steps.array(model.graph->find("logits")).values;
}

TEST(FusedDecoder, HasTheBiasesOfOneInParts) {
  // Rows that are picked early would be few, and fused.
  std::optional<test::EnvironmentVariable> all_rows(std::in_place, "MEGALITH_DISABLE", "gather_first");
  Model parts(kTiny + "qwen2_tied", false, kUnfused);
  all_rows.reset();
  ASSERT_FALSE(testing::streams_all_products(*parts.graph) || has_epilogues(parts));
  const std::vector<double> wanted = logits_of_prompt(parts);
  for (const int64_t rows : {1, 4, 16}) {
    Model fused(kTiny + "qwen2_tied", false, rows);
    ASSERT_TRUE(testing::streams_all_products(*fused.graph) && has_epilogues(fused));
    const std::vector<double> found = logits_of_prompt(fused);
    double square = 0, error = 0;
    for (size_t v = 0; v < wanted.size(); ++v) {
      square += wanted[v] * wanted[v];
      error += (found[v] - wanted[v]) * (found[v] - wanted[v]);
    }
    EXPECT_GT(error, 0) << "the same bits: were these two decoders?";
    EXPECT_LT(std::sqrt(error / square), 0x1p-6) << rows << " rows";  // a dozen roundings to bf16, of 2^-9
    std::printf("%d rows: logits are off by %.4f of their size\n", static_cast<int>(rows), std::sqrt(error / square));
  }
}

// Of f16 with three bits more in what is multiplied than of bf16, but not in attention.
TEST(FusedDecoder, OfF16HasTheLogitsOfOneInParts) {
  for (const std::string& folder : {storyteller_of_f16(), kTiny + "qwen2_sharded"}) {
    Model parts(folder, false, kUnfused);
    ASSERT_FALSE(testing::streams_all_products(*parts.graph));
    ASSERT_EQ(parts.config.dtype, DType::f16);
    const std::vector<double> wanted = logits_of_prompt(parts);
    // Rows of the tiny one are no whole blocks, so it has no kernel of many.
    using Rooms = std::vector<std::pair<int64_t, int64_t>>;
    const bool has_blocks = folder == storyteller_of_f16();
    for (const auto& [rows, requests] : test::some_of(has_blocks ? Rooms{{1, 1}, {16, 16}} : Rooms{{4, 1}},
                                                      has_blocks ? Rooms{{4, 1}, {16, 1}} : Rooms{{1, 1}})) {
      Model fused(folder, false, rows, requests);
      ASSERT_TRUE(testing::streams_all_products(*fused.graph));
      const std::vector<double> found = logits_of_prompt(fused);
      double square = 0, error = 0;
      for (int64_t v = 0; v < fused.config.vocab_size; ++v) {
        const double of_parts = wanted[static_cast<size_t>(v)], off = found[static_cast<size_t>(v)] - of_parts;
        square += of_parts * of_parts;
        error += off * off;
      }
      EXPECT_GT(error, 0) << "the same bits: were these two decoders?";
      EXPECT_LT(std::sqrt(error / square), 0x1p-7) << rows << " rows, " << requests << " texts";
      std::printf("%d rows, %d texts: logits are off by %.4f of their size\n", static_cast<int>(rows),
                  static_cast<int>(requests), std::sqrt(error / square));
    }
  }
}

// A block that nobody drew, by rules, against its primitives.
TEST(FusedDecoder, HasTheLogitsOfABlockThatNobodyDrew) {
  testing::add_parallel_block();
  const std::string block = "ParallelBlockForCausalLM";
  Model parts(kTiny + "llama_untied", true, kUnfused, 1, 0, block);
  ASSERT_FALSE(testing::streams_all_products(*parts.graph));
  const std::vector<double> wanted = logits_of_prompt(parts);
  for (const int64_t rows : {1, 4, 64, 256}) {
    Model fused(kTiny + "llama_untied", true, rows, 1, 0, block);
    ASSERT_TRUE(testing::streams_all_products(*fused.graph) && has_epilogues(fused));
    const std::vector<double> found = logits_of_prompt(fused);
    double square = 0, error = 0;
    for (size_t v = 0; v < wanted.size(); ++v) {
      square += wanted[v] * wanted[v];
      error += (found[v] - wanted[v]) * (found[v] - wanted[v]);
    }
    EXPECT_GT(error, 0) << "the same bits: were these two decoders?";
    EXPECT_LT(std::sqrt(error / square), 0x1p-6) << rows << " rows";
  }
}

TEST(FusedDecoder, HasTheLogitsOfOneInSlices) {
  const Model sliced(kStoryteller, true, 128, 1, 6144), whole(kStoryteller, true, 64, 1, 6144);
  ASSERT_TRUE(has_slices(sliced));
  ASSERT_FALSE(has_slices(whole));
  const double worst = worst_logit(sliced, whole);
  EXPECT_GT(worst, 0) << "the same bits: were these two decoders?";
  EXPECT_LT(worst, 5e-2);
  std::printf("no logit is off by more than %.4f\n", worst);
}

// ---- that the judge says no, without a GPU -----------------------------------------------------

TEST(BufferComparison, NoDifferenceBetweenNumbersOfWorkers) {
  const Model model(kStoryteller, false);
  CpuDecoderSteps a(*model.graph, "cpu", 1), b(*model.graph, "cpu", 3);
  model.bind(a);
  model.bind(b);
  EXPECT_EQ(first_difference(a, b, 3, 0), "");
}

TEST(BufferComparison, NamesTheFirstTaskThatDiffers) {
  const Model model(kStoryteller, true);
  CpuDecoderSteps a(*model.graph, "cpu", 1), b(*model.graph, "cpu", 3);
  model.bind(a);
  model.bind(b);
  const std::string matrix = "model.layers.1.mlp.down_proj.weight";
  const int64_t columns = model.graph->tensor(model.graph->find(matrix)).shape[1].size;
  a.memory().get<uint16_t>(matrix)[3 * columns + 4] = bf16_from_float(1e6f);
  const std::string difference = first_difference(a, b, 3, kRoundings);
  EXPECT_TRUE(difference.starts_with("step 0: task \"layer.1.down[n=")) << difference;
  EXPECT_NE(difference.find("\"layer.1.down_sum\"[0, 3] is "), std::string::npos) << difference;
}

}  // namespace
}  // namespace megalith
