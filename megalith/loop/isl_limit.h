// A bound on what isl may spend on a kernel. Most questions to isl take exponential time in the worst case, and a text of
// a few lines can ask one: an operator of somebody's, or an edited loops.txt.
#pragma once

#include <functional>
#include <string>

namespace megalith::loop {

/// Steps of isl's solvers, some seconds of them. The operators that come with Megalith take a hundredth of it or less.
inline constexpr unsigned long kMaxIslSteps = 20'000'000;

/// Calls `work`, which asks isl about the loop kernel called `kernel`. UserError naming the kernel and what to simplify
/// if isl takes more than `most_steps`. Calls within calls share the bound of the outermost.
void with_isl_limit(const std::string& kernel, const std::function<void()>& work,
                    unsigned long most_steps = kMaxIslSteps);

}  // namespace megalith::loop
