// The meaning of an operator that is made of others, as a small program over them:
//
//   normed = rmsnorm(x, norm)
//   y      = linear(normed, weight)
//
// A line uses one operator: on the left what it writes, in brackets what it reads, in the order of its declaration (an inout
// among what it reads). Names are the operands of the operator that is made; others are temporaries, which are f32 and never
// rounded. Sizes follow from shapes; behind a semicolon stand those that no shape tells, and what is to be called otherwise:
//
//   keys = head_norm(k, k_norm; A = G, t as u, a as g)
//   logits, value, index = linear_argmax(...; n in C * L)
//
// `t as u`: the operator's loop t is the loop u of the whole; loops of one name and one range are one. A loop whose range
// becomes a product, A = G * M, becomes two, which are called as the sizes, in small letters: a = g * M + m. `n in C * L`:
// the loop n is taken in C pieces of L, the last of which may be shorter.
//
// What comes out is the text of one loop kernel. Temporaries without a sum in them go where they are read, so
// linear(rmsnorm(x)) is one sum over x, its scale and both weights. What an epilogue is of (Operator::epilogue) stays.
#pragma once

#include <string>

#include "megalith/graph/operator.h"

namespace megalith::graph {

/// Domain and instructions, as Operator::loops has them. `signature` has operands, attributes and sizes. UserError with the
/// operator's name and the line if the program does not read or its shapes do not go together.
std::string compose(const Operator& signature, const std::string& program, const Registry& registry);

/// The operator's loop kernel with its sizes as names, which isl has not looked at.
loop::Kernel generic_kernel(const Operator& op);

}  // namespace megalith::graph
