// Values for what a graph is given, for tests that compare two graphs in the interpreter.
#pragma once

#include <cmath>
#include <random>

#include "megalith/graph/graph.h"
#include "megalith/loop/interpret.h"

namespace megalith::testing {

/// Uniform in (-1, 1), whole numbers in i8; sums of squares ("squares") are positive.
inline loop::Arrays random_arrays(const graph::Graph& graph, unsigned seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> value(-1, 1);
  loop::Arrays arrays;
  for (const graph::Tensor& tensor : graph.tensors()) {
    if (tensor.kind == graph::TensorKind::activation) continue;
    std::vector<int64_t> shape;
    for (const graph::Dim& dim : tensor.shape) shape.push_back(dim.size);
    loop::Array& array = arrays[tensor.name] = loop::Array::zeros(shape);
    for (double& one : array.values)
      one = tensor.dtype == DType::i8  ? std::floor(100 * value(random))
            : tensor.name == "squares" ? std::abs(value(random)) + 0.1
                                       : value(random);
  }
  return arrays;
}

}  // namespace megalith::testing
