// Sums, maxima, minima and argmax of a scheduled kernel, each in a lambda.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megalith/codegen/loop_emitter.h"

namespace megalith::codegen {

using loop::Expr;

std::string LoopEmitter::reduction(const Expr& reduce) {
  const std::string name = fmt::format("sum_of_{}_{}", fmt::join(reduce.inames, "_"), num_reductions_++);
  const isl::set around = implemented_;
  const std::vector<std::string> outer = outer_;
  const bool is_argmax = reduce.reduce == loop::ReduceOp::argmax;
  const bool floats = LoopExpressions::is_float(is_argmax ? reduce.args[0] : reduce);
  const char* type = floats ? "f32" : "i64";
  const bool is_sum = reduce.reduce == loop::ReduceOp::sum;
  const char* start = is_sum                                 ? (floats ? "0.0f" : "0")
                      : reduce.reduce == loop::ReduceOp::min ? (floats ? "kInfinity" : "kHighest")
                                                             : (floats ? "-kInfinity" : "kLowest");
  open(fmt::format("const auto {} = [&]", name));
  line(fmt::format("{} result = {};", type, start));
  if (is_argmax) {
    line("i64 where = 0;");
    line("bool found = false;");
  }
  std::vector<std::string> all = outer;
  for (const std::string& iname : domains_.sorted(reduce.inames)) all.push_back(iname);
  const isl::set domain = loop::project_dimensions(domains_.over(all), all);
  int opened = 0;
  for (const std::string& iname : domains_.sorted(reduce.inames)) {
    std::vector<std::string> onto = outer_;
    onto.push_back(iname);
    const isl::set wanted = narrowed(loop::project_dimensions(domain, onto), implemented_);
    const loop::LoopBounds bounds = is_unrolled(iname) && keeps_elements(*instruction_, iname)
                                        ? whole_bounds(iname, wanted, outer_)
                                        : loop::loop_bounds(wanted, iname, outer_);
    open_loop(iname, bounds);
    ++opened;
    implemented_ = loop::enter_loop(implemented_, bounds);
    outer_.push_back(iname);
  }
  if (const auto tests = loop::guards(domain, implemented_); !tests.empty()) {
    open(fmt::format("if ({})", fmt::join(tests, " && ")));
    ++opened;
  }
  implemented_ = domain;
  if (reduce.args.size() == 2) {
    open(fmt::format("if ({})", expressions_.condition(reduce.args[1])));
    ++opened;
  }
  const std::string term = floats ? expressions_.as_float(reduce.args[0]) : expressions_.as_whole(reduce.args[0]);
  if (is_sum) {
    line(fmt::format("result += {};", term));
  } else if (is_argmax) {
    const char* is_first_number = floats ? " || (result != result && term == term)" : "";
    open(fmt::format("if (const {} term = {}; !found || term > result{})", type, term, is_first_number));
    line("result = term;");
    line(fmt::format("where = {};", reduce.inames[0]));
    line("found = true;");
    close();
  } else {
    const bool is_max = reduce.reduce == loop::ReduceOp::max;
    line(fmt::format("result = {}(result, {});", floats ? (is_max ? "larger" : "smaller") : (is_max ? "max" : "min"),
                     term));
  }
  while (opened-- > 0) close();
  line(is_argmax ? "return where;" : "return result;");
  --depth_;
  line("};");
  implemented_ = around;
  outer_ = outer;
  return name + "()";
}

}  // namespace megalith::codegen
