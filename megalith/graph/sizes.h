// Solves an operator's sizes from the shapes of its operands: "H" is what the dimension says, "N * D" gives N when D is
// known, and everything that is over-determined is checked.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "megalith/graph/graph.h"

namespace megalith::graph {

struct SolvedSizes {
  std::map<std::string, int64_t> sizes;
  std::map<std::string, std::string> dynamic;
};

/// `shapes`: operand name -> its tensor (absent for outputs that are still to be made). `given`: sizes from the node.
/// UserError "[op] ..." naming operand, dimension, found and wanted.
SolvedSizes solve_sizes(const Operator& op, const std::string& node, const std::map<std::string, const Tensor*>& shapes,
                        const std::map<std::string, int64_t>& given);

/// Shape of an operand once all sizes are known. A product with a dynamic factor is an error.
std::vector<Dim> operand_shape(const Operator& op, const Operand& operand, const SolvedSizes& solved);

}  // namespace megalith::graph
