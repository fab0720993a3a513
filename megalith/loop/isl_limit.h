// A bound on what isl may spend on a kernel. Most questions to isl take exponential time in the worst case, and a text of
// a few lines can ask one: an operator of somebody's, or an edited loops.txt.
#pragma once

#include <functional>
#include <string>

namespace megalith::loop {

/// Calls `work`, which asks isl about the loop kernel called `kernel`. UserError naming the kernel and what to simplify
/// if isl takes too many steps. Calls within calls share the bound of the outermost.
void with_isl_limit(const std::string& kernel, const std::function<void()>& work);

}  // namespace megalith::loop
