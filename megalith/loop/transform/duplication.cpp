// duplication_options
#include <algorithm>

#include "megalith/loop/transform/rewrite.h"
#include "megalith/loop/transform/transform.h"

namespace megalith::loop {

namespace {

using Ids = std::set<std::string>;

Ids instructions_of(const Kernel& kernel, const std::string& iname) {
  Ids ids;
  for (const Instruction& instruction : kernel.instructions)
    if (is_among(instruction.within, iname)) ids.insert(instruction.id);
  return ids;
}

Ids with(const Ids& a, const Ids& b, bool wanted) {
  Ids result;
  std::ranges::copy_if(a, std::inserter(result, result.end()),
                       [&](const std::string& id) { return b.contains(id) == wanted; });
  return result;
}

}  // namespace

std::vector<Duplication> duplication_options(const Kernel& kernel) {
  std::vector<Duplication> options;
  const std::vector<std::string> inames = kernel.inames();
  for (const std::string& a : inames)
    for (const std::string& b : inames) {
      const Ids in_a = instructions_of(kernel, a), in_b = instructions_of(kernel, b);
      const Ids both = with(in_a, in_b, true), alone = with(in_a, in_b, false);
      if (a == b || both.empty() || alone.empty() || both.size() == in_b.size()) continue;
      for (const Ids& ids : {both, alone}) {
        const bool is_known =
            std::ranges::any_of(options, [&](const Duplication& o) { return o.iname == a && o.ids == ids; });
        if (!is_known) options.push_back({a, ids});
      }
    }
  return options;
}

}  // namespace megalith::loop
