// loopy's programs (L17 of its tests) at the sizes that it has them at. The interpreter would take hours: some elements are
// held against f64.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "megalith/loop/interpret.h"

namespace megalith::testing {

using loop::Arrays;

inline double small_sized(size_t at) { return static_cast<double>(at * 7 % 13) / 8 - 0.75; }

struct SizedLoopProgram {
  const char* name;
  const char* kernel;
  const char* steps;
  int64_t n;
  std::vector<std::pair<const char*, std::vector<int64_t>>> inputs;
  const char* output;
  /// What an element of the output is.
  std::function<double(int64_t n, const Arrays& inputs, int64_t at)> element;
};

inline constexpr const char* kProduct =
    "input a: f32[n, n]\ninput b: f32[n, n]\noutput c: f32[n, n]\nassume n >= 1\n"
    "{ [i, j, k] : 0 <= i < n and 0 <= j < n and 0 <= k < n }\nc[i, j] = sum(k, a[i, k] * b[k, j])\n";
inline constexpr const char* kRankOne =
    "input a: f32[n]\ninput b: f32[n]\noutput c: f32[n, n]\nassume n >= 1\n"
    "{ [i, j] : 0 <= i < n and 0 <= j < n }\nc[i, j] = a[i] * b[j]\n";

inline double product_of(int64_t rows_of_b, int64_t columns, const Arrays& inputs, int64_t at) {
  double sum = 0;
  for (int64_t k = 0; k < rows_of_b; ++k)
    sum += inputs.at("a").values[static_cast<size_t>(at / columns * rows_of_b + k)] *
           inputs.at("b").values[static_cast<size_t>(k * columns + at % columns)];
  return sum;
}
inline double square_product(int64_t n, const Arrays& inputs, int64_t at) { return product_of(n, n, inputs, at); }
inline double outer_product(int64_t n, const Arrays& inputs, int64_t at) {
  return inputs.at("a").values[static_cast<size_t>(at / n)] * inputs.at("b").values[static_cast<size_t>(at % n)];
}

inline const std::vector<SizedLoopProgram>& sized_loop_programs() {
  static const std::vector<SizedLoopProgram> all = {
      {"axpy",
       "attribute s = 2.5\ninput x: f32[n]\ninput y: f32[n]\noutput z: f32[n]\nassume n >= 1\n{ [i] : 0 <= i < n }\n"
       "z[i] = s * x[i] + y[i]\n",
       "split i 1024 -> o:g.0 p\npeel o -> last where o >= floor(n/1024)\nsplit p 256 -> u:unr q:l.0\n",
       3145182,
       {{"x", {3145182}}, {"y", {3145182}}},
       "z",
       [](int64_t, const Arrays& inputs, int64_t at) {
         return 2.5 * inputs.at("x").values[static_cast<size_t>(at)] + inputs.at("y").values[static_cast<size_t>(at)];
       }},
      {"transpose",
       "input a: f32[n, n]\noutput b: f32[n, n]\nassume n >= 1\n{ [i, j] : 0 <= i < n and 0 <= j < n }\n"
       "b[i, j] = a[j, i]\n",
       "tile i j 16 16 -> i_o:g.1 j_o:g.0 i_i:l.1 j_i:l.0\nprefetch a[j_i, i_i] -> t p:l.1 q:l.0\npad t 1 1\n",
       1600,
       {{"a", {1600, 1600}}},
       "b",
       [](int64_t n, const Arrays& inputs, int64_t at) {
         return inputs.at("a").values[static_cast<size_t>(at % n * n + at / n)];
       }},
      {"matmul",
       kProduct,
       "assume n mod 16 = 0\ntile i j 16 16 -> i_o:g.0 j_o:g.1 i_i:l.1 j_i:l.0\nsplit k 16 -> k_o k_i\n"
       "order i_o j_o k_o i_i j_i k_i\naccumulate k_o -> acc\nprefetch a[i_i, k_i] -> a_s a_i:l.1 a_k:l.0\n"
       "prefetch b[k_i, j_i] -> b_s b_k:l.1 b_j:l.0\n",
       1600,
       {{"a", {1600, 1600}}, {"b", {1600, 1600}}},
       "c",
       square_product},
      {"matmul_of_any_size",
       kProduct,
       "tile i j 16 16 -> i_o:g.0 j_o:g.1 i_i:l.1 j_i:l.0\nsplit k 16 -> k_o k_i\norder i_o j_o k_o i_i j_i k_i\n"
       "accumulate k_o -> acc\npeel k_o -> last where k_o >= floor(n/16)\n",
       777,
       {{"a", {777, 777}}, {"b", {777, 777}}},
       "c",
       square_product},
      {"funny_shape",
       "input a: f32[n, n + 12]\ninput b: f32[n + 12, n + 24]\noutput c: f32[n, n + 24]\nassume n >= 1\n"
       "{ [i, j, k] : 0 <= i < n and 0 <= j < n + 24 and 0 <= k < n + 12 }\nc[i, j] = sum(k, a[i, k] * b[k, j])\n",
       "split k 16 -> k_o k_i\ntile i j 16 8 -> i_o:g.0 j_o:g.1 i_i:l.1 j_i:l.0\norder i_o j_o k_o i_i j_i k_i\n"
       "accumulate k_o -> acc\nextract_subst b_acc(p, q) = b[p, q]\nextract_subst a_acc(r, s) = a[r, s]\n"
       "precompute b_acc[k_i, j_i] -> b_s b_k:l.1 b_j:l.0\nprefetch a[i_i, k_i] -> a_s a_i:l.1 a_k:l.0\n",
       512,
       {{"a", {512, 524}}, {"b", {524, 536}}},
       "c",
       [](int64_t n, const Arrays& inputs, int64_t at) { return product_of(n + 12, n + 24, inputs, at); }},
      {"rank_one_1",
       kRankOne,
       "split i 16 -> i_o:g.0 i_i:l.0\nsplit j 16 -> j_o:g.1 j_i\n",
       4096,
       {{"a", {4096}}, {"b", {4096}}},
       "c",
       outer_product},
      {"rank_one_2",
       kRankOne,
       "tile i j 16 16 -> i_o:g.0 j_o:g.1 i_i:l.0 j_i:l.1\nprefetch a[i_i] -> a_s p:l.0\nprefetch b[j_i] -> b_s "
       "q:l.0\n",
       4096,
       {{"a", {4096}}, {"b", {4096}}},
       "c",
       outer_product},
      {"rank_one_3",
       kRankOne,
       "split i 16 -> i_o:g.0 i_i:l.0\nsplit j 16 -> j_o:g.1 j_i\norder i_o j_o i_i j_i\nprefetch b[j_i] -> b_s "
       "q:l.0\n",
       4096,
       {{"a", {4096}}, {"b", {4096}}},
       "c",
       outer_product},
      {"rank_one_4",
       kRankOne,
       "tile i j 256 256 -> i_o:g.0 j_o:g.1 i_m j_m\nsplit i_m 16 -> i_r i_i:l.0\nsplit j_m 16 -> j_r j_i:l.1\n",
       4096,
       {{"a", {4096}}, {"b", {4096}}},
       "c",
       outer_product},
      {"ilp_matmul",
       kProduct,
       "tile i j 16 16 -> i_o:g.0 j_o:g.1 i_i j_i\nsplit i_i 2 -> i_t:l.1 i_r:ilp\nsplit j_i 2 -> j_t:l.0 j_r:ilp\n"
       "split k 8 -> k_o k_i\norder i_o j_o k_o i_t j_t k_i i_r j_r\naccumulate k_o k_i -> acc\n",
       192,
       {{"a", {192, 192}}, {"b", {192, 192}}},
       "c",
       square_product},
      {"n_bodies",
       "input x: f32[n, 3]\noutput pot: f32[n]\nassume n >= 1\n"
       "{ [i, j, k] : 0 <= i < n and 0 <= j < n and 0 <= k < 3 }\n"
       "pot[i] = sum(j, if(i == j, 0, rsqrt(sum(k, (x[i, k] - x[j, k]) * (x[i, k] - x[j, k])) + 0.01)))\n",
       "split i 256 -> i_o:g.0 i_i:l.0\nsplit j 256 -> j_o j_i\norder i_o j_o i_i j_i k\naccumulate j_o -> acc\n",
       3000,
       {{"x", {3000, 3}}},
       "pot",
       [](int64_t n, const Arrays& inputs, int64_t at) {
         const std::vector<double>& x = inputs.at("x").values;
         double sum = 0;
         for (int64_t j = 0; j < n; ++j) {
           double distance = 0.01;
           for (int64_t k = 0; k < 3; ++k)
             distance += std::pow(x[static_cast<size_t>(3 * at + k)] - x[static_cast<size_t>(3 * j + k)], 2);
           if (j != at) sum += 1 / std::sqrt(distance);
         }
         return sum;
       }},
  };
  return all;
}

/// Numbers of its inputs, of some size each.
inline Arrays inputs_of(const SizedLoopProgram& program) {
  Arrays arrays;
  for (const auto& [name, shape] : program.inputs) {
    loop::Array& array = arrays[name] = loop::Array::zeros(shape);
    for (size_t at = 0; at < array.values.size(); ++at) array.values[at] = small_sized(at + shape.size());
  }
  return arrays;
}

/// The first of some elements of every part, and the last, that is off by more than loopy's tests allow; -1: none is.
inline int64_t wrong_element(const SizedLoopProgram& program, const Arrays& arrays) {
  const std::vector<double>& found = arrays.at(program.output).values;
  const auto count = static_cast<int64_t>(found.size());
  const int64_t step = std::max<int64_t>(1, count / 251);
  for (int64_t at = 0; at < count; at = at + step < count || at == count - 1 ? at + step : count - 1) {
    const double wanted = program.element(program.n, arrays, at);
    if (!(std::abs(found[static_cast<size_t>(at)] - wanted) <= 1e-3 * (1 + std::abs(wanted)))) return at;
  }
  return -1;
}

}  // namespace megalith::testing
