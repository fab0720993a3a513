// set_space, share, privatise, pad_axis
#include <algorithm>

#include "megalith/loop/instance.h"
#include "megalith/loop/meeting.h"
#include "megalith/loop/tag.h"
#include "megalith/loop/text.h"
#include "megalith/loop/transform/rewrite.h"
#include "megalith/loop/transform/transform.h"

namespace megalith::loop {

namespace {

TensorArgument& temporary_of(Kernel& kernel, const std::string& name) {
  tensor_of(kernel, name);
  TensorArgument& tensor = *kernel.find_tensor(name);
  if (tensor.role != Role::temporary) refuse(kernel, "\"{}\" is no temporary: others look at it", name);
  return tensor;
}

}  // namespace

Kernel set_space(const Kernel& kernel, const std::string& temporary, Space space) {
  Kernel result = kernel;
  temporary_of(result, temporary).space = space;
  return result;
}

Kernel share(const Kernel& kernel, const std::vector<std::string>& temporaries, const std::string& storage) {
  check_is_free(kernel, storage);
  if (temporaries.size() < 2) refuse(kernel, "want two temporaries or more that share \"{}\"", storage);
  Kernel result = kernel;
  for (const std::string& temporary : temporaries) {
    TensorArgument& tensor = temporary_of(result, temporary);
    if (!tensor.storage.empty()) refuse(kernel, "{} shares \"{}\" already", temporary, tensor.storage);
    tensor.storage = storage;
  }
  return result;
}

Kernel privatise(const Kernel& kernel, const std::string& temporary, const std::vector<std::string>& inames) {
  Kernel result = kernel;
  TensorArgument& tensor = temporary_of(result, temporary);
  for (const std::string& iname : inames) check_has_iname(kernel, iname);
  const auto touches = [&](const Instruction& instruction) {
    Instruction copy = instruction;
    bool found = false;
    for_each_expression(copy,
                        [&](Expr& expr) { found |= expr.kind == Expr::Kind::subscript && expr.name == temporary; });
    return found;
  };
  for (const Instruction& instruction : kernel.instructions)
    for (const std::string& iname : inames)
      if (touches(instruction) && !is_among(instruction.within, iname))
        refuse(kernel, "the instruction {} uses {}, but is not within {}", instruction.id, temporary, iname);
  // What is read was written at the same values of the inames.
  const Domains domains(kernel);
  for (const Flow& flow : flow_of(kernel, domains, temporary))
    for (const std::string& iname : inames) {
      const auto position = [&](size_t instruction) {
        const std::vector<std::string>& within = kernel.instructions[instruction].within;
        return static_cast<unsigned>(std::ranges::find(within, iname) - within.begin());
      };
      const isl::map elsewhere =
          flow.pairs.subtract(compared(flow.pairs, position(flow.from), position(flow.to), true));
      if (!elsewhere.is_empty())
        refuse(kernel, "\"{}\" reads of {} what \"{}\" wrote at another {} (at {})", kernel.instructions[flow.to].id,
               temporary, kernel.instructions[flow.from].id, iname, example_of(kernel, flow.from, flow.to, elsewhere));
    }
  tensor.shape_known = false;
  tensor.shape.clear();
  for_each_expression(result, [&](Expr& expr) {
    if (expr.kind != Expr::Kind::subscript || expr.name != temporary) return;
    for (const std::string& iname : inames) expr.args.push_back(make_name(iname));
  });
  return finished(std::move(result));
}

Kernel pad_axis(const Kernel& kernel, const std::string& temporary, int axis, int64_t by) {
  Kernel result = kernel;
  TensorArgument& tensor = temporary_of(result, temporary);
  if (!tensor.shape_known || axis < 0 || static_cast<size_t>(axis) >= tensor.shape.size())
    refuse(kernel, "\"{}\" has no axis {}", temporary, axis);
  if (by < 0 || by > 1 << 20) refuse(kernel, "an axis of \"{}\" grows by {}, want 0 or more", temporary, by);
  Expr& size = tensor.shape[static_cast<size_t>(axis)];
  const auto number = constant_value(size);
  size = number ? make_integer(*number + by) : make_call("+", {size, make_integer(by)});
  return result;
}

}  // namespace megalith::loop
