// What a body gets that came with its operator as a text (graph/declare.h): views of the slices that its task may
// touch, worked out from the loop kernel, and nothing that tells workers apart.
#pragma once

#include <string>
#include <vector>

#include "megalith/codegen/check_text.h"
#include "megalith/graph/lower.h"

namespace megalith::codegen {

/// The checks that views make by themselves: of each operand with a subscript that data decides one for each dimension.
std::vector<CheckText> checks_of_views(const graph::LoweredKernel& lowered);

/// struct NAME_task, with a view per operand, sizes, attributes, and the range of every task axis; and the function
/// NAME_task NAME_views(const NAME_args&) that makes one.
std::string write_views(const graph::LoweredKernel& lowered);

/// The text of a body, in the namespace `space`. The words by which a task could tell who runs it mean nothing there.
std::string write_body_text(const graph::TunedBody& body, const std::string& space);

}  // namespace megalith::codegen
