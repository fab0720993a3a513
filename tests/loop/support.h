// Short hands for the tests of this folder.
#pragma once

#include <functional>
#include <random>
#include <string>

#include "megalith/base/error.h"
#include "megalith/loop/interpret.h"
#include "megalith/loop/text.h"

namespace megalith::loop {

/// The message of the UserError that `action` throws; "" if it throws none.
inline std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const UserError& error) { return error.what(); }
  return "";
}

inline Array array_of(std::vector<int64_t> shape, std::vector<double> values) {
  return {std::move(shape), std::move(values)};
}

/// Values in [-1, 1), the same for the same seed.
inline Array random_array(std::vector<int64_t> shape, unsigned seed) {
  Array array = Array::zeros(std::move(shape));
  std::mt19937 random(seed);
  for (double& value : array.values) value = static_cast<double>(random()) / 2147483648.0 - 1;
  return array;
}

/// Runs `text` and gives the tensor `output`.
inline Array run(const std::string& text, const Binding& binding, Arrays arrays, const std::string& output) {
  interpret(parse_kernel(text), binding, arrays);
  return arrays.at(output);
}

}  // namespace megalith::loop
