#include "megalith/loop/instance.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <isl/aff.h>
#include <isl/flow.h>
#include <isl/map.h>
#include <isl/set.h>
#include <isl/union_map.h>

#include <algorithm>
#include <optional>
#include <set>

#include "megalith/base/error.h"
#include "megalith/loop/access.h"
#include "megalith/loop/lex.h"
#include "megalith/loop/meeting.h"
#include "megalith/loop/nest.h"
#include "megalith/loop/recall.h"
#include "megalith/loop/rules.h"
#include "megalith/loop/text.h"

namespace megalith::loop {

namespace {

// points -> elements; what is not affine may be any index.
isl::map elements_at(const isl::set& points, const std::vector<Expr>& args, bool& is_exact) {
  std::vector<isl::aff> indices;
  std::vector<unsigned> unknown;
  for (const Expr& arg : args) {
    const auto index = to_isl_aff(points.space(), arg);
    is_exact &= index.has_value();
    if (index)
      indices.push_back(*index);
    else
      unknown.push_back(static_cast<unsigned>(&arg - args.data()));
  }
  isl_map* map = values_at(points, indices).release();
  for (const unsigned at : unknown) map = isl_map_insert_dims(map, isl_dim_out, at, 1);
  return isl::manage(map);
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

  // "S2[i, j] -> [0, i, 1, j, 0]" of an instruction that is called by the number `statement`.
  std::string text(size_t instruction, size_t statement) const {
    std::vector<std::string> time = times_[instruction];
    time.resize(length_, "0");
    return fmt::format("S{}[{}] -> [{}]", statement, fmt::join(kernel_.instructions[instruction].within, ", "),
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

struct NamedAccess {
  const InstanceAccess* access;
  size_t statement;  // its instruction, counted among those of the tensor
};

isl_union_map* united(const std::vector<NamedAccess>& accesses) {
  isl_union_map* all = isl_union_map_empty(isl_space_params_alloc(isl_context().get(), 0));
  for (const auto& [access, statement] : accesses) {
    isl_map* map = access->elements.copy();
    map = isl_map_set_tuple_name(map, isl_dim_in, fmt::format("S{}", statement).c_str());
    map = isl_map_set_tuple_name(map, isl_dim_out, "element");
    all = isl_union_map_union(all, isl_union_map_from_map(map));
  }
  return all;
}

// What reads of one tensor find in it. Instructions are counted among those that touch it.
struct TensorFlow {
  std::vector<Flow> flows;
  std::vector<size_t> readers_of_nothing;  // that read what nothing wrote
  bool is_exact = true;                    // false: data have a say
};

size_t number_of(const char* statement) { return static_cast<size_t>(std::stoul(statement + 1)); }

TensorFlow flow_of(const std::vector<NamedAccess>& accesses, const std::string& order) {
  TensorFlow result;
  std::vector<NamedAccess> reads, certain, possible;
  for (const NamedAccess& named : accesses) {
    (!named.access->is_write ? reads : named.access->is_exact ? certain : possible).push_back(named);
    result.is_exact &= named.access->is_exact;
  }
  isl_union_access_info* info = isl_union_access_info_from_sink(united(reads));
  info = isl_union_access_info_set_must_source(info, united(certain));
  info = isl_union_access_info_set_may_source(info, united(possible));
  info = isl_union_access_info_set_schedule_map(info, isl_union_map_read_from_str(isl_context().get(), order.c_str()));
  const isl::union_flow flow = isl::manage(isl_union_access_info_compute_flow(info));
  const isl::union_map found = isl::manage(isl_union_flow_get_may_dependence(flow.get())),
                       missing = isl::manage(isl_union_flow_get_may_no_source(flow.get()));
  found.foreach_map([&](const isl::map& pairs) {
    const size_t from = number_of(isl_map_get_tuple_name(pairs.get(), isl_dim_in)),
                 to = number_of(isl_map_get_tuple_name(pairs.get(), isl_dim_out));
    isl_map* plain = isl_map_reset_tuple_id(isl_map_reset_tuple_id(pairs.copy(), isl_dim_in), isl_dim_out);
    result.flows.push_back({from, to, isl::manage(plain)});
  });
  missing.foreach_map([&](const isl::map& unwritten) {
    if (!unwritten.is_empty())
      result.readers_of_nothing.push_back(number_of(isl_map_get_tuple_name(unwritten.get(), isl_dim_in)));
  });
  std::ranges::sort(result.flows, {}, [](const Flow& one) { return std::pair(one.to, one.from); });
  std::ranges::sort(result.readers_of_nothing);
  return result;
}

struct Elements {
  isl::map map;
  bool is_exact;
};

// What accesses touch, and which points of two of them meet.
Recall<Elements>& known_elements() {
  isl_context();
  thread_local Recall<Elements> known(8192);
  return known;
}
Recall<std::optional<isl::map>>& known_pairs() {
  isl_context();
  thread_local Recall<std::optional<isl::map>> known(8192);
  return known;
}

Recall<TensorFlow>& known_flows() {
  isl_context();
  thread_local Recall<TensorFlow> known(4096);
  return known;
}

// Which writes of a tensor its reads find. Nest and accesses are looked at once for all tensors.
class FlowAnalysis {
 public:
  FlowAnalysis(const Kernel& kernel, const Domains& domains, const std::function<bool(const std::string&)>& wanted)
      : times_(kernel) {
    for (InstanceAccess& access : instance_accesses(kernel, domains, wanted))
      accesses_[access.expr->name].push_back(std::move(access));
  }

  TensorFlow of(const std::string& tensor) const {
    const auto found = accesses_.find(tensor);
    if (found == accesses_.end()) return {};
    std::vector<size_t> instructions;  // in text order, as accesses are
    std::vector<NamedAccess> named;
    std::string question;
    for (const InstanceAccess& access : found->second) {
      if (instructions.empty() || instructions.back() != access.instruction) instructions.push_back(access.instruction);
      named.push_back({&access, instructions.size() - 1});
      question +=
          fmt::format("S{} {} {}\n", named.back().statement, access.is_write ? "writes" : "reads", access.question);
    }
    std::vector<std::string> texts;
    for (size_t i = 0; i < instructions.size(); ++i) texts.push_back(times_.text(instructions[i], i));
    const std::string order = fmt::format("{{ {} }}", fmt::join(texts, "; "));
    question += order;
    if (!known_flows().find(question)) known_flows().keep(question, flow_of(named, order));
    TensorFlow flow = *known_flows().find(question);
    for (Flow& one : flow.flows) {
      one.from = instructions[one.from];
      one.to = instructions[one.to];
    }
    for (size_t& reader : flow.readers_of_nothing) reader = instructions[reader];
    return flow;
  }

 private:
  Times times_;
  std::map<std::string, std::vector<InstanceAccess>> accesses_;  // by tensor
};

std::set<std::string> temporaries_of(const Kernel& kernel) {
  std::set<std::string> names;
  for (const TensorArgument& tensor : kernel.tensors)
    if (tensor.role == Role::temporary) names.insert(tensor.name);
  return names;
}

// x -> y that may touch the same memory, x before y; nothing if there are none.
std::optional<isl::map> pairs_of(const Kernel& kernel, const InstanceAccess& a, const InstanceAccess& b, bool shares) {
  const size_t shared =
      shared_loops(kernel, std::min(a.instruction, b.instruction), std::max(a.instruction, b.instruction));
  std::string question = fmt::format("{}\n{}\n{} {} {}", a.question, b.question, shared,
                                     a.instruction < b.instruction ? "first" : "last", shares ? "memory" : "");
  if (const std::optional<isl::map>* known = known_pairs().find(question)) return *known;
  // Which elements of one lie where those of another do is not looked at.
  const isl::map meet =
      shares ? isl::manage(isl_map_from_domain_and_range(a.elements.domain().release(), b.elements.domain().release()))
             : a.elements.apply_range(b.elements.reverse());
  std::optional<isl::map> pairs = meet.intersect(runs_before(kernel, a.instruction, b.instruction, meet));
  if (pairs->is_empty()) pairs.reset();
  known_pairs().keep(std::move(question), pairs);
  return pairs;
}

}  // namespace

std::vector<InstanceAccess> instance_accesses(const Kernel& kernel, const Domains& domains,
                                              const std::function<bool(const std::string&)>& wanted) {
  std::vector<InstanceAccess> accesses;
  for (size_t i = 0; i < kernel.instructions.size(); ++i) {
    const auto depth = static_cast<unsigned>(kernel.instructions[i].within.size());
    visit_expressions(kernel.instructions[i], [&](const Expr& expr, const Place& place) {
      if (expr.kind != Expr::Kind::subscript || !wanted(expr.name)) return;
      std::string question = fmt::format("{}, {} of them: {}", place_question(domains, place), depth, print(expr));
      InstanceAccess access{i, &expr, place.is_target, true, {}, {}};
      if (const Elements* known = known_elements().find(question)) {
        access.is_exact = known->is_exact;
        access.elements = known->map;
      } else {
        const isl::set points = project_dimensions(place_domain(domains, place), place.inames);
        for (const Guard& guard : place.guards) access.is_exact &= is_affine_guard(points, guard);
        isl_map* map = elements_at(points, expr.args, access.is_exact).release();
        map = isl_map_project_out(map, isl_dim_in, depth, static_cast<unsigned>(place.inames.size()) - depth);
        access.elements = isl::manage(map).coalesce();
        known_elements().keep(question, {access.elements, access.is_exact});
      }
      access.question = std::move(question);
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
      if (const auto pairs = pairs_of(kernel, a, b, shares)) found.push_back({&a, &b, *pairs});
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
  return FlowAnalysis(kernel, domains, [&](const std::string& name) { return name == tensor; }).of(tensor).flows;
}

std::map<std::string, std::vector<Flow>> flows_of_temporaries(const Kernel& kernel, const Domains& domains) {
  const std::set<std::string> temporaries = temporaries_of(kernel);
  const FlowAnalysis analysis(kernel, domains, [&](const std::string& name) { return temporaries.contains(name); });
  std::map<std::string, std::vector<Flow>> flows;
  for (const std::string& temporary : temporaries) flows[temporary] = analysis.of(temporary).flows;
  return flows;
}

void check_written_first(const Kernel& kernel, const Domains& domains) {
  const std::set<std::string> temporaries = temporaries_of(kernel);
  const FlowAnalysis analysis(kernel, domains, [&](const std::string& name) { return temporaries.contains(name); });
  for (const TensorArgument& tensor : kernel.tensors) {
    if (tensor.role != Role::temporary) continue;
    const TensorFlow flow = analysis.of(tensor.name);
    if (!flow.is_exact || flow.readers_of_nothing.empty()) continue;  // what data decide is not known here
    throw UserError(fmt::format("{} instruction \"{}\" reads elements of the temporary {} that nothing wrote before",
                                message_prefix(kernel.name), kernel.instructions[flow.readers_of_nothing[0]].id,
                                tensor.name));
  }
}

}  // namespace megalith::loop
