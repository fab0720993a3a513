// fuse
#include <algorithm>

#include "megalith/loop/text.h"
#include "megalith/loop/transform/rewrite.h"
#include "megalith/loop/transform/transform.h"

namespace megalith::loop {

namespace {

using Joined = std::map<std::string, std::string>;  // input of the consumer -> output of the producer

bool is_same_shape(const TensorArgument& a, const TensorArgument& b) {
  return std::ranges::equal(a.shape, b.shape, [](const Expr& x, const Expr& y) {
    const auto m = constant_value(x), n = constant_value(y);
    return m && n ? *m == *n : same_expression(x, y);
  });
}

std::string describe(const TensorArgument& tensor) {
  std::vector<std::string> sizes;
  for (const Expr& size : tensor.shape) sizes.push_back(print(size));
  return fmt::format("\"{}\" {}[{}]", tensor.name, tensor.dtype ? dtype_name(*tensor.dtype) : "of no type",
                     fmt::join(sizes, ", "));
}

void check_alike(const Kernel& kernel, const TensorArgument& a, const TensorArgument& b) {
  if (a.dtype != b.dtype || !is_same_shape(a, b)) refuse(kernel, "{} is not {}", describe(a), describe(b));
}

void check_joined(const Kernel& producer, const Kernel& consumer, const Joined& joined,
                  const std::set<std::string>& kept) {
  for (const Kernel* kernel : {&producer, &consumer})
    if (kernel->opaque) refuse(*kernel, "it is opaque and cannot be fused: what it computes it does not say");
  if (joined.empty()) refuse(consumer, "no input is given that comes from {}", producer.name);
  for (const auto& [input, output] : joined) {
    const TensorArgument &to = tensor_of(consumer, input), &from = tensor_of(producer, output);
    if (to.role != Role::input) refuse(consumer, "\"{}\" is no input", input);
    if (from.role != Role::output) refuse(producer, "\"{}\" is no output", output);
    check_alike(consumer, to, from);
  }
  for (const std::string& name : kept)
    if (std::ranges::none_of(joined, [&](const auto& pair) { return pair.second == name; }))
      refuse(producer, "\"{}\" is to be kept, but nothing takes it", name);
}

// The consumer with names of its own for all that is not one with what the producer has: inames, temporaries, outputs, and
// inputs that are joined.
Kernel with_own_names(const Kernel& producer, Kernel consumer, Joined& joined) {
  const std::set<std::string> there = names_of(producer);
  std::set<std::string> taken = there;
  for (const std::string& name : names_of(consumer)) taken.insert(name);
  const auto rename_away = [&](const std::string& name) {
    const std::string fresh = free_name(consumer, name, taken);
    taken.insert(fresh);
    consumer = rename(consumer, name, fresh);
    return fresh;
  };
  for (const std::string& iname : consumer.inames())
    if (there.contains(iname)) rename_away(iname);
  for (const TensorArgument& tensor : std::vector(consumer.tensors)) {
    const bool is_joined = joined.contains(tensor.name);
    const TensorArgument* other = producer.find_tensor(tensor.name);
    if (!there.contains(tensor.name) ||
        (!is_joined && other && other->role == Role::input && tensor.role == Role::input))
      continue;
    const std::string fresh = rename_away(tensor.name);
    if (is_joined) {
      joined[fresh] = joined.at(tensor.name);
      joined.erase(tensor.name);
    }
  }
  return consumer;
}

void add_names(Kernel& result, const Kernel& consumer) {
  for (const Parameter& parameter : consumer.parameters) {
    const auto same = std::ranges::find(result.parameters, parameter.name, &Parameter::name);
    if (same == result.parameters.end())
      result.parameters.push_back(parameter);
    else if (same->dynamic != parameter.dynamic)
      refuse(consumer, "the parameter \"{}\" is dynamic in one of the two kernels and not in the other",
             parameter.name);
  }
  for (const Attribute& attribute : consumer.attributes) {
    const auto same = std::ranges::find(result.attributes, attribute.name, &Attribute::name);
    if (same == result.attributes.end())
      result.attributes.push_back(attribute);
    else if (same->value != attribute.value)
      refuse(consumer, "the attribute \"{}\" is {} in one of the two kernels and {} in the other: rename one",
             attribute.name, same->value, attribute.value);
  }
}

// Inputs first, then what is written, as operators have them.
void add_tensors(Kernel& result, const Kernel& consumer, const Joined& joined, const std::set<std::string>& kept) {
  for (TensorArgument& tensor : result.tensors) {
    const bool is_joined = std::ranges::any_of(joined, [&](const auto& pair) { return pair.second == tensor.name; });
    if (is_joined && !kept.contains(tensor.name)) tensor.role = Role::temporary, tensor.is_streamed = false;
  }
  for (const TensorArgument& tensor : consumer.tensors) {
    if (joined.contains(tensor.name)) continue;
    if (const TensorArgument* same = result.find_tensor(tensor.name))
      check_alike(consumer, tensor, *same);
    else
      result.tensors.push_back(tensor);
  }
  std::ranges::stable_sort(result.tensors, {}, [](const TensorArgument& tensor) {
    return tensor.role == Role::input ? 0 : tensor.role == Role::inout ? 1 : tensor.role == Role::output ? 2 : 3;
  });
}

void add_instructions(Kernel& result, const Kernel& consumer, const Joined& joined) {
  std::set<std::string> ids;
  for (const Instruction& instruction : result.instructions) ids.insert(instruction.id);
  std::map<std::string, std::string> new_ids;
  for (const Instruction& instruction : consumer.instructions) {
    std::string id = instruction.id;
    for (size_t number = result.instructions.size(); !ids.insert(id).second; ++number)
      id = fmt::format("insn{}", number);
    new_ids[instruction.id] = id;
  }
  for (Instruction instruction : consumer.instructions) {
    instruction.id = new_ids.at(instruction.id);
    for (std::string& id : instruction.depends_on) id = new_ids.at(id);
    for (std::string& id : instruction.unordered)
      if (const auto found = new_ids.find(id); found != new_ids.end()) id = found->second;
    for_each_expression(instruction, [&](Expr& expr) {
      const auto found = expr.kind == Expr::Kind::subscript ? joined.find(expr.name) : joined.end();
      if (found != joined.end()) expr.name = found->second;
    });
    result.instructions.push_back(std::move(instruction));
  }
}

}  // namespace

Kernel fuse(const Kernel& producer, const Kernel& consumer, const std::map<std::string, std::string>& joined,
            const std::set<std::string>& kept) {
  check_joined(producer, consumer, joined, kept);
  Joined names = joined;
  const Kernel second = with_own_names(producer, consumer, names);
  Kernel result = producer;
  result.name = fmt::format("{}_{}", producer.name, consumer.name);
  result.tags = second.tags;
  add_names(result, second);
  add_tensors(result, second, names, kept);
  if (!producer.order.empty() || !second.order.empty()) {
    result.order = producer.inames();
    for (const std::string& iname : second.inames()) result.order.push_back(iname);
  }
  result.domains.insert(result.domains.end(), second.domains.begin(), second.domains.end());
  if (result.assumptions.empty())
    result.assumptions = second.assumptions;
  else if (!second.assumptions.empty() && second.assumptions != result.assumptions)
    result.assumptions = fmt::format("({}) and ({})", result.assumptions, second.assumptions);
  add_instructions(result, second, names);
  return finished(std::move(result));
}

}  // namespace megalith::loop
