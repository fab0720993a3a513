// Where the tensors of a kernel live while its code runs, and how their elements are addressed. plan_places() says it for the
// body of an operator: operands behind pointers, temporaries in scalars, stack arrays or scratch. There a temporary's
// dimension vanishes when every access indexes it by the same loop around them all: ss[t] inside one loop over t is a scalar.
// Of a kernel of one's own loop_storage.h says it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "megalith/loop/kernel.h"
#include "megalith/loop/nest.h"

namespace megalith::codegen {

struct Place {
  enum class Where { operand, scalar, stack, scratch };

  std::string text;  // its name in the source; "{}" in it stands for the lane, where those of a warp stand in one array
  DType dtype = DType::f32;
  Where where = Where::operand;
  std::vector<loop::Expr> sizes;     // of its axes, row-major; of a body's the largest values
  std::set<size_t> vanished;         // axes that take no room
  std::optional<size_t> lanes_axis;  // each lane of a warp has the elements of its own along this axis
  int64_t num_elements = 1;          // of a body's
  int together = 0;  // of [rows, columns] in panels (kernels/panel_layout.h): columns that stand together; 0: row-major
  int64_t scratch_offset = 0;
  int depth = 0;                  // of the loops around its declaration
  bool defined_by_write = false;  // a scalar whose only write is unconditional and where it is declared
};

struct Places {
  std::map<std::string, Place> of;  // by tensor name
  int64_t scratch_bytes = 0;
};

/// `kernel` has its static sizes put in; `sizes` are the largest values of all. Without a stack, arrays that a worker's
/// threads share lie in scratch.
Places plan_places(const loop::Kernel& kernel, const std::map<std::string, int64_t>& sizes,
                   const std::vector<loop::NestNode>& nest, bool use_stack);

/// C++ words and names that generated bodies use: not to be given to anything else.
bool is_taken_name(const std::string& name);

}  // namespace megalith::codegen
