// The reference: runs a loop kernel point by point in float64. Slow, simple, and the judge in every test.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "megalith/loop/kernel.h"

namespace megalith::loop {

/// A row-major tensor in float64 (integers are held exactly).
struct Array {
  std::vector<int64_t> shape;
  std::vector<double> values;

  static Array zeros(std::vector<int64_t> shape);
};
using Arrays = std::map<std::string, Array>;

/// An element, for references that are plain C++. UserError naming tensor, index and shape if it is outside.
double& element(Arrays& arrays, const std::string& tensor, const std::vector<int64_t>& index);

/// Runs `kernel` on `arrays` (inputs and inouts must be there with the right shapes; outputs are made if absent;
/// temporaries are private and vanish). Every access is checked against the shape; UserError naming instruction, tensor
/// and index. Dynamic parameters take the value in `binding.sizes`; an array may be larger than the parameter says
/// along such a dimension (shape = the largest value), smaller is an error.
void interpret(const Kernel& kernel, const Binding& binding, Arrays& arrays);

}  // namespace megalith::loop
