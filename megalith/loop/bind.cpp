#include "megalith/loop/bind.h"

#include "megalith/base/error.h"
#include "megalith/loop/domain.h"
#include "megalith/loop/lex.h"

namespace megalith::loop {

Kernel bind(const Kernel& kernel, const Binding& binding) {
  Binding fixed;
  std::string ranges;
  for (const Parameter& parameter : kernel.parameters) {
    const auto value = binding.sizes.find(parameter.name);
    MEGALITH_CHECK(value != binding.sizes.end(), "{} the parameter \"{}\" has no value", message_prefix(kernel.name),
                   parameter.name);
    if (parameter.dynamic)
      ranges += fmt::format("{}0 <= {} <= {}", ranges.empty() ? "" : " and ", parameter.name, value->second);
    else
      fixed.sizes.insert(*value);
  }
  Kernel bound = bind_sizes(kernel, fixed);
  if (!ranges.empty())
    bound.assumptions = bound.assumptions.empty() ? ranges : fmt::format("({}) and {}", bound.assumptions, ranges);
  return bound;
}

}  // namespace megalith::loop
