// Sums for several outputs side by side: y[d] = ... sum(s, p[s] * v[s, d]) ... in a loop over d whose terms lie apart
// along s but together along d. Instead of one pass over v per output, the helper sum_columns() of kernels/cpu/reduce.h
// adds whole vectors of outputs, each output still in the order of s.
#pragma once

#include <string>

#include "megalith/codegen/expression.h"

namespace megalith::codegen {

/// Whether `instruction`, alone in the loop over `iname`, has that form. The writer's scope is that of the instruction.
bool sums_columns(const ExpressionContext& context, const ExpressionWriter& writer,
                  const loop::Instruction& instruction, const std::string& iname);

/// The statement for the whole loop; `loop` are the bounds of `iname`.
std::string write_columns(ExpressionContext& context, const ExpressionWriter& writer,
                          const loop::Instruction& instruction, const std::string& iname, const Bounds& loop);

/// True if `word` stands alone in `text`, as an identifier that is no member.
bool has_word(const std::string& text, const std::string& word);

}  // namespace megalith::codegen
