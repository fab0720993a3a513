// batch
#include "megalith/loop/transform/rewrite.h"
#include "megalith/loop/transform/transform.h"

namespace megalith::loop {

Kernel batch(const Kernel& kernel, const std::string& iname, const std::string& size,
             const std::set<std::string>& shared) {
  check_is_free(kernel, iname);
  Kernel result = kernel;
  const bool is_number = size.find_first_not_of("0123456789") == std::string::npos;
  if (!is_number && !kernel.is_parameter(size)) {
    check_is_free(kernel, size);
    result.parameters.push_back({size, false});
  }
  for (const std::string& name : shared) {
    const Role role = tensor_of(kernel, name).role;
    if (role == Role::temporary) refuse(kernel, "\"{}\" is a temporary: each repetition has its own", name);
    if (role != Role::input)
      refuse(kernel, "\"{}\" is written by each repetition: only inputs are the same for all of them", name);
  }
  const Expr length = is_number ? make_integer(std::stoll(size)) : make_name(size);
  for (TensorArgument& tensor : result.tensors) {
    if (shared.contains(tensor.name)) continue;
    if (!tensor.shape_known) refuse(kernel, "the shape of \"{}\" is not known", tensor.name);
    tensor.shape.insert(tensor.shape.begin(), length);
  }
  for_each_expression(result, [&](Expr& expr) {
    if (expr.kind == Expr::Kind::subscript && !shared.contains(expr.name))
      expr.args.insert(expr.args.begin(), make_name(iname));
  });
  for (Instruction& instruction : result.instructions) instruction.within.insert(instruction.within.begin(), iname);
  result.order = kernel.inames();
  result.order.insert(result.order.begin(), iname);
  result.domains.insert(result.domains.begin(), fmt::format("{{ [{0}] : 0 <= {0} < {1} }}", iname, size));
  return finished(std::move(result));
}

}  // namespace megalith::loop
