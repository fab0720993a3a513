// Memory for the constants and states of a graph, with random values in it, and what it holds as the interpreter wants
// it: what tests, checks and benchmarks of single operators run on.
#pragma once

#include <cstddef>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "megalith/graph/graph.h"
#include "megalith/loop/interpret.h"

namespace megalith::engine {

/// A tensor's sizes, dynamic ones at their largest.
std::vector<int64_t> shape_of(const graph::Tensor& tensor);

/// Memory for every constant and state of a graph, zero to begin with, and its conversion to and from the interpreter's
/// arrays. The graph must outlive it. SystemError if the machine has not as much.
class GraphMemory {
 public:
  explicit GraphMemory(const graph::Graph& graph);

  const std::map<std::string, void*>& addresses() const { return addresses_; }
  void* address(const std::string& name) { return addresses_.at(name); }

  void set(const std::string& name, const std::vector<double>& values);
  loop::Array array(const std::string& name) const;
  /// Everything, as the interpreter wants it.
  loop::Arrays arrays() const;

 private:
  const graph::Graph& graph_;
  std::map<std::string, std::vector<std::byte>> bytes_;
  std::map<std::string, void*> addresses_;
};

/// Normal values for floats, uniform ones in [0, limit) for integers.
std::vector<double> random_values(int64_t n, DType dtype, int64_t limit, std::mt19937_64& random);

/// Where two arrays differ most, in what rounding of `dtype` and of f32 sums may explain, 1 being the limit: errors
/// grow with the element and, since sums cancel, with the tensor's typical size.
struct Difference {
  double roundings = 0;
  size_t index = 0;  // of the element, row-major
};
Difference largest_difference(const loop::Array& found, const loop::Array& wanted, DType dtype, double slack = 8,
                              double roundings = 1);

}  // namespace megalith::engine
