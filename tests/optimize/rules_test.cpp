// Each rule alone, all rules, and all but one: the decoder that comes out means what its primitives meant.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

#include "base/temporary_folder.h"
#include "megalith/graph/interpret.h"
#include "megalith/graph/lower.h"
#include "megalith/graph/text.h"
#include "megalith/ops/registry.h"
#include "megalith/optimize/optimize.h"
#include "megalith/optimize/schedule.h"
#include "support/stacked_attention.h"

namespace megalith::optimize {
namespace {

using graph::Graph;
using graph::NodeOptions;
using graph::TensorId;
using testing::StackedAttention;

constexpr int64_t kHidden = 64, kHead = 32, kGroups = 2, kPerGroup = 2, kVocab = 96, kPositions = 256, kPage = 16;

struct Shape {
  int64_t rows;
  bool biases, head_norms;
  int64_t intermediate = 96;
  int64_t samples = 1;
  bool is_parallel = false;   // attention and MLP side by side
  DType dtype = DType::bf16;  // of weights
  int64_t quant_columns = 0;  // of matrices in int8
  int64_t requests = 1;
};

// Two layers of a decoder as a model's builder writes them, with their batch in states that nothing changes.
class Primitives {
 public:
  explicit Primitives(const Shape& shape) : s(shape), g(ops::builtin(), "decoder") {
    const auto whole = [&](const char* name, std::vector<graph::Dim> dims) { return g.state(name, DType::i32, dims); };
    const TensorId tokens = whole("row_token", {s.rows});
    request = whole("row_request", {s.rows});
    position = whole("row_position", {s.rows});
    whole("row_start", {s.rows});
    table = whole("page_table", {s.requests, kPositions / kPage});
    cosine = g.constant("rope.cos", DType::f32, {kPositions, kHead / 2});
    sine = g.constant("rope.sin", DType::f32, {kPositions, kHead / 2});
    TensorId x = g.apply("embedding", "embed", {tokens, matrix("embedding", kVocab, kHidden)});
    for (const std::string layer : {"0.", "1."}) {
      const TensorId n = norm(layer + "norm", x);
      x = attention(layer, n, x);
      x = mlp(layer, s.is_parallel ? n : norm(layer + "mlp_norm", x), x);
    }
    const TensorId last = g.apply("gather_rows", "last", {x, whole("sample_row", {s.samples})});
    g.apply("linear", "head", {norm("final_norm", last), matrix("head.weight", kVocab, kHidden)},
            {.outputs = {{"y", g.state("logits", DType::f32, {s.samples, kVocab})}}});
    g.apply("argmax", "argmax", {g.find("logits")}, {.outputs = {{"best", g.state("best", DType::i32, {s.samples})}}});
  }
  Graph take() { return std::move(g); }

 private:
  TensorId matrix(const std::string& name, int64_t rows, int64_t columns) {
    const TensorId matrix = g.constant(name, s.dtype, {rows, columns});
    if (s.quant_columns > 0) g.quantize(matrix, s.quant_columns);
    return matrix;
  }
  TensorId norm(const std::string& name, TensorId x) {
    return g.apply("rmsnorm", name, {x, g.constant(name + ".weight", s.dtype, {kHidden})});
  }
  TensorId project(const std::string& name, TensorId x, int64_t rows) {
    const TensorId y = g.apply("linear", name, {x, matrix(name + ".weight", rows, kHidden)});
    if (!s.biases) return y;
    return g.apply("row_bias", name + "_bias", {y, g.constant(name + ".bias", s.dtype, {rows})});
  }
  TensorId heads(const std::string& name, TensorId x, int64_t count) {
    x = project(name, x, count * kHead);
    if (s.head_norms)
      x = g.apply("head_norm", name + "_norm", {x, g.constant(name + "_norm.weight", s.dtype, {kHead})});
    return g.apply("rope", name + "_rope", {x, cosine, sine, position}, {.sizes = {{"M", kHead / 2}}});
  }
  TensorId add(const std::string& name, TensorId x, TensorId y, int64_t columns) {
    return g.apply("add", name + "_sum", {x, g.apply("linear", name, {y, matrix(name + ".weight", kHidden, columns)})});
  }
  TensorId attention(const std::string& at, TensorId n, TensorId x) {
    const TensorId q = heads(at + "q", n, kGroups * kPerGroup), k = heads(at + "k", n, kGroups),
                   v = project(at + "v", n, kGroups * kHead);
    const auto cache = [&](const char* which) {
      return g.state(at + which, DType::bf16, {kPositions / kPage, kPage, kGroups, kHead}, true);
    };
    const TensorId k_cache = cache("k_cache"), v_cache = cache("v_cache");
    g.add("kv_append", at + "append", {k, v, table, request, position, k_cache, v_cache});
    const TensorId y = g.apply("attention", at + "attention", {q, k_cache, v_cache, table, request, position},
                               {.sizes = {{"S", kPositions}}, .attributes = {{"scale", 0.2}}});
    return add(at + "o", x, y, kGroups * kPerGroup * kHead);
  }
  TensorId mlp(const std::string& at, TensorId n, TensorId x) {
    const auto half = [&](const char* which) {
      return g.apply("linear", at + which, {n, matrix(at + which + ".weight", s.intermediate, kHidden)});
    };
    const TensorId gate = half("gate"), up = half("up");
    return add(at + "down", x, g.apply("silu_mul", at + "gated", {gate, up}), s.intermediate);
  }

  const Shape s;
  Graph g;
  TensorId request, position, table, cosine, sine;
};

// What is bound from outside: floats at random, a batch of the last rows of one request of 40 tokens or so. Stacked
// constants are made of the parts that the primitives have.
loop::Arrays arrays_of(const Graph& primitives, int64_t rows) {
  constexpr int64_t kBefore = 40;
  std::mt19937_64 random(7);
  std::normal_distribution<double> value;
  loop::Arrays arrays;
  for (const graph::Tensor& tensor : primitives.tensors()) {
    if (tensor.kind == graph::TensorKind::activation) continue;
    std::vector<int64_t> shape;
    for (const graph::Dim& dim : tensor.shape) shape.push_back(dim.size);
    loop::Array& array = arrays[tensor.name] = loop::Array::zeros(shape);
    if (tensor.dtype == DType::i32) continue;
    const bool is_matrix = tensor.kind == graph::TensorKind::constant && shape.size() == 2;
    const double scale = is_matrix ? 1 / std::sqrt(static_cast<double>(shape[1])) : 1;
    for (double& one : array.values) one = value(random) * scale;
  }
  for (int64_t t = 0; t < rows; ++t) {
    const auto at = static_cast<size_t>(t);
    arrays["row_token"].values[at] = static_cast<double>((t * 31 + 5) % kVocab);
    arrays["row_position"].values[at] = static_cast<double>(kBefore + t);
    arrays["row_start"].values[at] = kBefore;
  }
  for (int64_t p = 0; p < kPositions / kPage; ++p)
    arrays["page_table"].values[static_cast<size_t>(p)] = static_cast<double>((p * 5 + 3) % (kPositions / kPage));
  for (size_t r = 0; r < arrays["sample_row"].values.size(); ++r)
    arrays["sample_row"].values[r] = static_cast<double>(rows - 1 - static_cast<int64_t>(r));
  return arrays;
}

// Quantised matrices whose elements are whole numbers times scales already. What a graph has in int8 it takes from
// "<name>.whole", as it does the scales.
void quantise(const Graph& primitives, loop::Arrays& arrays) {
  std::mt19937_64 random(11);
  std::uniform_int_distribution<int> whole(-127, 127);
  std::uniform_real_distribution<double> scale(0.0005, 0.002);
  for (const graph::Tensor& tensor : primitives.tensors()) {
    if (tensor.quant_columns == 0) continue;
    const int64_t rows = tensor.shape[0].size, columns = tensor.shape[1].size;
    const int64_t groups = (columns + tensor.quant_columns - 1) / tensor.quant_columns;
    loop::Array& scales = arrays[graph::quant_scale_name(tensor.name)] = loop::Array::zeros({rows, groups});
    for (double& one : scales.values) one = scale(random);
    loop::Array& wholes = arrays[tensor.name + ".whole"] = loop::Array::zeros({rows, columns});
    for (int64_t i = 0; i < rows * columns; ++i) {
      const auto at = static_cast<size_t>(i);
      wholes.values[at] = whole(random);
      const auto group = static_cast<size_t>(i / columns * groups + i % columns / tensor.quant_columns);
      arrays[tensor.name].values[at] = wholes.values[at] * scales.values[group];
    }
  }
}

void add_stacked(const Graph& graph, loop::Arrays& arrays) {
  for (const graph::Tensor& tensor : graph.tensors()) {
    if (tensor.parts.empty()) continue;
    std::vector<int64_t> shape;
    for (const graph::Dim& dim : tensor.shape) shape.push_back(dim.size);
    loop::Array stacked = loop::Array::zeros(shape);
    auto to = stacked.values.begin();
    for (int64_t group = 0; group < tensor.groups; ++group)
      for (const std::string& part : tensor.parts) {
        const std::vector<double>& from = arrays.at(part).values;
        const auto share = static_cast<std::ptrdiff_t>(from.size()) / tensor.groups;
        to = std::copy_n(from.begin() + group * share, share, to);
      }
    ASSERT_EQ(to, stacked.values.end());
    arrays[tensor.name] = std::move(stacked);
  }
}

struct Result {
  std::vector<double> logits, k_cache;
};

Result run(const Graph& graph, const std::string& target, loop::Arrays arrays) {
  add_stacked(graph, arrays);
  for (const graph::Tensor& tensor : graph.tensors())
    if (tensor.dtype == DType::i8) arrays[tensor.name] = arrays.at(tensor.name + ".whole");
  graph::interpret(graph, lower(graph, target), arrays, 1);
  return {arrays.at("logits").values, arrays.at("1.k_cache").values};
}

// Of the size of all of them.
double error(const std::vector<double>& found, const std::vector<double>& wanted) {
  double square = 0, off = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    square += wanted[i] * wanted[i];
    off += (found[i] - wanted[i]) * (found[i] - wanted[i]);
  }
  return std::sqrt(off / square);
}

std::string all_but(const std::string& kept) {
  std::string names;
  for (const Rule& rule : rules())
    if (rule.name != kept) names += (names.empty() ? "" : ",") + std::string(rule.name);
  return names;
}

class Rules : public ::testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(
    Shapes, Rules,
    ::testing::Values(Shape{.rows = 1, .biases = false, .head_norms = true},
                      Shape{.rows = 2, .biases = true, .head_norms = false},
                      Shape{.rows = 4, .biases = true, .head_norms = true},
                      Shape{.rows = 16, .biases = false, .head_norms = true},
                      Shape{.rows = 16, .biases = true, .head_norms = false, .intermediate = 96, .samples = 16},
                      Shape{.rows = 1, .biases = true, .head_norms = false, .is_parallel = true},
                      Shape{.rows = 4, .biases = false, .head_norms = true, .is_parallel = true},
                      Shape{.rows = 2, .biases = false, .head_norms = true, .dtype = DType::f16},
                      Shape{.rows = 4, .biases = true, .head_norms = true, .dtype = DType::f16},
                      Shape{.rows = 16, .biases = false, .head_norms = false, .dtype = DType::f16},
                      Shape{.rows = 68, .biases = false, .head_norms = false, .is_parallel = true},
                      Shape{.rows = 132, .biases = true, .head_norms = true, .samples = 3},
                      Shape{.rows = 20, .biases = false, .head_norms = false, .samples = 1, .is_parallel = true},
                      Shape{.rows = 68, .biases = false, .head_norms = true, .requests = 68},
                      Shape{.rows = 1, .biases = true, .head_norms = false, .quant_columns = 32},
                      Shape{.rows = 4, .biases = false, .head_norms = true, .quant_columns = 64},
                      Shape{.rows = 16, .biases = false, .head_norms = true, .quant_columns = 32}),
    [](const auto& shape) { return fmt::format("Shape{}", shape.index); });

TEST_P(Rules, MeanWhatThePrimitivesMeant) {
  constexpr double kRounding = 1e-9;  // the interpreter rounds to no dtype: only the order of sums is another
  const Graph primitives = Primitives(GetParam()).take();
  loop::Arrays arrays = arrays_of(primitives, GetParam().rows);
  quantise(primitives, arrays);
  const Result wanted = run(primitives, "cpu", arrays);
  std::set<std::string> seen;  // most rules have nothing to do for most shapes
  const auto check = [&](const std::string& disabled, const std::string& target, const std::string& what) {
    const test::EnvironmentVariable off("MEGALITH_DISABLE", disabled);
    const Graph graph = optimize(primitives, target);
    if (!seen.insert(print(graph)).second) return graph.rewrites().size();
    const Result found = run(graph, target.substr(0, target.find(':')), arrays);
    EXPECT_LT(error(found.logits, wanted.logits), kRounding) << what << " for " << target << "\n" << print(graph);
    EXPECT_LT(error(found.k_cache, wanted.k_cache), kRounding) << what << " for " << target;
    return graph.rewrites().size();
  };
  for (const std::string target : {"cpu", "cuda:sm_90a"}) {
    EXPECT_EQ(check(all_but(""), target, "no rule"), 0u);
    EXPECT_GT(check("", target, "all rules"), 5u);
    for (const Rule& rule : rules()) {
      check(all_but(rule.name), target, fmt::format("{} alone", rule.name));
      check(rule.name, target, fmt::format("all but {}", rule.name));
    }
  }
}

// On a GPU with little shared memory attention of many rows has no body. Its products come as one all the same, as in kernels of few
// rows, so that all have the same weights.
TEST(RulesOfADecoder, ProductsOfAttentionComeAsOneWithoutABody) {
  for (const Shape& shape :
       {Shape{.rows = 16, .biases = true, .head_norms = false}, Shape{.rows = 68, .biases = false, .head_norms = true},
        Shape{.rows = 132, .biases = true, .head_norms = true, .samples = 3},
        Shape{.rows = 16, .biases = false, .head_norms = true, .quant_columns = 32}}) {
    const Graph primitives = Primitives(shape).take();
    loop::Arrays arrays = arrays_of(primitives, shape.rows);
    quantise(primitives, arrays);
    const Result wanted = run(primitives, "cpu", arrays);
    const Graph graph = optimize(primitives, "cuda:sm_86");
    EXPECT_THAT(print(graph), ::testing::AllOf(::testing::HasSubstr("split_rows"),
                                               ::testing::Not(::testing::HasSubstr("rope_attention"))));
    const Result found = run(graph, "cuda", arrays);
    EXPECT_LT(error(found.logits, wanted.logits), 1e-9) << print(graph);
    EXPECT_LT(error(found.k_cache, wanted.k_cache), 1e-9);
  }
  // No kernel has one product there.
  const Shape f32{.rows = 16, .biases = false, .head_norms = true, .dtype = DType::f32};
  EXPECT_THAT(print(optimize(Primitives(f32).take(), "cuda:sm_86")),
              ::testing::Not(::testing::HasSubstr("split_rows")));
}

// ---- q, k and v in one tensor -------------------------------------------------------------------------------------------

class StackedRules : public ::testing::TestWithParam<testing::StackedAttention> {};
INSTANTIATE_TEST_SUITE_P(Blocks, StackedRules,
                         ::testing::Values(StackedAttention{.rows = 1, .head_norms = true},
                                           StackedAttention{.rows = 4, .head_norms = false},
                                           StackedAttention{.rows = 4, .head_norms = true, .wide_tables = false},
                                           StackedAttention{.rows = 8, .head_norms = true, .tables = DType::f32},
                                           StackedAttention{.rows = 12, .head_norms = true},
                                           StackedAttention{.rows = 40, .head_norms = false},
                                           StackedAttention{.rows = 64, .head_norms = true},
                                           StackedAttention{.rows = 2, .head_norms = true, .has_product = false},
                                           StackedAttention{.rows = 4, .head_norms = true, .shares_cache = true},
                                           StackedAttention{.rows = 40, .head_norms = true, .shares_cache = true},
                                           StackedAttention{.rows = 64, .head_norms = false, .shares_cache = true}),
                         [](const auto& block) { return fmt::format("Block{}", block.index); });

// One row fewer than there is room for: of the first request up to its position 40, of the second one up to 90.
loop::Arrays arrays_of_stacked(const Graph& g, const StackedAttention& s) {
  std::mt19937_64 random(11);
  std::normal_distribution<double> value;
  loop::Arrays arrays;
  for (const graph::Tensor& tensor : g.tensors()) {
    if (tensor.kind == graph::TensorKind::activation) continue;
    std::vector<int64_t> shape;
    for (const graph::Dim& dim : tensor.shape) shape.push_back(dim.size);
    loop::Array& array = arrays[tensor.name] = loop::Array::zeros(shape);
    if (tensor.dtype == DType::i32) continue;
    const double scale = tensor.kind == graph::TensorKind::constant ? 1 / std::sqrt(static_cast<double>(shape[1])) : 1;
    for (double& one : array.values) one = value(random) * scale;
  }
  const int64_t rows = std::max<int64_t>(s.rows - 1, 1), first = (rows + 1) / 2;
  arrays["counts"].values[0] = static_cast<double>(rows);
  for (int64_t t = 0; t < s.rows; ++t) {  // what stands behind the last row is no row's
    const auto at = static_cast<size_t>(t);
    arrays["request"].values[at] = t < first ? 0 : t < rows ? 1 : 1e6;
    arrays["position"].values[at] = static_cast<double>(t < first ? 41 - first + t : t < rows ? 91 - rows + t : 1e6);
  }
  std::vector<double>& pages = arrays["page_table"].values;
  for (size_t p = 0; p < pages.size(); ++p) pages[p] = static_cast<double>((p * 5 + 3) % pages.size());
  return arrays;
}

int times_fused(const Graph& graph) {
  return static_cast<int>(std::ranges::count(graph.rewrites(), "fuse_attention", &graph::Rewrite::rule));
}

TEST_P(StackedRules, MeanWhatTheLayersMeant) {
  const Graph layers = testing::stacked_attention(GetParam());
  const loop::Arrays arrays = arrays_of_stacked(layers, GetParam());
  const auto run = [&](const Graph& graph, const std::string& target) {
    loop::Arrays result = arrays;
    graph::interpret(graph, lower(graph, target), result,
                     2);  // the second one reads what the first one left in the caches
    return result;
  };
  const loop::Arrays wanted = run(layers, "cpu");
  for (const std::string target : {"cpu", "cuda:sm_90a"})
    for (const std::string& disabled : {std::string(), all_but("fuse_attention")}) {
      const test::EnvironmentVariable off("MEGALITH_DISABLE", disabled);
      const Graph graph = optimize(layers, target);
      EXPECT_EQ(times_fused(graph), target == "cpu" ? 0 : 2) << print(graph);
      const loop::Arrays found = run(graph, target.substr(0, target.find(':')));
      for (const char* name : {"result", "0.k_cache", "0.v_cache", "1.k_cache", "1.v_cache"}) {
        if (!wanted.contains(name)) continue;
        EXPECT_LT(error(found.at(name).values, wanted.at(name).values), 1e-9) << name << " for " << target << "\n"
                                                                              << print(graph);
      }
    }
}

TEST(RulesOfLayers, WhatHasNoBodyStays) {
  const auto times = [](const StackedAttention& s) {
    return times_fused(optimize(testing::stacked_attention(s), "cuda:sm_90a"));
  };
  EXPECT_EQ(times({.rows = 4, .head_norms = true}), 2);
  EXPECT_EQ(times({.rows = 4, .head_norms = true, .has_rope = false}), 0);
  EXPECT_EQ(times({.rows = 4, .head_norms = true, .has_start = false}), 0);
  EXPECT_EQ(times({.rows = 64, .head_norms = true, .has_start = false}), 2);  // all from the cache
  EXPECT_EQ(times({.rows = 4, .head_norms = true, .head = 40}), 0);
  EXPECT_EQ(times({.rows = 64, .head_norms = true, .tables = DType::f32, .requests = 64}), 0);  // too few registers
}

// Rows that stand alone among a prompt's go another way where several kernels share the cache; one that has it for itself keeps
// a row's bits, whoever stands beside it.
TEST(RulesOfLayers, RowsMayStandAloneWhereTheCacheIsShared) {
  const auto may_stand_alone = [](const StackedAttention& s) {
    const std::string after = print(optimize(testing::stacked_attention(s), "cuda:sm_90a"));
    EXPECT_THAT(after, ::testing::HasSubstr("rope_attention_cached"));
    return after.find("alone=1") != std::string::npos;
  };
  EXPECT_TRUE(may_stand_alone({.rows = 144, .head_norms = true}));
  EXPECT_FALSE(may_stand_alone({.rows = 144, .head_norms = true, .requests = 1}));
  EXPECT_FALSE(may_stand_alone({.rows = 144, .head_norms = true, .alone = true}));
}

// Whoever looks into the cache behind attention sees what was written in front of it.
TEST(RulesOfLayers, AttentionStaysWhoseCacheIsReadBehindIt) {
  const StackedAttention s{.rows = 4, .head_norms = true};
  Graph graph = testing::stacked_attention(s);
  const TensorId q = graph.state("another", DType::f32, {graph::Dim(s.rows, "rows"), s.groups * s.per_group * s.head});
  graph.apply("attention", "another look",
              {q, graph.find("0.k_cache"), graph.find("0.v_cache"), graph.find("page_table"), graph.find("request"),
               graph.find("position")},
              {.sizes = {{"S", s.pages * s.page}},
               .outputs = {{"y", graph.state("seen", DType::f32,
                                             {graph::Dim(s.rows, "rows"), s.groups * s.per_group * s.head})}}});
  EXPECT_EQ(times_fused(optimize(graph, "cuda:sm_90a")), 1);
}

// Of a batch they take keys of the iteration as they were made; of prompts the cache is written first.
TEST(RulesOfADecoder, RowsWithARequestEachAreABatch) {
  const auto writes_first = [](int64_t rows, int64_t requests) {
    const Graph primitives =
        Primitives({.rows = rows, .biases = false, .head_norms = true, .requests = requests}).take();
    const std::string after = print(optimize(primitives, "cuda:sm_90a"));
    EXPECT_THAT(after, ::testing::HasSubstr("rope_attention"));
    return after.find("rope_attention_cached") != std::string::npos;
  };
  EXPECT_FALSE(writes_first(64, 9));
  EXPECT_TRUE(writes_first(64, 8));
  EXPECT_TRUE(writes_first(80, 79));
  EXPECT_FALSE(writes_first(80, 80));
  EXPECT_FALSE(writes_first(128, 128));
  EXPECT_TRUE(writes_first(144, 144));
}

// A long product of many rows, whose sums are handed over.
TEST(RulesOfADecoder, ALongProductIsSplitAlongK) {
  constexpr int64_t kRows = 65, kColumns = 6144;
  Graph g(ops::builtin());
  const TensorId x = g.state("x", DType::bf16, {kRows, kColumns}),
                 residual = g.state("r", DType::f32, {kRows, kHidden});
  const TensorId y = g.apply("linear", "long", {x, g.constant("weight", DType::bf16, {kHidden, kColumns})});
  const TensorId sum = g.apply("add", "sum", {residual, y});
  const TensorId n = g.apply("rmsnorm", "norm", {sum, g.constant("norm.weight", DType::bf16, {kHidden})});
  g.apply("linear", "short", {n, g.constant("other", DType::bf16, {32, kHidden})},
          {.outputs = {{"y", g.state("result", DType::bf16, {kRows, 32})}}});
  const Graph after = optimize(g, "cuda:sm_90a");
  EXPECT_THAT(print(after), ::testing::HasSubstr("linear_slices"));
  loop::Arrays wanted, found;
  std::mt19937_64 random(5);
  std::normal_distribution<double> value;
  for (const graph::Tensor& tensor : g.tensors()) {
    if (tensor.kind == graph::TensorKind::activation) continue;
    loop::Array& array = wanted[tensor.name] =
        loop::Array::zeros({tensor.shape[0].size, tensor.num_elements() / tensor.shape[0].size});
    if (tensor.shape.size() == 1) array = loop::Array::zeros({tensor.shape[0].size});
    for (double& one : array.values) one = value(random);
  }
  found = wanted;
  graph::interpret(g, lower(g, "cpu"), wanted, 1);
  graph::interpret(after, lower(after, "cuda"), found, 1);
  EXPECT_LT(error(found.at("result").values, wanted.at("result").values), 1e-9);
}

// Each rule has something to do for one of these shapes, or the test above would not test it.
TEST(RulesOfADecoder, AllFireSomewhere) {
  std::map<std::string, int> times;
  for (const Shape& shape : {Shape{.rows = 1, .biases = true, .head_norms = true},
                             Shape{.rows = 1, .biases = true, .head_norms = true, .quant_columns = 32},
                             Shape{.rows = 4, .biases = true, .head_norms = true},
                             Shape{.rows = 68, .biases = false, .head_norms = false, .intermediate = 6144}})
    for (const char* target : {"cpu", "cuda:sm_90a"}) {
      const Graph graph = optimize(Primitives(shape).take(), target);
      for (const graph::Rewrite& rewrite : graph.rewrites()) ++times[rewrite.rule];
    }
  for (const Rule& rule : rules()) EXPECT_GT(times[rule.name], 0) << rule.name;
}

}  // namespace
}  // namespace megalith::optimize
