// What rounding makes of a product of two sums: silu(x gate^T) * (x up^T), where one factor is nearly zero because its
// terms cancel, and the other is large. How much a GPU is allowed there (engine/operator_cases.h) follows from this.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <span>

#include "megalith/base/dtype.h"
#include "support/operator_cases.h"

namespace megalith {
namespace {

/// A sum in f32 as a GPU's warp has it: each lane every 32nd term, then lane by lane.
float sum_of_warp(std::span<const float> terms) {
  constexpr size_t kLanes = 32;
  float lanes[kLanes] = {};
  for (size_t i = 0; i < terms.size(); ++i) lanes[i % kLanes] += terms[i];
  for (size_t apart = kLanes / 2; apart > 0; apart /= 2)
    for (size_t lane = 0; lane < apart; ++lane) lanes[lane] += lanes[lane + apart];
  return lanes[0];
}
/// As a CPU has it: a product at a time is added, and the sum rounded (fma).
double sum_in_order(std::span<const double> terms) {
  float sum = 0;
  for (const double term : terms) sum = static_cast<float>(sum + term);
  return sum;
}

struct GateUp {
  std::vector<double> x, norm, gate, gate_scale, up, up_scale;
  size_t rows, columns, terms, scales, per_scale;
  double eps = 1e-6;

  /// y [rows, columns]: with terms and sums in `Real`, formed by `sum`.
  template <class Real, class Sum>
  std::vector<double> product(Sum sum) const {
    std::vector<double> y;
    std::vector<Real> squares(terms), a(terms), b(terms);
    for (size_t t = 0; t < rows; ++t)
      for (size_t n = 0; n < columns; ++n) {
        const auto of_x = [&](size_t k) { return static_cast<Real>(x[t * terms + k]); };
        for (size_t k = 0; k < terms; ++k) squares[k] = of_x(k) * of_x(k);
        const Real scale = 1 / std::sqrt(sum(squares) / static_cast<Real>(terms) + static_cast<Real>(eps));
        for (size_t k = 0; k < terms; ++k) {
          const Real normed = of_x(k) * scale * static_cast<Real>(norm[k]);
          const size_t at = n * terms + k, scale_at = n * scales + k / per_scale;
          a[k] = normed * (static_cast<Real>(gate[at]) * static_cast<Real>(gate_scale[scale_at]));
          b[k] = normed * (static_cast<Real>(up[at]) * static_cast<Real>(up_scale[scale_at]));
        }
        const Real gated = sum(a), other = sum(b);
        y.push_back(static_cast<double>(gated / (1 + std::exp(-gated)) * other));
      }
    return y;
  }
};

TEST(Rounding, OfAProductOfTwoSumsIsWhatAGpuIsAllowed) {
  const testing::OperatorCases all = testing::operator_cases({"rmsnorm_dequantize_gate_up"});
  testing::GraphMemory memory(all.graph);
  const auto test = std::ranges::find(all.cases, "rmsnorm_dequantize_gate_up.1.f32", &engine::OperatorCase::node);
  ASSERT_NE(test, all.cases.end());
  const auto node = std::ranges::find(all.graph.nodes(), test->node, &graph::Node::name);
  const auto size = [&](const char* name) { return static_cast<size_t>(test->sizes.at(name)); };
  constexpr int kDraws = 1000;
  constexpr double kUsual = 16;  // that other operators have
  std::mt19937_64 random(7);
  double largest = 0;
  for (int draw = 0; draw < kDraws; ++draw) {
    engine::fill_operator(all.graph, *node, memory, random);
    const auto values = [&](const char* name) { return memory.array(test->tensors.at(name)).values; };
    const GateUp of{values("x"),  values("norm"),     values("gate"), values("gate_scale"),
                    values("up"), values("up_scale"), size("T"),      size("N"),
                    size("K"),    size("G"),          size("L")};
    loop::Array wanted = memory.array(test->tensors.at("y")), found = wanted;
    wanted.values = of.product<double>([](const std::vector<double>& terms) {
      double sum = 0;
      for (const double term : terms) sum += term;
      return sum;
    });
    found.values = of.product<float>([](const std::vector<float>& terms) { return sum_of_warp(terms); });
    largest = std::max(largest, engine::largest_difference(found, wanted, DType::f32, kUsual, 3).roundings);
  }
  EXPECT_GT(largest, 1) << "or the usual allowance would do";
  EXPECT_LE(largest * kUsual, engine::gpu_slack(*test));
}

// The same where the norm is deferred: both sums are scaled by what the squares of the row add up to. Without squares
// nothing is scaled.
struct DeferredGateUp {
  std::vector<double> x, squares, gate, up;
  size_t rows, columns, terms, parts;
  double eps = 1e-6;

  template <class Real, class Sum>
  std::vector<double> product(Sum sum) const {
    std::vector<double> y;
    std::vector<Real> of_row(parts), a(terms), b(terms);
    for (size_t t = 0; t < rows; ++t) {
      for (size_t c = 0; c < parts; ++c) of_row[c] = static_cast<Real>(squares[t * parts + c]);
      const Real scale =
          parts == 0 ? 1 : 1 / std::sqrt(sum(of_row) / static_cast<Real>(terms) + static_cast<Real>(eps));
      for (size_t n = 0; n < columns; ++n) {
        for (size_t k = 0; k < terms; ++k) {
          a[k] = static_cast<Real>(x[t * terms + k]) * static_cast<Real>(gate[n * terms + k]);
          b[k] = static_cast<Real>(x[t * terms + k]) * static_cast<Real>(up[n * terms + k]);
        }
        const Real gated = scale * sum(a), other = scale * sum(b);
        y.push_back(static_cast<double>(gated / (1 + std::exp(-gated)) * other));
      }
    }
    return y;
  }
};

// `sum_of` takes terms of type Real.
template <class Real, class Sum>
double largest_off(const std::string& op, double usual, Sum sum_of, bool has_squares) {
  const testing::OperatorCases all = testing::operator_cases({op});
  testing::GraphMemory memory(all.graph);
  const auto test = std::ranges::find(all.cases, op + ".3.f32", &engine::OperatorCase::node);
  const auto node = std::ranges::find(all.graph.nodes(), op + ".3.f32", &graph::Node::name);
  const auto size = [&](const char* name) { return static_cast<size_t>(test->sizes.at(name)); };
  constexpr int kDraws = 100;
  std::mt19937_64 random(7);
  double largest = 0;
  for (int draw = 0; draw < kDraws; ++draw) {
    engine::fill_operator(all.graph, *node, memory, random);
    const auto values = [&](const char* name) { return memory.array(test->tensors.at(name)).values; };
    const DeferredGateUp of{values("x"),    has_squares ? values("squares") : std::vector<double>(),
                            values("gate"), values("up"),
                            size("T"),      size("N"),
                            size("K"),      has_squares ? size("C") : 0};
    loop::Array wanted = memory.array(test->tensors.at("y")), found = wanted;
    wanted.values = of.product<double>([](const std::vector<double>& terms) {
      double sum = 0;
      for (const double term : terms) sum += term;
      return sum;
    });
    found.values = of.product<Real>([&](const std::vector<Real>& terms) { return sum_of(terms); });
    largest = std::max(largest, engine::largest_difference(found, wanted, DType::f32, usual, 3).roundings);
  }
  return largest * usual;
}

TEST(Rounding, OfSumsThatAreScaledBehindIsWhatAGpuIsAllowed) {
  const engine::OperatorCase test = testing::operator_cases({"gate_up_rmsnorm_scale"}).cases[0];
  const double found = largest_off<float>("gate_up_rmsnorm_scale", 16, sum_of_warp, true);
  EXPECT_GT(found, 16) << "or the usual allowance would do";
  EXPECT_LE(found, engine::gpu_slack(test));
}

// A CPU adds up a column in order, of panels of 16.
TEST(Rounding, OfAProductOfTwoSumsInOrderIsWhatACpuIsAllowed) {
  const engine::OperatorCase test = testing::operator_cases({"gate_up"}).cases[0];
  const double found = largest_off<double>("gate_up", 12, sum_in_order, false);
  EXPECT_GT(found, 12) << "or the usual allowance would do";
  EXPECT_LE(found, engine::cpu_slack(test));
}

// Attention over the cache and the keys of this iteration, which are rotated and then, by the GPU's body, rounded as the
// cache will have them.
struct RopeAttention {
  std::vector<double> qkv, cosine, sine, k_cache, v_cache, page_table, request, position, start;
  size_t T, G, M, E, H, W, B, Q;
  double scale = 0.03125;

  double rotated(size_t t, size_t head, size_t d) const {
    const size_t at = (t * G * E + head) * 2 * H, m = d % H, row = index(position[t]) * W + (d < H ? m : W - H + m);
    return d < H ? qkv[at + m] * cosine[row] - qkv[at + H + m] * sine[row]
                 : qkv[at + H + m] * cosine[row] + qkv[at + m] * sine[row];
  }
  template <class Round>
  std::vector<double> product(Round round) const {
    const size_t D = 2 * H;
    std::vector<double> y;
    for (size_t t = 0; t < T; ++t)
      for (size_t g = 0; g < G; ++g)
        for (size_t m = 0; m < M; ++m) {
          std::vector<double> query(D), sum(D);
          for (size_t d = 0; d < D; ++d) query[d] = rotated(t, g * E + m, d);
          double total = 0;
          const auto add = [&](auto key, auto value) {
            double score = 0;
            for (size_t d = 0; d < D; ++d) score += query[d] * key(d);
            const double weight = std::exp(scale * score);
            total += weight;
            for (size_t d = 0; d < D; ++d) sum[d] += weight * value(d);
          };
          for (size_t p = 0; p < index(start[t]); ++p) {
            const size_t at = ((index(page_table[index(request[t]) * Q + p / B]) * B + p % B) * G + g) * D;
            add([&](size_t d) { return k_cache[at + d]; }, [&](size_t d) { return v_cache[at + d]; });
          }
          for (size_t u = 0; u < T; ++u)
            if (request[u] == request[t] && position[u] <= position[t])
              add([&](size_t d) { return round(rotated(u, g * E + M, d)); },
                  [&](size_t d) { return qkv[(u * G * E + g * E + M + 1) * D + d]; });
          for (const double value : sum) y.push_back(value / total);
        }
    return y;
  }
  static size_t index(double value) { return static_cast<size_t>(value); }
};

// The operator's own meaning rounds no key, so what the GPU's body is allowed must have room for that.
TEST(Rounding, OfKeysOfThisIterationIsWhatAGpuIsAllowed) {
  const testing::OperatorCases all = testing::operator_cases({"rope_attention"});
  testing::GraphMemory memory(all.graph);
  const auto test = std::ranges::find(all.cases, "rope_attention.3.bf16", &engine::OperatorCase::node);
  ASSERT_NE(test, all.cases.end());
  const auto node = std::ranges::find(all.graph.nodes(), test->node, &graph::Node::name);
  const auto size = [&](const char* name) { return static_cast<size_t>(test->sizes.at(name)); };
  const auto values = [&](const char* name) { return memory.array(test->tensors.at(name)).values; };
  const auto to_bf16 = [](double x) {
    return static_cast<double>(bf16_to_float(bf16_from_float(static_cast<float>(x))));
  };
  constexpr int kDraws = 300;
  std::mt19937_64 random(7);
  double largest = 0;
  for (int draw = 0; draw < kDraws; ++draw) {
    engine::fill_operator(all.graph, *node, memory, random);
    const RopeAttention of{values("qkv"),     values("cosine"),   values("sine"),
                           values("k_cache"), values("v_cache"),  values("page_table"),
                           values("request"), values("position"), values("start"),
                           size("T"),         size("G"),          size("M"),
                           size("E"),         size("H"),          size("W"),
                           size("B"),         size("Q")};
    loop::Array wanted = memory.array(test->tensors.at("y")), found = wanted;
    wanted.values = of.product(std::identity());
    found.values = of.product(to_bf16);
    for (double& y : found.values) y = to_bf16(y);
    const engine::Difference worst =
        engine::largest_difference(found, wanted, DType::bf16, engine::gpu_slack(*test), 1);
    largest = std::max(largest, worst.roundings);
  }
  EXPECT_GT(largest, 1) << "or one rounding would explain it";
  EXPECT_LE(largest, engine::kGpuRoundings);
}

}  // namespace
}  // namespace megalith
