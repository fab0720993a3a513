#include "megalith/loop/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <isl/set.h>

#include <algorithm>
#include <set>

#include "megalith/base/error.h"
#include "megalith/loop/access.h"
#include "megalith/loop/function.h"
#include "megalith/loop/lex.h"
#include "megalith/loop/recall.h"
#include "megalith/loop/rules.h"
#include "megalith/loop/text.h"

namespace megalith::loop {

namespace {

std::string instruction_prefix(const Kernel& kernel, const Instruction& instruction) {
  return fmt::format("{} instruction \"{}\"", message_prefix(kernel.name), instruction.id);
}

std::string shape_text(const TensorArgument& tensor) {
  std::string text;
  for (const Expr& size : tensor.shape) text += (text.empty() ? "" : ", ") + print(size);
  return text;
}

class NameCheck {
 public:
  explicit NameCheck(const Kernel& kernel) : kernel_(kernel) {
    for (const std::string& iname : kernel.inames()) inames_.insert(iname);
  }

  void run() {
    unique_names();
    std::set<std::string> ids, written;
    for (const Instruction& instruction : kernel_.instructions) {
      prefix_ = instruction_prefix(kernel_, instruction);
      for (const std::string& id : instruction.depends_on)
        MEGALITH_CHECK(ids.contains(id), "{} depends on \"{}\", which is no earlier instruction", prefix_, id);
      MEGALITH_CHECK(ids.insert(instruction.id).second, "{}: another one has the same id", prefix_);
      written.insert(instruction.target.name);
      check(instruction);
    }
    for (const TensorArgument& tensor : kernel_.tensors)
      MEGALITH_CHECK(tensor.role != Role::output || written.contains(tensor.name),
                     "{} no instruction writes the output {}", message_prefix(kernel_.name), tensor.name);
  }

 private:
  const Kernel& kernel_;
  std::set<std::string> inames_;
  std::string prefix_;

  void unique_names() {
    std::set<std::string> names = inames_;
    auto add = [&](const std::string& name) {
      MEGALITH_CHECK(names.insert(name).second, "{} the name \"{}\" has two meanings", message_prefix(kernel_.name),
                     name);
    };
    for (const Parameter& parameter : kernel_.parameters) add(parameter.name);
    for (const Attribute& attribute : kernel_.attributes) add(attribute.name);
    for (const TensorArgument& tensor : kernel_.tensors) add(tensor.name);
    for (const auto& [iname, tag] : kernel_.tags)
      MEGALITH_CHECK(inames_.contains(iname), "{} the tag of \"{}\" names no iname", message_prefix(kernel_.name),
                     iname);
  }

  void check(const Instruction& instruction) {
    MEGALITH_CHECK(instruction.target.kind == Expr::Kind::subscript, "{} assigns to {}, wanted a tensor's element",
                   prefix_, print(instruction.target));
    const TensorArgument* target = kernel_.find_tensor(instruction.target.name);
    MEGALITH_CHECK(!target || target->role != Role::input, "{} writes the input {}", prefix_, instruction.target.name);
    for (const std::string& iname : instruction.within)
      MEGALITH_CHECK(inames_.contains(iname), "{} is within \"{}\", which is no iname", prefix_, iname);
    for (const auto& [iname, tag] : instruction.tags)
      MEGALITH_CHECK(uses_iname(instruction, iname),
                     "{} has a tag of \"{}\", which it neither is within nor reduces over", prefix_, iname);
    visit_expressions(instruction, [&](const Expr& expr, const Place& place) {
      switch (expr.kind) {
        case Expr::Kind::number: break;
        case Expr::Kind::name: check_name(expr.name, place); break;
        case Expr::Kind::subscript: check_subscript(expr); break;
        case Expr::Kind::call: check_call(expr); break;
        case Expr::Kind::reduce: check_reduction(expr, place); break;
      }
    });
  }

  void check_name(const std::string& name, const Place& place) {
    if (kernel_.is_parameter(name) || kernel_.is_attribute(name)) return;
    MEGALITH_CHECK(inames_.contains(name), "{}: unknown name \"{}\"", prefix_, name);
    MEGALITH_CHECK(
        std::ranges::find(place.inames, name) != place.inames.end(),
        "{} uses the iname \"{}\", which is neither in its target nor reduced over: name it with {{inames={}}} or "
        "reduce over it",
        prefix_, name, name);
  }

  void check_subscript(const Expr& expr) {
    const TensorArgument* tensor = kernel_.find_tensor(expr.name);
    MEGALITH_CHECK(tensor, "{}: unknown tensor \"{}\"", prefix_, expr.name);
    MEGALITH_CHECK(!tensor->shape_known || tensor->shape.size() == expr.args.size(),
                   "{}: {} has {} subscripts, its shape [{}] has {} dimensions", prefix_, print(expr), expr.args.size(),
                   shape_text(*tensor), tensor->shape.size());
  }

  void check_call(const Expr& expr) {
    const Function* function = find_function(expr.name);
    MEGALITH_CHECK(function || is_dtype_name(expr.name), "{}: unknown function \"{}\"", prefix_, expr.name);
    const size_t wanted = function ? static_cast<size_t>(function->num_args) : 1;
    MEGALITH_CHECK(expr.args.size() == wanted, "{}: {} has {} arguments, wanted {}", prefix_, expr.name,
                   expr.args.size(), wanted);
  }

  void check_reduction(const Expr& expr, const Place& place) {
    for (const std::string& iname : expr.inames) {
      MEGALITH_CHECK(inames_.contains(iname), "{} reduces over \"{}\", which is no iname", prefix_, iname);
      MEGALITH_CHECK(std::ranges::find(place.inames, iname) == place.inames.end(),
                     "{} reduces over the iname \"{}\", which has a value there already", prefix_, iname);
    }
  }
};

// "i = 0, n = 1": one point of a set that is not empty.
std::string witness(const isl::set& set) {
  const isl::point point = set.sample_point();
  std::string text;
  for (const isl_dim_type type : {isl_dim_set, isl_dim_param})
    for (int i = 0; i < isl_set_dim(set.get(), type); ++i) {
      const isl::val value = isl::manage(isl_point_get_coordinate_val(point.get(), type, i));
      text +=
          fmt::format("{}{} = {}", text.empty() ? "" : ", ",
                      isl_set_get_dim_name(set.get(), type, static_cast<unsigned>(i)), isl_val_get_num_si(value.get()));
    }
  return text;
}

// Accesses that were found inside their tensors.
Recall<bool>& known_inside() {
  thread_local Recall<bool> known(16384);
  return known;
}

}  // namespace

void check_names(const Kernel& kernel) { NameCheck(kernel).run(); }

void check_bounds(const Kernel& kernel) {
  const Domains domains(kernel);
  for (const Instruction& instruction : kernel.instructions)
    visit_expressions(instruction, [&](const Expr& expr, const Place& place) {
      if (expr.kind != Expr::Kind::subscript) return;
      const TensorArgument* tensor = kernel.find_tensor(expr.name);
      if (!tensor || !tensor->shape_known) return;
      std::string question = place_question(domains, place);
      question += fmt::format(": {} in {}", print(expr), shape_text(*tensor));
      if (known_inside().find(question)) return;
      const isl::set points = place_domain(domains, place);
      for (size_t d = 0; d < expr.args.size() && d < tensor->shape.size(); ++d) {
        const auto index = to_isl_aff(points.space(), expr.args[d]),
                   extent = to_isl_aff(points.space(), tensor->shape[d]);
        if (!index) continue;
        const isl::aff zero = index->sub(*index);
        isl::set outside = index->lt_set(zero);
        if (extent) outside = outside.unite(index->ge_set(*extent));
        outside = outside.intersect(points);
        if (outside.is_empty()) continue;
        const std::string example = witness(outside);
        throw UserError(
            fmt::format("{} {} {} outside its shape [{}] (dimension {}: index {}, allowed 0 <= index < {}{})",
                        instruction_prefix(kernel, instruction), place.is_target ? "writes" : "reads", print(expr),
                        shape_text(*tensor), d, print(expr.args[d]), print(tensor->shape[d]),
                        example.empty() ? "" : "; for example " + example));
      }
      known_inside().keep(std::move(question), true);
    });
}

void check_assumptions(const Kernel& kernel) {
  MEGALITH_CHECK(kernel.assumptions.empty() || !Domains(kernel).context().is_empty(),
                 "{} no sizes are as it assumes: {}", message_prefix(kernel.name), kernel.assumptions);
}

void check_kernel(const Kernel& with_rules) {
  const Kernel kernel = without_rules(with_rules);
  check_names(kernel);
  check_assumptions(kernel);
  check_bounds(kernel);
  check_write_races(kernel);
  check_access_order(kernel);
}

}  // namespace megalith::loop
