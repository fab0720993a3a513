// What may be dealt out, to threads, warps or the lanes of vectors, and what stands in the way: asked where a schedule is
// proposed, and where one that somebody wrote is checked.
#pragma once

#include <string>
#include <vector>

#include "megalith/codegen/expression.h"
#include "megalith/loop/nest.h"

namespace megalith::codegen {

/// The loops around an instruction or a loop, outermost first; a loop's own is the last.
using LoopPath = std::vector<const loop::NestNode*>;

/// Each answer is "" if nothing stands in the way, else words for a message that has named the loop: "t[n] is read where
/// another iteration writes it".

/// Threads or warps of a block take iterations of the innermost loop of `path` in turns.
std::string why_not_in_turns(const BodyContext& context, const ExpressionWriter& writer, const LoopPath& path);

/// The lanes of a CPU's vectors take iterations side by side: no iteration touches what another one writes, and none sums;
/// or all there is in it is a sum whose terms lie side by side along the loop (columns.h).
std::string why_not_in_vectors(const BodyContext& context, const ExpressionWriter& writer, const LoopPath& path,
                               const std::vector<std::string>& tiled);

/// True if all that the terms of a reduction read lies side by side in memory along its innermost iname, or is the same for
/// every term: then it is worth forming 16 at a time.
bool reads_side_by_side(const BodyContext& context, const ExpressionWriter& writer, const loop::Expr& reduce);

/// Whether there are reductions in an expression.
bool has_reduce(const loop::Expr& expr);

}  // namespace megalith::codegen
