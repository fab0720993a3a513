#include "megalith/loop/storage.h"

#include <fmt/format.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <map>
#include <vector>

#include "megalith/base/error.h"
#include "megalith/loop/instance.h"
#include "megalith/loop/lex.h"

namespace megalith::loop {

namespace {

// No instance of an instruction that writes `writer` runs between a write and a read of `holder`.
void check_pair(const Kernel& kernel, const Domains& domains, const std::string& holder, const std::string& writer) {
  for (const Flow& flow : flow_of(kernel, domains, holder))
    for (size_t between = 0; between < kernel.instructions.size(); ++between) {
      const Instruction& instruction = kernel.instructions[between];
      if (instruction.target.name != writer) continue;
      const isl::set points = project_dimensions(domains.over(instruction.within), instruction.within);
      const isl::map from = isl::manage(isl_map_from_domain_and_range(flow.pairs.domain().release(), points.copy())),
                     to = isl::manage(isl_map_from_domain_and_range(points.copy(), flow.pairs.range().release()));
      const isl::map behind = from.intersect(runs_before(kernel, flow.from, between, from)),
                     before = to.intersect(runs_before(kernel, between, flow.to, to));
      const isl::map lost = flow.pairs.intersect(behind.apply_range(before));
      MEGALITH_CHECK(
          lost.is_empty(),
          "{} {} and {} share memory, and \"{}\" writes {} before \"{}\" has read what \"{}\" wrote to {} (at "
          "{}): give each its own",
          message_prefix(kernel.name), holder, writer, instruction.id, writer, kernel.instructions[flow.to].id,
          kernel.instructions[flow.from].id, holder, example_of(kernel, flow.from, flow.to, lost));
    }
}

}  // namespace

bool share_storage(const Kernel& kernel, const std::string& a, const std::string& b) {
  if (a == b) return false;
  const TensorArgument *first = kernel.find_tensor(a), *second = kernel.find_tensor(b);
  return first && second && !first->storage.empty() && first->storage == second->storage;
}

void check_storage(const Kernel& kernel, const Domains& domains) {
  std::map<std::string, std::vector<const TensorArgument*>> storages;
  for (const TensorArgument& tensor : kernel.tensors)
    if (!tensor.storage.empty()) storages[tensor.storage].push_back(&tensor);
  for (const TensorArgument& a : kernel.tensors) {
    if (a.storage.empty()) continue;
    for (const TensorArgument* b : storages.at(a.storage)) {
      if (&a == b) continue;
      MEGALITH_CHECK(a.dtype == b->dtype, "{} {} and {} share memory, and are not of one type",
                     message_prefix(kernel.name), a.name, b->name);
      check_pair(kernel, domains, a.name, b->name);
    }
  }
}

}  // namespace megalith::loop
