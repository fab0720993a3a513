// Steps of what is computed, of tensors, and of sizes.
#include "megalith/loop/access.h"
#include "megalith/loop/rules.h"
#include "megalith/loop/transform/rewrite.h"
#include "megalith/loop/transform/step_table.h"
#include "megalith/loop/transform/transform.h"

namespace megalith::loop {

namespace {

Kernel assume_step(const Kernel& kernel, LineReader& line) { return assume(kernel, line.rest()); }

Kernel fix_step(const Kernel& kernel, LineReader& line) {
  const std::string parameter = line.name();
  const int64_t value = line.number();
  line.end();
  return fix_parameter(kernel, parameter, value);
}

// "square(a) = a * a".
Kernel extract_step(const Kernel& kernel, LineReader& line) {
  const std::string name = line.name();
  line.expect("(");
  Names arguments;
  if (!line.accept(")")) {
    arguments = line.names();
    line.expect(")");
  }
  line.expect("=");
  const Expr pattern = line.expression(kernel);
  line.end();
  return extract_rule(kernel, name, arguments, pattern);
}

Kernel common_step(const Kernel& kernel, LineReader& line) {
  Names ids;
  if (!line.at_end()) ids = line.names();
  line.end();
  return common_subexpressions(kernel, ids);
}

Kernel space_step(const Kernel& kernel, LineReader& line) {
  const std::string temporary = line.name(), word = line.name();
  line.end();
  const auto space = space_of_name(word);
  MEGALITH_CHECK(space, "there is no space \"{}\": want private, lanes, shared or global", word);
  return set_space(kernel, temporary, *space);
}

Kernel privatise_step(const Kernel& kernel, LineReader& line) {
  const std::string temporary = line.name();
  const Names inames = line.names();
  line.end();
  return privatise(kernel, temporary, inames);
}

// "a b -> pool".
Kernel alias_step(const Kernel& kernel, LineReader& line) {
  const Names temporaries = line.names();
  line.expect("->");
  const std::string storage = line.name();
  line.end();
  return share(kernel, temporaries, storage);
}

Kernel pad_step(const Kernel& kernel, LineReader& line) {
  const std::string temporary = line.name();
  const int64_t axis = line.number(), by = line.number();
  line.end();
  return pad_axis(kernel, temporary, static_cast<int>(axis), by);
}

// All inames in the subscripts of that axis: what ":" sweeps.
void add_inames_of_axis(const Kernel& kernel, const std::string& tensor, size_t axis, bool writes, Names& sweep) {
  for (const Instruction& instruction : kernel.instructions)
    visit_expressions(instruction, [&](const Expr& expr, const Place& place) {
      const bool counts =
          expr.kind == Expr::Kind::subscript ? writes || !place.is_target : kernel.find_rule(tensor) != nullptr;
      if (!counts || expr.name != tensor || axis >= expr.args.size()) return;
      for (const std::string& iname : place.inames)
        if (mentions(expr.args[axis], iname) && !is_among(sweep, iname)) sweep.push_back(iname);
    });
}

template <Kernel (*function)(const Kernel&, const std::string&, const Names&, const std::string&, const Names&)>
Kernel copy_step(const Kernel& kernel, LineReader& line) {
  const std::string tensor = line.name();
  Names sweep;
  line.expect("[");
  for (size_t axis = 0; !line.accept("]"); ++axis) {
    if (line.accept(":"))
      add_inames_of_axis(kernel, tensor, axis, function == buffer, sweep);
    else
      sweep.push_back(line.name());
    if (!line.peek().is("]")) line.expect(",");
  }
  line.expect("->");
  const std::string buffer = line.name();
  const auto inames = line.tagged_names();
  line.end();
  if (kernel.find_rule(tensor)) return with_tags(precompute(kernel, tensor, sweep, buffer, plain(inames)), inames);
  return with_tags(function(without_rules(kernel), tensor, sweep, buffer, plain(inames)), inames);
}

Kernel permute_step(const Kernel& kernel, LineReader& line) {
  const std::string tensor = line.name();
  std::vector<int> order;
  while (!line.at_end()) order.push_back(static_cast<int>(line.number()));
  return permute_axes(kernel, tensor, order);
}

Kernel split_axis_step(const Kernel& kernel, LineReader& line) {
  const std::string tensor = line.name();
  const int64_t axis = line.number(), factor = line.number();
  line.end();
  return split_axis(kernel, tensor, static_cast<int>(axis), factor);
}

template <Kernel (*function)(const Kernel&, const std::string&, int)>
Kernel axis_step(const Kernel& kernel, LineReader& line) {
  const std::string tensor = line.name();
  const int64_t axis = line.number();
  line.end();
  return function(kernel, tensor, static_cast<int>(axis));
}

Kernel axes_step(const Kernel& kernel, LineReader& line) {
  const std::string tensor = line.name();
  const Names tags = line.names();
  line.end();
  return tag_axes(kernel, tensor, tags);
}

Kernel batch_step(const Kernel& kernel, LineReader& line) {
  const std::string iname = line.name();
  std::string size;
  if (line.peek().kind == Token::Kind::name) {
    size = line.name();
  } else {
    const int64_t count = line.number();
    MEGALITH_CHECK(count >= 0, "a batch of {}, want at least 0", count);
    size = std::to_string(count);
  }
  Names shared;
  if (!line.at_end()) {
    line.expect("shared");
    shared = line.names();
  }
  line.end();
  return batch(kernel, iname, size, {shared.begin(), shared.end()});
}

}  // namespace

StepTable steps_of_values() {
  return {
      {"assume", {"assume CONSTRAINTS", assume_step, true}},
      {"axes", {"axes TENSOR TAG...", axes_step}},
      {"batch", {"batch INAME SIZE [shared INPUT...]", batch_step}},
      {"buffer", {"buffer TENSOR[INAME or :, ...] -> BUFFER [INAME[:TAG]...]", copy_step<buffer>}},
      {"alias", {"alias TEMPORARY... -> STORAGE", alias_step, true}},
      {"assignment_to_subst", {"assignment_to_subst TEMPORARY", name_step<rule_of_temporary>, true}},
      {"common_subexpressions", {"common_subexpressions [INSTRUCTION...]", common_step}},
      {"expand", {"expand RULE", name_step<expand_rules>, true}},
      {"extract_subst", {"extract_subst RULE(ARGUMENT, ...) = EXPRESSION", extract_step, true}},
      {"fix", {"fix PARAMETER VALUE", fix_step, true}},
      {"fold_constants", {"fold_constants", plain_step<fold_constants>}},
      {"hoist_factors", {"hoist_factors INSTRUCTION", name_step<hoist_factors>}},
      {"pad", {"pad TEMPORARY AXIS BY", pad_step}},
      {"permute_axes", {"permute_axes TENSOR AXIS...", permute_step}},
      {"precompute", {"precompute TEMPORARY[INAME or :, ...] -> BUFFER [INAME[:TAG]...]", copy_step<precompute>, true}},
      {"prefetch", {"prefetch TENSOR[INAME or :, ...] -> BUFFER [INAME[:TAG]...]", copy_step<prefetch>, true}},
      {"privatise", {"privatise TEMPORARY INAME...", privatise_step}},
      {"separate_axis", {"separate_axis TENSOR AXIS", axis_step<separate_axis>}},
      {"space", {"space TEMPORARY private|lanes|shared|global", space_step}},
      {"split_axis", {"split_axis TENSOR AXIS FACTOR", split_axis_step}},
      {"stream", {"stream TENSOR", name_step<stream>, true}},
      {"substitute", {"substitute TEMPORARY", name_step<substitute>}},
      {"vector_axis", {"vector_axis TENSOR AXIS", axis_step<vector_axis>}},
  };
}

}  // namespace megalith::loop
