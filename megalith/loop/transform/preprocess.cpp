#include "megalith/loop/transform/preprocess.h"

#include <fmt/format.h>
#include <isl/map.h>

#include <cstdlib>
#include <memory>

#include "megalith/loop/infer.h"
#include "megalith/loop/instance.h"
#include "megalith/loop/isl_limit.h"
#include "megalith/loop/rules.h"
#include "megalith/loop/text.h"
#include "megalith/loop/transform/schedule.h"
#include "megalith/loop/transform/transform.h"

namespace megalith::loop {

std::string dependences_text(const Kernel& with_rules) {
  const Kernel kernel = without_rules(with_rules);
  const Domains domains(kernel);
  const auto accesses = instance_accesses(kernel, domains, [](const std::string&) { return true; });
  std::string text;
  for (const Dependence& dependence : dependences(kernel, accesses)) {
    isl::map pairs = dependence.pairs.gist_params(domains.context().params());
    if (pairs.is_empty()) continue;
    const auto name = [&](const InstanceAccess& access) { return kernel.instructions[access.instruction].id; };
    const auto verb = [](const InstanceAccess& access) { return access.is_write ? "writes" : "reads"; };
    // Points by the names of their inames.
    isl_map* named = pairs.copy();
    for (const auto& [access, type] : {std::pair(dependence.from, isl_dim_in), {dependence.to, isl_dim_out}}) {
      const std::vector<std::string>& within = kernel.instructions[access->instruction].within;
      for (unsigned d = 0; d < within.size(); ++d)
        named = isl_map_set_dim_name(named, type, d, (within[d] + (type == isl_dim_out ? "'" : "")).c_str());
      named = isl_map_set_tuple_name(named, type, name(*access).c_str());
    }
    const isl::map all = isl::manage(isl_map_coalesce(named));
    const std::unique_ptr<char, decltype(&std::free)> relation(isl_map_to_str(all.get()), &std::free);
    text += fmt::format("{} {} {} after {} {} {}: {}\n", name(*dependence.to), verb(*dependence.to),
                        print(*dependence.to->expr), name(*dependence.from), verb(*dependence.from),
                        print(*dependence.from->expr), relation.get());
  }
  return text;
}

std::vector<Pass> preprocess(const Kernel& kernel) {
  std::vector<Pass> passes;
  with_isl_limit(kernel.name, [&] {
    Kernel now = without_rules(kernel);
    infer_types(now);
    infer_shapes(now);
    check_scheduled(now);
    passes.push_back({"types", print(now), now});
    now = common_subexpressions(fold_constants(now));
    passes.push_back({"common_subexpressions", print(now), now});
    passes.push_back({"dependences", dependences_text(now), now});
    now = realise_reductions(now);
    passes.push_back({"domains", print(now), now});
  });
  return passes;
}

}  // namespace megalith::loop
