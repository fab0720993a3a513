// Expressions compiled for the interpreter: names resolved to slots and arrays, affine subscripts to linear forms,
// loops of reductions to bounds. A compiled expression is a tree of small objects; evaluating one is a virtual call.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "megalith/loop/affine.h"
#include "megalith/loop/domain.h"
#include "megalith/loop/interpret.h"
#include "megalith/loop/kernel.h"

namespace megalith::loop {

/// Thrown while evaluating; the interpreter adds kernel and instruction and makes it a UserError.
struct EvaluationError {
  std::string message;
};

/// slots: the values of all inames, in the order of Kernel::inames().
class Evaluable {
 public:
  virtual ~Evaluable() = default;
  virtual double eval(int64_t* slots) const = 0;
  /// The value as an integer; EvaluationError if it is none.
  virtual int64_t eval_index(int64_t* slots) const;
};
using EvaluablePtr = std::unique_ptr<Evaluable>;

/// One access: where in the tensor's array it lands.
class Location {
 public:
  virtual ~Location() = default;
  /// UserError naming instruction, tensor and index if that is outside the array.
  virtual double& at(int64_t* slots) const = 0;
};

/// A loop over one iname with bounds in the others.
struct CompiledLoop {
  int slot = 0;
  AffineRange range;
};

/// What compiling an expression needs. `kernel` has its sizes bound; arrays outlive what is compiled.
struct CompileContext {
  const Kernel& kernel;
  const Binding& binding;  // for attributes
  const Domains& domains;
  const std::map<std::string, Array*>& arrays;
  const Instruction* instruction = nullptr;
  std::vector<std::string> inames;  // that have a value here: within, and those of the reductions around
};

/// What `value` becomes when it is stored as, or cast to, a whole number: it goes towards 0 and ends at the edges of the
/// type; NaN becomes the lowest.
double whole_number(double value, DType dtype);

EvaluablePtr compile_expression(const Expr& expr, const CompileContext& context);
std::unique_ptr<Location> compile_location(const Expr& subscript, const CompileContext& context, bool is_write);

}  // namespace megalith::loop
