#include "megalith/graph/operator.h"

#include <fmt/ranges.h>

#include "megalith/base/error.h"
#include "megalith/base/plain_text.h"
#include "megalith/graph/compose.h"

namespace megalith::graph {

const Operand* Operator::find(const std::string& operand) const {
  for (const Operand& o : operands)
    if (o.name == operand) return &o;
  return nullptr;
}

std::string definition(const Operator& op) {
  std::string text = fmt::format("operator {}\n", op.name);
  for (const Operand& operand : op.operands)
    text += fmt::format("{} {}: {}[{}]{}{}\n",
                        operand.role == loop::Role::input    ? "input"
                        : operand.role == loop::Role::output ? "output"
                                                             : "inout",
                        operand.name, dtype_name(operand.dtype), fmt::join(operand.shape, ", "),
                        operand.exact_dtype ? " exactly" : "",
                        operand.index_into.empty() ? "" : " below " + operand.index_into);
  for (const loop::Attribute& attribute : op.attributes)
    text += fmt::format("attribute {} = {}\n", attribute.name, attribute.value);
  for (const std::string& size : op.extra_sizes) text += fmt::format("size {}\n", size);
  for (const TaskAxis& axis : op.axes)
    text += fmt::format("tasks along {} in multiples of {}\n", axis.iname, axis.multiple);
  if (!op.scatters.empty()) text += fmt::format("scatters {}\n", op.scatters);
  text += op.loops;
  if (op.epilogue) text += fmt::format("\nepilogue of {}", fmt::join(op.epilogue->values, ", "));
  for (const TunedBody& body : op.bodies)
    text += fmt::format("\nbody for {}: {} in {}{}\n{}", body.target, body.name, body.file,
                        body.watched ? ", watched" : "", body.text);
  return text;
}

operator_::operator_(std::string name, std::string doc) {
  op_.name = std::move(name);
  op_.doc = std::move(doc);
}

operator_& operator_::input(std::string name, std::vector<std::string> shape, DType dtype) {
  op_.operands.push_back({std::move(name), loop::Role::input, std::move(shape), dtype});
  return *this;
}

operator_& operator_::index(std::string name, std::vector<std::string> shape, std::string size) {
  op_.operands.push_back({std::move(name), loop::Role::input, std::move(shape), DType::i32, true, std::move(size)});
  return *this;
}

operator_& operator_::inout(std::string name, std::vector<std::string> shape, DType dtype) {
  op_.operands.push_back({std::move(name), loop::Role::inout, std::move(shape), dtype});
  return *this;
}

operator_& operator_::output(std::string name, std::vector<std::string> shape, DType dtype) {
  op_.operands.push_back({std::move(name), loop::Role::output, std::move(shape), dtype});
  return *this;
}

operator_& operator_::exactly() {
  op_.operands.back().exact_dtype = true;
  return *this;
}

operator_& operator_::attribute(std::string name, double default_value) {
  op_.attributes.push_back({std::move(name), default_value});
  return *this;
}

operator_& operator_::size(std::string name) {
  op_.extra_sizes.push_back(std::move(name));
  return *this;
}

operator_& operator_::loops(std::string text) {
  op_.loops = std::move(text);
  return *this;
}

operator_& operator_::epilogue_of(std::vector<std::string> values, std::vector<std::string> operands) {
  op_.epilogue = Epilogue{std::move(values), std::move(operands)};
  return *this;
}

operator_& operator_::composed(const std::string& program, const Registry& of) {
  op_.loops = compose(op_, program, of);
  return *this;
}

operator_& operator_::reference(Reference reference) {
  op_.reference = std::move(reference);
  return *this;
}

operator_& operator_::tasks(std::vector<TaskAxis> axes) {
  op_.axes = std::move(axes);
  return *this;
}

operator_& operator_::tasks(std::initializer_list<const char*> inames) {
  op_.axes.clear();
  for (const char* iname : inames) op_.axes.push_back({iname, 1});
  return *this;
}

operator_& operator_::body(std::string target, std::string file, std::string name,
                           std::function<bool(const BodyQuery&)> applies) {
  op_.bodies.push_back({std::move(target), std::move(file), std::move(name), std::move(applies)});
  return *this;
}

operator_& operator_::body(TunedBody body) {
  op_.bodies.push_back(std::move(body));
  return *this;
}

operator_& operator_::scatters(std::string axis) {
  op_.scatters = std::move(axis);
  return *this;
}

operator_& operator_::test(std::map<std::string, int64_t> sizes) {
  op_.tests.push_back(std::move(sizes));
  return *this;
}

const Operator& Registry::add(Operator op) {
  MEGALITH_CHECK(!has(op.name), "two operators are named \"{}\"", op.name);
  return replace(std::move(op));
}

namespace {

// They become names in loop kernels and in generated code.
void check_names(const Operator& op) {
  auto check = [&](const std::string& name, const char* what) {
    MEGALITH_CHECK(is_identifier(name), "[{}] a {} is called \"{}\", want letters, digits and _", plain_text(op.name),
                   what, plain_text(name));
  };
  check(op.name, "operator");
  for (const Operand& operand : op.operands) check(operand.name, "operand");
  for (const loop::Attribute& attribute : op.attributes) check(attribute.name, "attribute");
  for (const std::string& size : op.extra_sizes) check(size, "size");
  for (const TaskAxis& axis : op.axes) check(axis.iname, "task axis");
}

}  // namespace

const Operator& Registry::replace(Operator op) {
  check_names(op);
  std::shared_ptr<const Operator>& place = operators_[op.name];
  if (place) replaced_.push_back(place);
  place = std::make_shared<const Operator>(std::move(op));
  return *place;
}

const Operator& Registry::get(const std::string& name) const {
  auto found = operators_.find(name);
  MEGALITH_CHECK(found != operators_.end(), "there is no operator \"{}\"; known are {}", name,
                 fmt::join(names(), ", "));
  return *found->second;
}

std::vector<std::string> Registry::names() const {
  std::vector<std::string> result;
  for (const auto& [name, op] : operators_) result.push_back(name);
  return result;
}

}  // namespace megalith::graph
