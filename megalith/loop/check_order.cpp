// Write races and access order: questions about pairs of points that touch the same element.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <optional>

#include "megalith/base/error.h"
#include "megalith/loop/access.h"
#include "megalith/loop/check.h"
#include "megalith/loop/lex.h"
#include "megalith/loop/text.h"

namespace megalith::loop {

namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

bool is_task(const Kernel& kernel, const std::string& iname) {
  const auto tag = kernel.tags.find(iname);
  return tag != kernel.tags.end() && tag->second == InameTag::task;
}

// points -> the element they touch, over the subscripts `args` that are affine; false for the rest.
struct ElementMap {
  isl::map map;
  std::vector<bool> is_affine;
};

ElementMap element_map(const isl::set& points, const std::vector<Expr>& args) {
  ElementMap result;
  isl_map* map = isl_map_from_domain(points.copy());
  for (const Expr& arg : args) {
    const auto index = to_isl_aff(points.space(), arg);
    result.is_affine.push_back(index.has_value());
    if (index) map = isl_map_flat_range_product(map, isl_map_from_aff(index->copy()));
  }
  result.map = isl::manage(isl_map_intersect_domain(map, points.copy()));
  return result;
}

// x -> y with x[a] < y[b], or == if `equal`, over the spaces of `like`.
isl::map compared(const isl::map& like, unsigned a, unsigned b, bool equal) {
  isl_map* map = isl_map_universe(like.space().release());
  map = equal ? isl_map_equate(map, isl_dim_in, static_cast<int>(a), isl_dim_out, static_cast<int>(b))
              : isl_map_order_lt(map, isl_dim_in, static_cast<int>(a), isl_dim_out, static_cast<int>(b));
  return isl::manage(map);
}

// x -> y with x[d] > y[d].
isl::map after(const isl::map& like, unsigned d) {
  return isl::manage(isl_map_order_gt(isl_map_universe(like.space().release()), isl_dim_in, static_cast<int>(d),
                                      isl_dim_out, static_cast<int>(d)));
}

bool reads_target(const Instruction& instruction) {
  bool found = false;
  visit_expressions(instruction, [&](const Expr& expr, const Place& place) {
    found |= !place.is_target && expr.kind == Expr::Kind::subscript && same_expression(expr, instruction.target);
  });
  return found;
}

// Inames that stand in a subscript which is not affine: the data there is trusted to tell them apart.
std::vector<std::string> told_apart_by_data(const Instruction& instruction, const ElementMap& elements) {
  std::vector<std::string> names;
  for (const std::string& iname : instruction.within)
    for (size_t d = 0; d < elements.is_affine.size(); ++d)
      if (!elements.is_affine[d] && mentions(instruction.target.args[d], iname) && !contains(names, iname))
        names.push_back(iname);
  return names;
}

void check_write_race(const Kernel& kernel, const Domains& domains, const Instruction& instruction) {
  Place place;
  visit_expressions(instruction, [&](const Expr&, const Place& p) {
    if (p.is_target) place = p;
  });
  const isl::set points = place_domain(domains, place);
  const ElementMap elements = element_map(points, instruction.target.args);
  isl::map same = elements.map.apply_range(elements.map.reverse());
  for (const std::string& iname : told_apart_by_data(instruction, elements)) {
    const auto at = static_cast<unsigned>(std::ranges::find(instruction.within, iname) - instruction.within.begin());
    same = same.intersect(compared(same, at, at, true));
  }
  const bool is_update = reads_target(instruction);
  const std::string prefix = fmt::format("{} instruction \"{}\"", message_prefix(kernel.name), instruction.id);
  for (unsigned d = 0; d < instruction.within.size(); ++d) {
    const std::string& iname = instruction.within[d];
    if (is_update && !is_task(kernel, iname)) continue;
    if (same.intersect(compared(same, d, d, false)).is_empty()) continue;
    const std::string target = print(instruction.target);
    MEGALITH_CHECK(
        mentions(instruction.target, iname),
        "{} writes {} within {}, but the subscripts leave out {}: every {} writes the same element of {}; reduce "
        "over {}, or put it into the subscripts",
        prefix, target, fmt::join(instruction.within, ", "), iname, iname, instruction.target.name, iname);
    throw UserError(fmt::format("{} writes the same element {} for different values of {}", prefix, target, iname));
  }
}

struct Access {
  size_t instruction;
  const Expr* expr;
  bool is_write;
  std::vector<std::string> inames;  // within first, in nest order
  isl::set points;
  ElementMap elements;
};

class OrderCheck {
 public:
  explicit OrderCheck(const Kernel& kernel) : kernel_(kernel), domains_(kernel) {
    for (size_t i = 0; i < kernel.instructions.size(); ++i)
      visit_expressions(kernel.instructions[i], [&](const Expr& expr, const Place& place) {
        if (expr.kind == Expr::Kind::subscript && is_written(expr.name)) add(i, expr, place);
      });
  }

  void run() {
    for (const Access& a : accesses_)
      for (const Access& b : accesses_) {
        if (a.expr->name != b.expr->name || (!a.is_write && !b.is_write)) continue;
        if (a.instruction < b.instruction) check_pair(a, b);
        if (a.instruction <= b.instruction) check_tasks(a, b);
      }
    for (const Access& access : accesses_)
      if (!access.is_write && is_temporary(access.expr->name)) check_written_before(access);
  }

 private:
  const Kernel& kernel_;
  Domains domains_;
  std::vector<Access> accesses_;

  bool is_written(const std::string& name) const {
    return std::ranges::any_of(kernel_.instructions, [&](const Instruction& i) { return i.target.name == name; });
  }

  bool is_temporary(const std::string& name) const {
    const TensorArgument* tensor = kernel_.find_tensor(name);
    return tensor && tensor->role == Role::temporary;
  }

  void add(size_t i, const Expr& expr, const Place& place) {
    const isl::set points = project_dimensions(place_domain(domains_, place), place.inames);
    ElementMap elements = element_map(points, expr.args);
    accesses_.push_back({i, &expr, place.is_target, place.inames, points, std::move(elements)});
  }

  static bool is_affine(const Access& access) {
    return std::ranges::all_of(access.elements.is_affine, [](bool affine) { return affine; });
  }

  const std::string& id(const Access& access) const { return kernel_.instructions[access.instruction].id; }

  // How many loops the nest lets the two instructions share.
  size_t shared_loops(size_t first, size_t last) const {
    size_t shared = kernel_.instructions[first].within.size();
    for (size_t i = first; i < last; ++i) {
      const std::vector<std::string>&a = kernel_.instructions[i].within, &b = kernel_.instructions[i + 1].within;
      const auto common = std::ranges::mismatch(a, b);
      shared = std::min(shared, static_cast<size_t>(common.in1 - a.begin()));
    }
    return shared;
  }

  // True if both have the bare iname as the same subscript: points that meet agree in it. Spares isl the usual case.
  static bool agree_in(const Access& a, const Access& b, const std::string& iname) {
    for (size_t d = 0; d < std::min(a.expr->args.size(), b.expr->args.size()); ++d) {
      const Expr &x = a.expr->args[d], &y = b.expr->args[d];
      if (x.kind == Expr::Kind::name && y.kind == Expr::Kind::name && x.name == iname && y.name == iname) return true;
    }
    return false;
  }

  // Pairs of points of `a` and `b` that touch the same element.
  static std::optional<isl::map> meetings(const Access& a, const Access& b) {
    if (!is_affine(a) || !is_affine(b) || a.expr->args.size() != b.expr->args.size()) return std::nullopt;
    return a.elements.map.apply_range(b.elements.map.reverse());
  }

  void check_pair(const Access& a, const Access& b) const {
    const std::vector<std::string>& within = kernel_.instructions[a.instruction].within;
    const size_t shared = shared_loops(a.instruction, b.instruction);
    if (std::all_of(within.begin(), within.begin() + static_cast<ptrdiff_t>(shared),
                    [&](const std::string& iname) { return agree_in(a, b, iname); }))
      return;
    const auto meet = meetings(a, b);
    if (!meet) return;
    // b runs before a where it is at an earlier point of the shared loops.
    isl::map tied = *meet;
    bool reversed = false, in_order = false;
    for (unsigned d = 0; d < shared; ++d) {
      reversed |= !tied.intersect(after(tied, d)).is_empty();
      in_order |= !tied.intersect(compared(tied, d, d, false)).is_empty();
      tied = tied.intersect(compared(tied, d, d, true));
    }
    in_order |= !tied.is_empty();
    MEGALITH_CHECK(
        !reversed || !in_order,
        "{} instructions \"{}\" and \"{}\" touch the same elements of {}, {} and {}, now in this order and now in "
        "that, inside the loops they share ({}): use other inames in one of them",
        message_prefix(kernel_.name), id(a), id(b), a.expr->name, print(*a.expr), print(*b.expr),
        fmt::join(within.begin(), within.begin() + static_cast<ptrdiff_t>(shared), ", "));
  }

  void check_tasks(const Access& a, const Access& b) const {
    for (const auto& [iname, tag] : kernel_.tags) {
      const auto in_a = std::ranges::find(a.inames, iname), in_b = std::ranges::find(b.inames, iname);
      if (tag != InameTag::task || in_a == a.inames.end() || in_b == b.inames.end() || agree_in(a, b, iname)) continue;
      const auto meet = meetings(a, b);
      if (!meet) continue;
      const auto at_a = static_cast<unsigned>(in_a - a.inames.begin()),
                 at_b = static_cast<unsigned>(in_b - b.inames.begin());
      MEGALITH_CHECK(
          meet->is_subset(compared(*meet, at_a, at_b, true)),
          "{} instructions \"{}\" and \"{}\" touch the same elements of {}, {} and {}, in different tasks: {} is "
          "tagged task, and nothing orders its values",
          message_prefix(kernel_.name), id(a), id(b), a.expr->name, print(*a.expr), print(*b.expr), iname);
    }
  }

  void check_written_before(const Access& read) const {
    if (!is_affine(read)) return;
    isl::set missing = read.elements.map.range();
    for (const Access& write : accesses_) {
      if (!write.is_write || write.expr->name != read.expr->name) continue;
      if (!is_affine(write) || write.expr->args.size() != read.expr->args.size()) return;
      const bool may_be_before =
          write.instruction < read.instruction || shared_loops(read.instruction, write.instruction) > 0;
      if (may_be_before) missing = missing.subtract(write.elements.map.range());
    }
    MEGALITH_CHECK(missing.is_empty(),
                   "{} instruction \"{}\" reads {} of the temporary {}, elements of which nothing writes before",
                   message_prefix(kernel_.name), id(read), print(*read.expr), read.expr->name);
  }
};

}  // namespace

void check_write_races(const Kernel& kernel) {
  const Domains domains(kernel);
  for (const Instruction& instruction : kernel.instructions) check_write_race(kernel, domains, instruction);
}

void check_access_order(const Kernel& kernel) { OrderCheck(kernel).run(); }

}  // namespace megalith::loop
