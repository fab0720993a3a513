// An operator from a text: the same as operator_ builds, for languages in which C++ is not at hand. The text is a loop
// kernel with its declarations (loop/text.h), and must say everything that a signature needs.
//
//   Operator gelu = declare({.name = "gelu", .doc = "y = gelu(x)", .text = R"(
//     input x: f32[T, N]
//     output y: f32[T, N]
//     { [t, n] : 0 <= t < T and 0 <= n < N }
//     y[t, n] = 0.5 * f32(x[t, n]) * (1 + tanh(0.79788456 * (x[t, n] + 0.044715 * pow(x[t, n], 3)))))",
//                           .axes = {{"n", 16}, {"t", 1}}, .tests = {{{"T", 3}, {"N", 100}}}});
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "megalith/graph/operator.h"

namespace megalith::graph {

/// A body in the language of a target: it defines `void NAME(const auto& task)` (docs/operators.md).
struct BodyText {
  std::string target;  // "cpu" or "cuda"
  std::string text;
  int64_t shared_bytes = 0;  // of shared memory that it works in, on a GPU: task.shared
};

struct Declaration {
  std::string name;
  std::string doc;
  std::string text;
  std::vector<TaskAxis> axes;                // none: cut along what the first subscript of the first output counts
  bool one_task = false;                     // cut along nothing: too little to be worth it
  std::map<std::string, std::string> index;  // integer input -> the size S such that its values are in [0, S)
  std::vector<std::map<std::string, int64_t>> tests;
  bool any_sizes = true;
  std::vector<BodyText> bodies;
  // Operands that take no dtype but their own; left out, those of integers. One that points into a size always does.
  std::optional<std::vector<std::string>> exact = {};
  // Off: an operator of Megalith's own, which a test checks, and not every start of a program. Any graph does again.
  bool checks_tests = true;
};

/// UserError "[name] ..." for whatever is wrong with it: the text, an operand without a shape, a task axis that is no
/// iname, a test without a size, a body that says what no task can know. What depends on sizes (bounds, races) is
/// looked at on each of `tests`.
Operator declare(const Declaration& declaration);

/// What a body must not say, since its task would depend on the worker that runs it, or would no longer be alone in
/// what it touches: UserError naming line, word and what to take instead. Comments may say anything.
void check_body_text(const std::string& op, const BodyText& body);

}  // namespace megalith::graph
