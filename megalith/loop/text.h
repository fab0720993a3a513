// Text to loop kernel and back. print(parse(text)) parsed again gives the same kernel, and printing that gives the same
// text. The grammar of a whole kernel:
//
//   kernel rmsnorm
//   parameter T dynamic
//   parameter H
//   attribute eps = 1e-06
//   input x: f32[T, H]
//   input weight: bf16[H]
//   output y: f32[T, H]
//   temporary ss: f32[T]
//   assume H >= 1
//   { [t, h, k] : 0 <= t < T and 0 <= h < H and 0 <= k < H }
//   ss[t] = sum(k, x[t, k] * x[t, k])
//   y[t, h] = x[t, h] * rsqrt(ss[t] / H + eps) * weight[h]  {id=scale, dep=insn0}
//
// Declarations may be left out where inference finds them: every name in a domain that is no iname is a parameter; a
// subscripted name that is written and not declared is a temporary if it is also read, else an output; one only read is
// an input. `#` starts a comment. dtype and shape of a tensor may be left out (`input x`), or just one of them
// (`input x: [T, H]`). A line goes on inside brackets and after an operator. Also: `opaque`, `tag t = task` (or another
// name of loop/tag.h), several `assume`; `order h, t, k`, all inames in the order of their loops, outermost first; and
// `private`, `shared` or `global` behind a temporary, and
// `in POOL` for one that shares memory with others; `rule f(a, b) = a * b`, before it is called; `barrier`, a line between two
// instructions.
//
// After an instruction, in braces: id=name; dep=a:b (must run before); nosync=a:b (needs no barrier); if=condition; inames=i:j (to be within besides
// those of the target); tag=s:lane (another tag than elsewhere, one iname each). Expressions, from weakest to tightest: or; and; not; < <= > >= == != (they do not chain); + -;
// * / // mod; unary -; calls, subscripts, parentheses. Functions are those of loop/function.h; bf16(x) and so on cast;
// `inf` is a number.
//
// A text may come from anywhere: its size and nesting, and what isl may spend on it, are bounded.
#pragma once

#include <string>
#include <string_view>

#include "megalith/loop/kernel.h"

namespace megalith::loop {

/// Parses a whole kernel, or only its domains and instructions; UserError with line, column and what was expected.
Kernel parse_kernel(std::string_view text);

/// The same, but isl is not asked whether it can read the domains: of a text that is made into another one, which is
/// parsed in its turn. isl takes four fifths of the time of a short text.
Kernel parse_kernel_without_isl(std::string_view text);

/// The whole kernel as text, declarations included.
std::string print(const Kernel& kernel);
std::string print(const Expr& expr);
std::string print(const Instruction& instruction);

}  // namespace megalith::loop
