// assume, fix_parameter
#include "megalith/loop/check.h"
#include "megalith/loop/domain.h"
#include "megalith/loop/transform/rewrite.h"
#include "megalith/loop/transform/transform.h"

namespace megalith::loop {

Kernel assume(const Kernel& kernel, const std::string& constraints) {
  Kernel result = kernel;
  result.assumptions =
      kernel.assumptions.empty() ? constraints : fmt::format("({}) and ({})", kernel.assumptions, constraints);
  check_domain_texts(result, [&](int, const std::string& reason) { refuse(kernel, "{}", reason); });
  check_assumptions(result);
  return finished(std::move(result));
}

Kernel fix_parameter(const Kernel& kernel, const std::string& parameter, int64_t value) {
  if (!kernel.is_parameter(parameter)) refuse(kernel, "there is no parameter \"{}\"", parameter);
  Kernel result = bind_sizes(kernel, {{{parameter, value}}, {}});
  check_assumptions(result);
  return finished(std::move(result));
}

}  // namespace megalith::loop
