#include "megalith/codegen/views.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <isl/set.h>
#include <isl/val.h>

#include <algorithm>
#include <map>
#include <vector>

#include "megalith/base/error.h"
#include "megalith/codegen/arguments.h"
#include "megalith/codegen/expression.h"
#include "megalith/loop/access.h"
#include "megalith/loop/domain.h"
#include "megalith/loop/interval.h"
#include "megalith/loop/text.h"

namespace megalith::codegen {

namespace {

// Bounds of an index as C++ text, both inclusive.
struct Range {
  std::string lo, hi;
};

// One dimension of an operand's slice: the hull of what its accesses touch.
using Slice = std::vector<std::string>;
struct Slices {
  std::map<std::string, std::vector<Slice>> lo, hi;
  std::map<std::string, unsigned> checked;  // a bit for each dimension whose subscript data decides
};

class SliceFinder {
 public:
  explicit SliceFinder(const graph::LoweredKernel& lowered)
      : lowered_(lowered), kernel_(loop::bind_sizes(lowered.kernel, lowered.binding)), domains_(kernel_) {}

  Slices find() {
    for (const loop::Instruction& instruction : kernel_.instructions)
      loop::visit_expressions(instruction, [&](const loop::Expr& expr, const loop::Place& place) {
        if (expr.kind == loop::Expr::Kind::subscript) add(expr, place);
      });
    return std::move(slices_);
  }

 private:
  const graph::LoweredKernel& lowered_;
  loop::Kernel kernel_;
  loop::Domains domains_;
  Slices slices_;

  void add(const loop::Expr& access, const loop::Place& place) {
    const loop::TensorArgument* tensor = kernel_.find_tensor(access.name);
    if (tensor->role == loop::Role::temporary) return;
    const isl::set domain = loop::place_domain(domains_, place);
    if (domain.is_empty()) return;
    std::vector<Slice>&lo = slices_.lo[access.name], &hi = slices_.hi[access.name];
    lo.resize(access.args.size());
    hi.resize(access.args.size());
    for (size_t d = 0; d < access.args.size(); ++d) {
      if (!loop::is_affine(kernel_, access.args[d])) slices_.checked[access.name] |= 1u << d;
      const Range range = range_of(access.args[d], domain, *tensor, d);
      for (auto [slice, text] : {std::pair{&lo[d], range.lo}, std::pair{&hi[d], range.hi}})
        if (std::ranges::find(*slice, text) == slice->end()) slice->push_back(text);
    }
  }

  // Of an iname over the task's points.
  Range iname_range(const std::string& iname, const isl::set& domain) const {
    if (std::ranges::find(lowered_.tiled, iname) != lowered_.tiled.end())
      return {fmt::format("args.{}_begin", iname), fmt::format("(args.{}_end - 1)", iname)};
    const std::vector<std::string> names = loop::variable_names(domain);
    const auto at = static_cast<int>(std::ranges::find(names, iname) - names.begin());
    return {fmt::format("{}", isl_val_get_num_si(domain.dim_min_val(at).get())),
            fmt::format("{}", isl_val_get_num_si(domain.dim_max_val(at).get()))};
  }

  Range range_of(const loop::Expr& index, const isl::set& domain, const loop::TensorArgument& tensor, size_t d) const {
    const auto form = loop::interval_form(index, domains_.inames());
    // What data decides, or what is no sum of inames, may be anywhere.
    if (!form || std::ranges::any_of(form->terms, [](const auto& term) { return term.variable < 0; }))
      return {"0", last_index(tensor, d)};
    Range result{fmt::format("{}", form->constant), fmt::format("{}", form->constant)};
    for (const auto& term : form->terms) {
      Range range = iname_range(domains_.inames()[static_cast<size_t>(term.variable)], domain);
      if (term.coefficient < 0) std::swap(range.lo, range.hi);
      result.lo = add_term(result.lo, term.coefficient, range.lo);
      result.hi = add_term(result.hi, term.coefficient, range.hi);
    }
    return result;
  }

  // Of a dimension that is a dynamic size, as it is now.
  std::string last_index(const loop::TensorArgument& tensor, size_t d) const {
    const loop::Expr& extent = lowered_.kernel.find_tensor(tensor.name)->shape[d];
    for (const loop::Parameter& parameter : lowered_.kernel.parameters)
      if (parameter.dynamic && extent.kind == loop::Expr::Kind::name && extent.name == parameter.name)
        return fmt::format("args.{} - 1", parameter.name);
    return fmt::format("{}", *loop::constant_value(tensor.shape[d]) - 1);
  }

  static std::string add_term(const std::string& sum, int64_t coefficient, const std::string& value) {
    const std::string term = coefficient == 1 ? value : fmt::format("{} * {}", coefficient, value);
    return sum == "0" ? term : fmt::format("{} + {}", sum, term);
  }
};

std::string view_type(const graph::LoweredKernel& lowered, const loop::TensorArgument& tensor, unsigned checked) {
  const loop::Kernel bound = loop::bind_sizes(lowered.kernel, lowered.binding);  // dynamic sizes at their largest
  std::string type = fmt::format("View<{}{}, {}", tensor.role == loop::Role::input ? "const " : "",
                                 element_type(*tensor.dtype), checked);
  for (const loop::Expr& extent : bound.find_tensor(tensor.name)->shape) type += ", " + loop::print(extent);
  return type + ">";
}

// Words of CUDA and C++ by which a task could tell who runs it, or wait for what never comes. What they become is
// declared nowhere, and says why.
constexpr const char* kForbidden[] = {"blockIdx",     "gridDim", "clusterIdx", "clusterDim",        "threadIdx",
                                      "blockDim",     "asm",     "__asm",      "__asm__",           "__syncthreads",
                                      "thread_local", "extern",  "__thread",   "cooperative_groups"};
constexpr const char* kMeaning = "a_task_cannot_know_which_worker_runs_it";

}  // namespace

std::vector<CheckText> checks_of_views(const graph::LoweredKernel& lowered) {
  const Slices slices = SliceFinder(lowered).find();
  std::vector<CheckText> texts;
  for (const graph::Operand& operand : lowered.op->operands) {
    if (!slices.checked.contains(operand.name)) continue;
    const char* const verb = operand.role == loop::Role::input    ? "reads"
                             : operand.role == loop::Role::output ? "writes"
                                                                  : "reads or writes";
    for (size_t d = 0; d < operand.shape.size(); ++d)
      texts.push_back(
          {fmt::format("{} {}[{}]", verb, operand.name, fmt::join(operand.shape, ", ")), fmt::format("number {}", d)});
  }
  return texts;
}

std::string write_views(const graph::LoweredKernel& lowered) {
  const std::string& name = lowered.name;
  const Slices slices = SliceFinder(lowered).find();
  size_t num_checks = 0;
  std::string text = fmt::format("struct {}_task {{\n", name), fields;
  for (const graph::Operand& operand : lowered.op->operands) {
    const loop::TensorArgument& tensor = *lowered.kernel.find_tensor(operand.name);
    const std::string member = member_name(tensor.name);
    std::vector<std::string> extents, begin, end;
    for (const loop::Expr& extent : tensor.shape) extents.push_back(loop::print(extent));
    const auto checked = slices.checked.find(tensor.name);
    text += fmt::format("  {} {};  // ({})\n",
                        view_type(lowered, tensor, checked == slices.checked.end() ? 0 : checked->second), member,
                        fmt::join(extents, ", "));
    std::string checks;
    if (checked != slices.checked.end()) {
      checks = fmt::format("args.faults, {}", num_checks);
      num_checks += tensor.shape.size();
    }
    if (const auto found = slices.lo.find(tensor.name); found != slices.lo.end())
      for (size_t d = 0; d < found->second.size(); ++d) {
        begin.push_back(join_bounds(found->second[d], "min"));
        end.push_back(join_bounds(slices.hi.at(tensor.name)[d], "max") + " + 1");
      }
    fields +=
        fmt::format("      .{0} = {{.data = args.{0}, .begin = {{{1}}}, .end = {{{2}}}, .checks = {{{3}}}{4}}},\n",
                    member, fmt::join(begin, ", "), fmt::join(end, ", "), checks,
                    lowered.body->watched ? fmt::format(", .name = \"{}\"", tensor.name) : "");
  }
  for (const loop::Parameter& parameter : lowered.kernel.parameters) {
    if (!parameter.dynamic) {
      text +=
          fmt::format("  static constexpr i64 {} = {};\n", parameter.name, lowered.binding.sizes.at(parameter.name));
    } else {
      text +=
          fmt::format("  i64 {};  // dynamic, at most {}\n", parameter.name, lowered.binding.sizes.at(parameter.name));
      fields += fmt::format("      .{0} = args.{0},\n", parameter.name);
    }
  }
  for (const loop::Attribute& attribute : lowered.kernel.attributes)
    text += fmt::format("  static constexpr f32 {0} = {1}_args::{0};\n", attribute.name, name);
  for (const std::string& iname : lowered.tiled) {
    text += fmt::format("  i64 {0}_begin, {0}_end;\n", iname);
    fields += fmt::format("      .{0}_begin = args.{0}_begin,\n      .{0}_end = args.{0}_end,\n", iname);
  }
  if (lowered.body->area_bytes) {
    text += "  u8* shared;\n";
    fields += "      .shared = shared_area(),\n";
  }
  return fmt::format("{0}}};\nstatic {1}_task {1}_views(const {1}_args& args) {{\n  return {{\n{2}  }};\n}}\n", text,
                     name, fields);
}

std::string write_body_text(const graph::TunedBody& body, const std::string& space) {
  std::string text = fmt::format("namespace {} {{\n", space);
  for (const char* word : kForbidden) text += fmt::format("#define {} {}\n", word, kMeaning);
  text += fmt::format("#line 1 \"the body of {} for {}\"\n{}\n#line 1 \"after the body of {}\"\n", body.name,
                      body.target, body.text, body.name);
  for (const char* word : kForbidden) text += fmt::format("#undef {}\n", word);
  return text + fmt::format("}}  // namespace {}\n\n", space);
}

}  // namespace megalith::codegen
