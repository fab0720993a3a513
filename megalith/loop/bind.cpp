#include "megalith/loop/bind.h"

#include <cctype>

#include "megalith/base/error.h"

namespace megalith::loop {

namespace {

class Binder {
 public:
  Binder(const Kernel& kernel, const Binding& binding) {
    for (const Parameter& parameter : kernel.parameters) {
      auto value = binding.sizes.find(parameter.name);
      MEGALITH_CHECK(value != binding.sizes.end(), "[{}] the size {} has no value", kernel.name, parameter.name);
      if (!parameter.dynamic) values_[parameter.name] = value->second;
    }
  }

  void bind(Expr& expr) const {
    if (expr.kind == Expr::Kind::name) {
      auto value = values_.find(expr.name);
      if (value == values_.end()) return;
      expr.kind = Expr::Kind::number;
      expr.number = static_cast<double>(value->second);
      expr.is_integer = true;
      expr.name.clear();
    }
    for (Expr& arg : expr.args) bind(arg);
  }

  // Identifiers of an isl text that are parameters become numbers; everything else stays as it is.
  std::string bind(const std::string& text) const {
    std::string result;
    for (size_t i = 0; i < text.size();) {
      if (!std::isalpha(static_cast<unsigned char>(text[i])) && text[i] != '_') {
        result += text[i++];
        continue;
      }
      size_t end = i;
      while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '_')) ++end;
      const std::string word = text.substr(i, end - i);
      auto value = values_.find(word);
      result += value == values_.end() ? word : fmt::format("{}", value->second);
      i = end;
    }
    return result;
  }

 private:
  std::map<std::string, int64_t> values_;
};

}  // namespace

Kernel bind(const Kernel& kernel, const Binding& binding) {
  const Binder binder(kernel, binding);
  Kernel bound = kernel;
  bound.parameters.clear();
  for (const Parameter& parameter : kernel.parameters) {
    if (!parameter.dynamic) continue;
    bound.parameters.push_back(parameter);
    bound.assumptions += fmt::format("{}0 <= {} <= {}", bound.assumptions.empty() ? "" : " and ", parameter.name,
                                     binding.sizes.at(parameter.name));
  }
  bound.assumptions = binder.bind(bound.assumptions);
  for (std::string& domain : bound.domains) domain = binder.bind(domain);
  for (TensorArgument& tensor : bound.tensors)
    for (Expr& extent : tensor.shape) binder.bind(extent);
  for (Instruction& instruction : bound.instructions) {
    binder.bind(instruction.target);
    binder.bind(instruction.value);
    if (instruction.condition) binder.bind(*instruction.condition);
  }
  return bound;
}

}  // namespace megalith::loop
