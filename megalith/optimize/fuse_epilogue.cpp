#include <algorithm>
#include <map>
#include <optional>

#include "megalith/base/error.h"
#include "megalith/base/log.h"
#include "megalith/graph/lower.h"
#include "megalith/graph/schedule.h"
#include "megalith/loop/infer.h"
#include "megalith/loop/text.h"
#include "megalith/loop/transform/transform.h"
#include "megalith/optimize/rules.h"

namespace megalith::optimize {

namespace {

using graph::Graph;
using graph::Node;
using graph::Operand;
using graph::Operator;
using graph::TensorId;

// ---- where it fits ------------------------------------------------------------------------------------------------------

// The place of the one output, if there is one and nothing else is written.
std::optional<size_t> only_output(const Operator& op) {
  std::optional<size_t> output;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    if (op.operands[i].role == loop::Role::input) continue;
    if (op.operands[i].role == loop::Role::inout || output) return std::nullopt;
    output = i;
  }
  return output;
}

struct Match {
  size_t output;  // of the producer, an operand
  size_t input;   // of the consumer, that takes it
};

std::optional<Match> match(const Graph& graph, size_t at, const std::string& target) {
  const Node &producer = graph.nodes()[at], &consumer = graph.nodes()[at + 1];
  const auto output = only_output(*producer.op);
  if (!output || !only_output(*consumer.op) || producer.op->reference || consumer.op->reference) return std::nullopt;
  const graph::TunedBody* body = graph::first_body(graph, producer, target);
  if (!body || !body->has_epilogue) return std::nullopt;
  const auto gate = graph.gate_node();
  if (gate && (static_cast<size_t>(*gate) == at || static_cast<size_t>(*gate) == at + 1)) return std::nullopt;
  const TensorId value = producer.operands[*output];
  if (graph.tensor(value).kind != graph::TensorKind::activation) return std::nullopt;
  int64_t uses = 0;
  for (const Node& node : graph.nodes()) uses += std::ranges::count(node.operands, value);
  if (uses != 2) return std::nullopt;  // written and read
  std::optional<Match> found;
  for (size_t i = 0; i < consumer.operands.size(); ++i) {
    if (consumer.operands[i] == value) found = Match{*output, i};
  }
  return found;
}

// ---- the derived operator -----------------------------------------------------------------------------------------------

std::vector<std::string> names_of(const std::vector<loop::Expr>& exprs) {
  std::vector<std::string> names;
  for (const loop::Expr& expr : exprs) names.push_back(expr.kind == loop::Expr::Kind::name ? expr.name : "");
  return names;
}

bool has_name(const loop::Kernel& kernel, const std::string& name) {
  const std::vector<std::string> inames = kernel.inames();
  return kernel.find_tensor(name) || kernel.is_parameter(name) || kernel.is_attribute(name) ||
         std::ranges::find(inames, name) != inames.end();
}

std::string free_in_both(const loop::Kernel& a, const loop::Kernel& b, const std::string& base) {
  std::string name = base;
  for (int number = 2; has_name(a, name) || has_name(b, name); ++number) name = fmt::format("{}_{}", base, number);
  return name;
}

// Nothing that a generated body would check when it runs, nor a size that is known only then: an epilogue does neither.
bool needs_no_checks(const loop::Expr& expr) {
  const bool is_subscript = expr.kind == loop::Expr::Kind::subscript;
  const bool divides = expr.kind == loop::Expr::Kind::call && (expr.name == "//" || expr.name == "mod");
  if (divides && expr.args[1].kind != loop::Expr::Kind::number) return false;
  return std::ranges::all_of(expr.args, [&](const loop::Expr& arg) {
    return !(is_subscript && loop::reads_tensor(arg)) && needs_no_checks(arg);
  });
}
bool knows_its_sizes(const loop::Kernel& kernel, const loop::Expr& expr) {
  return std::ranges::none_of(kernel.parameters, [&](const loop::Parameter& parameter) {
    return parameter.dynamic && loop::mentions(expr, parameter.name);
  });
}

// One instruction that makes an element of the element of `input` at the same place, its inames the whole domain.
bool is_elementwise(const loop::Kernel& kernel, const std::string& input) {
  if (kernel.instructions.size() != 1 || kernel.instructions[0].condition) return false;
  const loop::Instruction& only = kernel.instructions[0];
  const std::vector<std::string> at = names_of(only.target.args);
  if (at.size() != 2 || at[0] == at[1] || kernel.inames().size() != 2) return false;
  bool same = true, reduces = false;
  const std::function<void(const loop::Expr&)> look = [&](const loop::Expr& expr) {
    if (expr.kind == loop::Expr::Kind::subscript && expr.name == input) same &= names_of(expr.args) == at;
    reduces |= expr.kind == loop::Expr::Kind::reduce;
    for (const loop::Expr& arg : expr.args) look(arg);
  };
  look(only.value);
  return same && !reduces && std::ranges::find(at, "") == at.end() && needs_no_checks(only.value) &&
         knows_its_sizes(kernel, only.value);
}

// What it works out on the way goes where it is read. UserError where that cannot be.
loop::Kernel in_one_instruction(loop::Kernel kernel) {
  while (kernel.instructions.size() > 1) kernel = loop::substitute(kernel, kernel.instructions[0].target.name);
  return kernel;
}

const std::string kEpiloguePrefix = "epilogue_";

/// The two operators as one, and how the consumer's names are called in it.
struct Derived {
  Operator op;
  std::map<std::string, std::string> renamed;

  const std::string& name(const std::string& of_consumer) const {
    const auto found = renamed.find(of_consumer);
    return found == renamed.end() ? of_consumer : found->second;
  }
};

class Derivation {
 public:
  Derivation(const Graph& graph, size_t at, const Match& match)
      : producer_(graph.nodes()[at]),
        consumer_(graph.nodes()[at + 1]),
        output_(producer_.op->operands[match.output]),
        input_(consumer_.op->operands[match.input]),
        first_(graph::node_kernel(graph, producer_)),
        second_(in_one_instruction(graph::node_kernel(graph, consumer_))) {}

  // UserError or nothing where the two do not go together.
  std::optional<Derived> run() {
    if (!is_elementwise(second_, input_.name)) return std::nullopt;
    take_names();
    const std::string value = free_in_both(first_, second_, "product");
    first_ = loop::rename(first_, output_.name, value);
    rename(written().name, output_.name);
    for (auto [kernel, tensor] : {std::pair{&first_, value}, std::pair{&second_, input_.name}}) {
      kernel->find_tensor(tensor)->dtype = DType::f32;
      loop::infer_types(*kernel);
    }
    const std::vector<std::string> inames = inames_of(value);
    loop::Kernel fused = loop::fuse(first_, second_, {{input_.name, value}});
    // Sizes of a node are 1 at least; so what one operator says of them takes nothing from the other's domain.
    for (const loop::Parameter& parameter : fused.parameters)
      if (!parameter.dynamic)
        fused.assumptions += fmt::format("{}{} >= 1", fused.assumptions.empty() ? "" : " and ", parameter.name);
    for (size_t i = 0; i < inames.size(); ++i)
      fused = loop::unify_inames(fused, fused.instructions.back().target.args[i].name, inames[i]);
    if (!producer_.op->epilogue) return Derived{op_of(fused, {{value}, {}}), renamed_};
    // An epilogue behind an epilogue: one function of what the body computes.
    return Derived{op_of(loop::substitute(fused, value), *producer_.op->epilogue), renamed_};
  }

 private:
  const Operand& written() const { return consumer_.op->operands[*only_output(*consumer_.op)]; }

  void rename(const std::string& from, const std::string& to) {
    if (from == to) return;
    second_ = loop::rename(second_, from, to);
    renamed_[from] = to;
  }

  // The sizes of what is between the two are called as in the producer. All else has names that no body looks for: a
  // body asks whether it has a `gate`, a `norm` or a size S (`requires { args.gate; }`), and means its own.
  void take_names() {
    const std::vector<std::string> theirs = names_of(second_.find_tensor(input_.name)->shape),
                                   ours = names_of(first_.find_tensor(output_.name)->shape);
    std::vector<std::string> names;
    for (const Operand& operand : consumer_.op->operands)
      if (operand.role == loop::Role::input && operand.name != input_.name) names.push_back(operand.name);
    for (const loop::Attribute& attribute : consumer_.op->attributes) names.push_back(attribute.name);
    for (const loop::Parameter& parameter : second_.parameters)
      if (std::ranges::find(theirs, parameter.name) == theirs.end()) names.push_back(parameter.name);
    for (const std::string& name : names) rename(name, free_in_both(first_, second_, kEpiloguePrefix + name));
    for (size_t i = 0; i < ours.size(); ++i)
      if (theirs[i] != ours[i]) rename(theirs[i], ours[i]);
  }

  std::vector<std::string> inames_of(const std::string& value) const {
    for (const loop::Instruction& instruction : first_.instructions)
      if (instruction.target.name == value) return names_of(instruction.target.args);
    return {};
  }

  Operator op_of(const loop::Kernel& fused, graph::Epilogue epilogue) const {
    Operator op;
    op.name = fmt::format("{}_{}", producer_.op->name, consumer_.op->name);
    op.doc = fmt::format("{}; then {}", producer_.op->doc, consumer_.op->doc);
    op.epilogue = std::move(epilogue);
    for (const Operand& operand : producer_.op->operands)
      if (operand.role == loop::Role::input) op.operands.push_back(operand);
    for (Operand operand : consumer_.op->operands) {
      if (operand.role != loop::Role::input || operand.name == input_.name) continue;
      if (const auto found = renamed_.find(operand.name); found != renamed_.end()) operand.name = found->second;
      const loop::TensorArgument* tensor = fused.find_tensor(operand.name);
      for (size_t d = 0; d < operand.shape.size(); ++d) operand.shape[d] = loop::print(tensor->shape[d]);
      op.epilogue->operands.push_back(operand.name);
      op.operands.push_back(std::move(operand));
    }
    Operand output = output_;
    output.dtype = written().dtype;
    op.operands.push_back(std::move(output));
    op.attributes = fused.attributes;
    op.extra_sizes = producer_.op->extra_sizes;
    op.axes = producer_.op->axes;
    for (const std::string& domain : fused.domains) op.loops += domain + "\n";
    for (const loop::Instruction& instruction : fused.instructions) op.loops += loop::print(instruction) + "\n";
    for (graph::TunedBody body : producer_.op->bodies) {
      if (!body.has_epilogue) continue;
      // An element of each is read right before that of the output is written.
      std::ranges::copy(op.epilogue->operands, std::back_inserter(body.in_place));
      op.bodies.push_back(std::move(body));
    }
    return op;
  }

  const Node &producer_, &consumer_;
  const Operand &output_, &input_;
  loop::Kernel first_, second_;
  std::map<std::string, std::string> renamed_;
};

// ---- the graph ----------------------------------------------------------------------------------------------------------

Node fused_node(const Graph& graph, size_t at, const Derived& derived, const Operator& op) {
  const Node &producer = graph.nodes()[at], &consumer = graph.nodes()[at + 1];
  Node node = producer;
  node.op = &op;
  for (const auto& [name, size] : consumer.sizes) node.sizes.emplace(derived.name(name), size);
  for (const auto& [name, dynamic] : consumer.dynamic) node.dynamic.emplace(derived.name(name), dynamic);
  for (const auto& [name, value] : consumer.attributes) node.attributes.emplace(derived.name(name), value);
  std::map<std::string, TensorId> operands;
  for (size_t i = 0; i < producer.operands.size(); ++i)
    if (producer.op->operands[i].role == loop::Role::input)
      operands[producer.op->operands[i].name] = producer.operands[i];
  for (size_t i = 0; i < consumer.operands.size(); ++i)
    operands.emplace(derived.name(consumer.op->operands[i].name), consumer.operands[i]);
  node.operands.clear();
  for (const Operand& operand : op.operands) node.operands.push_back(operands.at(operand.name));
  return node;
}

// Derivations, by all that they depend on: the layers of a model have the same.
using Derivations = std::map<std::string, std::optional<Derived>>;

std::string derivation_key(const Graph& graph, size_t at, const Match& match) {
  std::string key = fmt::format("{}", match.input);
  for (const Node* node : {&graph.nodes()[at], &graph.nodes()[at + 1]}) {
    key += fmt::format(" {}", static_cast<const void*>(node->op));
    for (const TensorId operand : node->operands) key += fmt::format(" {}", dtype_name(graph.tensor(operand).dtype));
    for (const auto& [size, value] : node->sizes) key += fmt::format(" {}={}", size, value);
    for (const auto& [size, dynamic] : node->dynamic) key += fmt::format(" {}<={}", size, dynamic);
    for (const auto& [name, value] : node->attributes) key += fmt::format(" {}={}", name, value);
  }
  return key;
}

const std::optional<Derived>& derive(const Graph& graph, size_t at, const Match& match, Derivations& known) {
  const auto [entry, is_new] = known.try_emplace(derivation_key(graph, at, match));
  if (!is_new) return entry->second;
  try {
    entry->second = Derivation(graph, at, match).run();
  } catch (const UserError& error) {  // they do not go together
    log_debug("[fuse_epilogue] {}: {}", graph.nodes()[at].name, error.what());
  }
  return entry->second;
}

bool fuse_at(Graph& graph, size_t at, const std::string& target, Derivations& known) {
  const std::optional<Match> found = match(graph, at, target);
  if (!found) return false;
  const std::optional<Derived>& derived = derive(graph, at, *found, known);
  if (!derived) return false;
  auto registry = std::make_shared<graph::Registry>(graph.registry());
  const std::string name = derived->op.name;
  const bool is_there = registry->has(name) && definition(registry->get(name)) == definition(derived->op);
  const Operator& op = is_there ? registry->get(name) : registry->replace(derived->op);
  Node node = fused_node(graph, at, *derived, op);
  if (!graph::first_body(graph, node, target)) return false;
  const Node &producer = graph.nodes()[at], &consumer = graph.nodes()[at + 1];
  graph.remember({.rule = "fuse_epilogue",
                  .node = node.name,
                  .before = fmt::format("{}, {}", producer.op->name, consumer.op->name),
                  .bytes_saved = 2 * graph.tensor(producer.operands[found->output]).bytes()});
  graph.fuse_neighbours(at, std::move(node), std::move(registry));
  return true;
}

}  // namespace

int fuse_epilogue(Graph& graph, const Goal& goal) {
  const std::string target = goal.bodies();
  int times = 0;
  Derivations known;
  for (size_t at = 0; at + 1 < graph.nodes().size(); ++at)
    while (at + 1 < graph.nodes().size() && fuse_at(graph, at, target, known)) ++times;
  return times;
}

}  // namespace megalith::optimize
