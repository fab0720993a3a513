#include "megalith/codegen/task_regions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <isl/map.h>

#include <algorithm>
#include <map>
#include <optional>

#include "megalith/base/error.h"
#include "megalith/loop/domain.h"
#include "megalith/loop/domain_text.h"
#include "megalith/loop/instance.h"
#include "megalith/loop/lex.h"

namespace megalith::codegen {

using loop::Kernel;

namespace {

// From values of the tiled inames to the elements of a tensor that are touched there.
struct Touched {
  std::optional<isl::map> reads, writes;  // nothing: none
};

isl::map tiles_of_points(const std::vector<std::string>& within, const std::vector<std::string>& tiled) {
  std::vector<std::string> tile, same;
  for (const std::string& iname : tiled) {
    tile.push_back(iname + "_t");
    if (std::ranges::find(within, iname) != within.end()) same.push_back(fmt::format("{0}_t = {0}", iname));
  }
  return isl::map(loop::isl_context(),
                  fmt::format("{{ [{}] -> [{}]{}{} }}", fmt::join(within, ", "), fmt::join(tile, ", "),
                              same.empty() ? "" : " : ", fmt::join(same, " and ")));
}

std::map<std::string, Touched> touched(const Kernel& kernel, const std::vector<std::string>& tiled) {
  const loop::Domains domains(kernel);
  const isl::set tiles = loop::project_dimensions(domains.over(tiled), tiled);
  std::map<std::string, Touched> result;
  const auto is_operand = [&](const std::string& name) {
    return kernel.find_tensor(name)->role != loop::Role::temporary;
  };
  for (const loop::InstanceAccess& access : loop::instance_accesses(kernel, domains, is_operand)) {
    const loop::Instruction& instruction = kernel.instructions[access.instruction];
    const isl::map elements =
        access.elements.apply_domain(tiles_of_points(instruction.within, tiled)).intersect_domain(tiles);
    Touched& of_tensor = result[access.expr->name];
    std::optional<isl::map>& all = access.is_write ? of_tensor.writes : of_tensor.reads;
    all = all ? all->unite(elements) : elements;
  }
  return result;
}

bool is_within(const std::optional<isl::map>& part, const std::optional<isl::map>& whole) {
  return !part || part->is_empty() || (whole && part->is_subset(*whole));
}

// With each tiled iname between two more parameters.
Kernel of_one_task(Kernel kernel, const std::vector<std::string>& tiled) {
  for (std::string& text : kernel.domains) {
    loop::DomainText domain = loop::read_domain(text, kernel.name);
    for (const std::string& iname : tiled)
      if (std::ranges::find(domain.inames, iname) != domain.inames.end())
        domain.body =
            fmt::format("{0}{1}task_from_{2} <= {2} < task_to_{2}", domain.body.empty() ? "" : "(" + domain.body + ")",
                        domain.body.empty() ? "" : " and ", iname);
    text = domain.text();
  }
  for (const std::string& iname : tiled)
    for (const char* end : {"task_from_", "task_to_"}) kernel.parameters.push_back({.name = end + iname});
  return kernel;
}

}  // namespace

void check_same_regions(const Kernel& before, const Kernel& after, const std::vector<std::string>& tiled) {
  const std::map<std::string, Touched> was = touched(before, tiled), is = touched(after, tiled);
  const std::string axes = fmt::format("{}", fmt::join(tiled, ", "));
  for (const auto& [tensor, now] : is) {
    const auto found = was.find(tensor);
    const Touched known = found == was.end() ? Touched{} : found->second;
    MEGALITH_CHECK(
        is_within(now.reads, known.reads),
        "{} a task would read elements of {} that are not those of its tile: what reads them must be within {} "
        "as before",
        loop::message_prefix(before.name), tensor, axes);
    MEGALITH_CHECK(
        is_within(now.writes, known.writes) && is_within(known.writes, now.writes),
        "{} a task would write other elements of {} than those of its tile: what writes them must be within {} "
        "as before",
        loop::message_prefix(before.name), tensor, axes);
  }
  const Kernel task = of_one_task(after, tiled);
  loop::check_written_first(task, loop::Domains(task));
}

}  // namespace megalith::codegen
