#include "megalith/loop/instance.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <isl/aff.h>
#include <isl/flow.h>
#include <isl/map.h>
#include <isl/set.h>
#include <isl/union_map.h>

#include <algorithm>

#include "megalith/base/error.h"
#include "megalith/loop/access.h"
#include "megalith/loop/lex.h"
#include "megalith/loop/meeting.h"
#include "megalith/loop/nest.h"
#include "megalith/loop/rules.h"
#include "megalith/loop/text.h"

namespace megalith::loop {

namespace {

// points -> elements; what is not affine may be any index.
isl::map elements_at(const isl::set& points, const std::vector<Expr>& args, bool& is_exact) {
  isl_map* map = isl_map_from_domain(points.copy());
  for (const Expr& arg : args) {
    const auto index = to_isl_aff(points.space(), arg);
    is_exact &= index.has_value();
    map = index ? isl_map_flat_range_product(map, isl_map_from_aff(index->copy()))
                : isl_map_add_dims(map, isl_dim_out, 1);
  }
  return isl::manage(isl_map_intersect_domain(map, points.copy()));
}

bool is_affine_guard(const isl::set& points, const Guard& guard) {
  return to_isl_set(points.space(), *guard.condition).has_value();
}

// The order of a nest as vectors that are compared word by word: places in texts and values of inames in turn.
class Times {
 public:
  explicit Times(const Kernel& kernel) : kernel_(kernel), times_(kernel.instructions.size()) {
    size_t depth = 0;
    for (const Instruction& instruction : kernel.instructions) depth = std::max(depth, instruction.within.size());
    length_ = 2 * depth + 1;
    walk(build_nest(kernel), {});
  }

  // "S2[i, j] -> [0, i, 1, j, 0]"
  std::string text(size_t instruction) const {
    std::vector<std::string> time = times_[instruction];
    time.resize(length_, "0");
    return fmt::format("S{}[{}] -> [{}]", instruction, fmt::join(kernel_.instructions[instruction].within, ", "),
                       fmt::join(time, ", "));
  }

 private:
  void walk(const std::vector<NestNode>& nodes, const std::vector<std::string>& around) {
    for (size_t i = 0; i < nodes.size(); ++i) {
      std::vector<std::string> time = around;
      time.push_back(std::to_string(i));
      if (nodes[i].iname.empty()) {
        times_[static_cast<size_t>(nodes[i].instruction)] = time;
        continue;
      }
      time.push_back(nodes[i].iname);
      walk(nodes[i].body, time);
    }
  }

  const Kernel& kernel_;
  std::vector<std::vector<std::string>> times_;
  size_t length_ = 1;
};

isl_union_map* with_names(const InstanceAccess& access) {
  isl_map* map = access.elements.copy();
  map = isl_map_set_tuple_name(map, isl_dim_in, fmt::format("S{}", access.instruction).c_str());
  map = isl_map_set_tuple_name(map, isl_dim_out, "element");
  return isl_union_map_from_map(map);
}

isl_union_map* united(const std::vector<const InstanceAccess*>& accesses) {
  isl_union_map* all = isl_union_map_empty(isl_space_params_alloc(isl_context().get(), 0));
  for (const InstanceAccess* access : accesses) all = isl_union_map_union(all, with_names(*access));
  return all;
}

// Reads of one tensor and the writes that they may find.
isl::union_flow analyse(const Kernel& kernel, const std::vector<InstanceAccess>& accesses, bool& is_exact) {
  std::vector<const InstanceAccess*> reads, certain, possible;
  for (const InstanceAccess& access : accesses) {
    (!access.is_write ? reads : access.is_exact ? certain : possible).push_back(&access);
    is_exact &= access.is_exact;
  }
  const Times times(kernel);
  std::vector<std::string> texts;
  for (size_t i = 0; i < kernel.instructions.size(); ++i) texts.push_back(times.text(i));
  isl_union_map* order =
      isl_union_map_read_from_str(isl_context().get(), fmt::format("{{ {} }}", fmt::join(texts, "; ")).c_str());
  isl_union_access_info* info = isl_union_access_info_from_sink(united(reads));
  info = isl_union_access_info_set_must_source(info, united(certain));
  info = isl_union_access_info_set_may_source(info, united(possible));
  info = isl_union_access_info_set_schedule_map(info, order);
  return isl::manage(isl_union_access_info_compute_flow(info));
}

size_t number_of(const char* statement) { return static_cast<size_t>(std::stoul(statement + 1)); }

}  // namespace

std::vector<InstanceAccess> instance_accesses(const Kernel& kernel, const Domains& domains,
                                              const std::function<bool(const std::string&)>& wanted) {
  std::vector<InstanceAccess> accesses;
  for (size_t i = 0; i < kernel.instructions.size(); ++i) {
    const auto depth = static_cast<unsigned>(kernel.instructions[i].within.size());
    visit_expressions(kernel.instructions[i], [&](const Expr& expr, const Place& place) {
      if (expr.kind != Expr::Kind::subscript || !wanted(expr.name)) return;
      const isl::set points = project_dimensions(place_domain(domains, place), place.inames);
      InstanceAccess access{i, &expr, place.is_target, true, {}};
      for (const Guard& guard : place.guards) access.is_exact &= is_affine_guard(points, guard);
      isl_map* map = elements_at(points, expr.args, access.is_exact).release();
      map = isl_map_project_out(map, isl_dim_in, depth, static_cast<unsigned>(place.inames.size()) - depth);
      access.elements = isl::manage(map).coalesce();
      accesses.push_back(std::move(access));
    });
  }
  return accesses;
}

isl::map runs_before(const Kernel& kernel, size_t first, size_t second, const isl::map& like) {
  const size_t shared = shared_loops(kernel, std::min(first, second), std::max(first, second));
  isl::map tied = isl::manage(isl_map_universe(like.space().release()));
  isl::map result = isl::manage(isl_map_empty(like.space().release()));
  for (unsigned d = 0; d < shared; ++d) {
    result = result.unite(tied.intersect(compared(like, d, d, false)));
    tied = tied.intersect(compared(like, d, d, true));
  }
  return first < second ? result.unite(tied) : result;
}

std::vector<Dependence> dependences(const Kernel& kernel, const std::vector<InstanceAccess>& accesses) {
  std::vector<Dependence> found;
  // Who may meet: accesses to one tensor, or to one storage.
  std::map<std::string, std::vector<const InstanceAccess*>> groups;
  const auto memory_of = [&](const InstanceAccess& access) {
    const TensorArgument* tensor = kernel.find_tensor(access.expr->name);
    return tensor && !tensor->storage.empty() ? tensor->storage : access.expr->name;
  };
  for (const InstanceAccess& access : accesses) groups[memory_of(access)].push_back(&access);
  for (const InstanceAccess& a : accesses)
    for (const InstanceAccess* other : groups.at(memory_of(a))) {
      const InstanceAccess& b = *other;
      if (!a.is_write && !b.is_write) continue;
      const bool shares = a.expr->name != b.expr->name;
      if (!shares && a.expr->args.size() != b.expr->args.size()) continue;
      // Which elements of one lie where those of another do is not looked at.
      const isl::map meet =
          shares
              ? isl::manage(isl_map_from_domain_and_range(a.elements.domain().release(), b.elements.domain().release()))
              : a.elements.apply_range(b.elements.reverse());
      const isl::map pairs = meet.intersect(runs_before(kernel, a.instruction, b.instruction, meet));
      if (!pairs.is_empty()) found.push_back({&a, &b, pairs});
    }
  return found;
}

isl::map points_by_name(const std::vector<std::string>& before, const std::vector<std::string>& after,
                        const std::map<std::string, std::string>& renamed) {
  std::vector<std::string> names;
  for (const std::string& name : before) {
    const auto found = renamed.find(name);
    names.push_back(found == renamed.end() ? name : found->second);
  }
  return isl::map(isl_context(), fmt::format("{{ [{}] -> [{}] }}", fmt::join(names, ", "), fmt::join(after, ", ")));
}

std::string example_of(const Kernel& kernel, size_t from, size_t to, const isl::map& pairs) {
  const isl::point point = isl::manage(isl_map_wrap(pairs.copy())).sample_point();
  std::string text;
  int at = 0;
  for (const size_t instruction : {from, to}) {
    if (instruction == to && at > 0) text += " and ";
    std::vector<std::string> values;
    for (const std::string& iname : kernel.instructions[instruction].within) {
      const isl::val value = isl::manage(isl_point_get_coordinate_val(point.get(), isl_dim_set, at++));
      values.push_back(fmt::format("{} = {}", iname, isl_val_get_num_si(value.get())));
    }
    text += fmt::format("{}", fmt::join(values, ", "));
    if (from == to && at > static_cast<int>(kernel.instructions[from].within.size())) break;
  }
  return text;
}

void check_order_kept(const Kernel& written_before, const Kernel& written_after, const PointMaps& maps,
                      const std::string& hint) {
  const Kernel before = without_rules(written_before), after = without_rules(written_after);
  const Domains domains(before);
  const auto accesses = instance_accesses(before, domains, [&](const std::string& tensor) {
    return std::ranges::any_of(before.instructions, [&](const Instruction& i) { return i.target.name == tensor; });
  });
  const auto place_of = [&](const std::string& id) {
    const auto found = std::ranges::find(after.instructions, id, &Instruction::id);
    MEGALITH_ASSERT(found != after.instructions.end(), "the instruction {} is gone", id);
    return static_cast<size_t>(found - after.instructions.begin());
  };
  const auto map_of = [&](size_t instruction) {
    const Instruction& old = before.instructions[instruction];
    const auto found = maps.find(old.id);
    return found != maps.end() ? found->second
                               : points_by_name(old.within, after.instructions[place_of(old.id)].within);
  };
  for (const Dependence& dependence : dependences(before, accesses)) {
    const size_t from = dependence.from->instruction, to = dependence.to->instruction;
    const Instruction &first = before.instructions[from], &second = before.instructions[to];
    const size_t new_from = place_of(first.id), new_to = place_of(second.id);
    const isl::map pairs = map_of(from).reverse().apply_range(dependence.pairs).apply_range(map_of(to));
    const isl::map turned = pairs.subtract(runs_before(after, new_from, new_to, pairs));
    if (turned.is_empty()) continue;
    const char* does = dependence.from->is_write ? (dependence.to->is_write ? "writes" : "reads") : "writes";
    throw UserError(
        fmt::format("{} instruction \"{}\" {} {} after \"{}\" {} {}, and this order would turn that round (at {}): {}",
                    message_prefix(before.name), second.id, does, print(*dependence.to->expr), first.id,
                    dependence.from->is_write ? "writes" : "reads", print(*dependence.from->expr),
                    example_of(after, new_from, new_to, turned), hint));
  }
}

std::vector<Flow> flow_of(const Kernel& kernel, const Domains& domains, const std::string& tensor) {
  bool is_exact = true;
  const auto accesses = instance_accesses(kernel, domains, [&](const std::string& name) { return name == tensor; });
  const isl::union_flow flow = analyse(kernel, accesses, is_exact);
  std::vector<Flow> flows;
  const isl::union_map all = isl::manage(isl_union_flow_get_may_dependence(flow.get()));
  all.foreach_map([&](const isl::map& pairs) {
    const size_t from = number_of(isl_map_get_tuple_name(pairs.get(), isl_dim_in)),
                 to = number_of(isl_map_get_tuple_name(pairs.get(), isl_dim_out));
    isl_map* plain = isl_map_reset_tuple_id(isl_map_reset_tuple_id(pairs.copy(), isl_dim_in), isl_dim_out);
    flows.push_back({from, to, isl::manage(plain)});
  });
  return flows;
}

void check_written_first(const Kernel& kernel, const Domains& domains) {
  for (const TensorArgument& tensor : kernel.tensors) {
    if (tensor.role != Role::temporary) continue;
    bool is_exact = true;
    const auto accesses =
        instance_accesses(kernel, domains, [&](const std::string& name) { return name == tensor.name; });
    const isl::union_flow flow = analyse(kernel, accesses, is_exact);
    if (!is_exact) continue;  // what data decide is not known here
    const isl::union_map missing = isl::manage(isl_union_flow_get_may_no_source(flow.get()));
    missing.foreach_map([&](const isl::map& reads) {
      if (reads.is_empty()) return;
      const size_t reader = number_of(isl_map_get_tuple_name(reads.get(), isl_dim_in));
      throw UserError(fmt::format("{} instruction \"{}\" reads elements of the temporary {} that nothing wrote before",
                                  message_prefix(kernel.name), kernel.instructions[reader].id, tensor.name));
    });
  }
}

}  // namespace megalith::loop
