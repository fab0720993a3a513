// substitute, hoist_factors
#include <isl/set.h>

#include <algorithm>

#include "megalith/loop/domain_text.h"
#include "megalith/loop/instance.h"
#include "megalith/loop/meeting.h"
#include "megalith/loop/text.h"
#include "megalith/loop/transform/definition.h"
#include "megalith/loop/transform/rewrite.h"
#include "megalith/loop/transform/transform.h"

namespace megalith::loop {

namespace {

// No element that the definition reads is written again after it was read: the same loops may do that.
void check_is_kept(const Kernel& kernel, size_t definition, const std::set<std::string>& read) {
  const auto may_change = [&](size_t i) {
    return i != definition && read.contains(kernel.instructions[i].target.name) &&
           shared_loops(kernel, std::min(i, definition), std::max(i, definition)) > 0;
  };
  bool is_needed = false;
  for (size_t i = 0; i < kernel.instructions.size(); ++i) is_needed |= may_change(i);
  if (!is_needed) return;
  const Domains domains(kernel);
  const auto accesses =
      instance_accesses(kernel, domains, [&](const std::string& name) { return read.contains(name); });
  for (const Dependence& dependence : dependences(kernel, accesses))
    if (dependence.from->instruction == definition && dependence.to->is_write)
      refuse(kernel, "{} changes {} again after {} has read it (at {})",
             kernel.instructions[dependence.to->instruction].id, print(*dependence.to->expr),
             kernel.instructions[definition].id,
             example_of(kernel, definition, dependence.to->instruction, dependence.pairs));
}

}  // namespace

size_t find_definition(const Kernel& kernel, const std::string& temporary) {
  if (tensor_of(kernel, temporary).role != Role::temporary)
    refuse(kernel, "\"{}\" is no temporary: others look at it", temporary);
  std::optional<size_t> found;
  for (size_t i = 0; i < kernel.instructions.size(); ++i) {
    if (kernel.instructions[i].target.name != temporary) continue;
    if (found) refuse(kernel, "two instructions assign \"{}\"", temporary);
    found = i;
  }
  if (!found) refuse(kernel, "no instruction assigns \"{}\"", temporary);
  const Instruction& definition = kernel.instructions[*found];
  if (definition.condition) refuse(kernel, "\"{}\" is assigned under a condition", temporary);
  std::set<std::string> subscripts;
  for (const Expr& arg : definition.target.args)
    if (arg.kind != Expr::Kind::name || !has_iname(kernel, arg.name) || !subscripts.insert(arg.name).second)
      refuse(kernel, "the subscripts of {} are not an iname each", print(definition.target));
  if (subscripts.size() != definition.within.size())
    refuse(kernel, "\"{}\" is assigned within inames that its subscripts do not have: {}", temporary,
           fmt::join(definition.within, ", "));
  bool reads_itself = false;
  Instruction copy = definition;
  std::set<std::string> read;
  for_each_expression(copy.value, [&](Expr& expr) {
    if (expr.kind != Expr::Kind::subscript) return;
    reads_itself |= expr.name == temporary;
    read.insert(expr.name);
  });
  if (reads_itself) refuse(kernel, "\"{}\" is assigned from itself", temporary);
  // What it reads must be the same where its reads are.
  for (size_t i = *found + 1; i < kernel.instructions.size(); ++i)
    if (read.contains(kernel.instructions[i].target.name))
      refuse(kernel, "{} changes \"{}\", from which \"{}\" was made", kernel.instructions[i].id,
             kernel.instructions[i].target.name, temporary);
  check_is_kept(kernel, *found, read);
  return *found;
}

Expr rounded_as(DType dtype, Expr value, DType from) {
  if (dtype == DType::f32 || from == dtype) return value;
  return make_call(std::string(dtype_name(dtype)), {std::move(value)});
}

void inherit_dependences(Kernel& kernel, const Instruction& definition) {
  for (Instruction& instruction : kernel.instructions)
    if (std::erase(instruction.depends_on, definition.id) > 0)
      for (const std::string& id : definition.depends_on)
        if (!is_among(instruction.depends_on, id)) instruction.depends_on.push_back(id);
}

namespace {

class Substitution {
 public:
  Substitution(Kernel& kernel, const Instruction& definition, DType dtype)
      : kernel_(kernel), definition_(definition), dtype_(dtype), domains_(kernel) {}

  void apply(Instruction& instruction) {
    for_each_expression(instruction, [&](Expr& expr) {
      if (expr.kind == Expr::Kind::subscript && expr.name == definition_.target.name) expr = value_at(expr);
    });
  }
  const std::vector<std::string>& new_domains() const { return new_domains_; }

 private:
  Expr value_at(const Expr& read) {
    std::map<std::string, Expr> at;
    for (size_t i = 0; i < read.args.size(); ++i) at[definition_.target.args[i].name] = read.args[i];
    Expr value = definition_.value;
    own_names_.clear();
    put_in(value, at, definition_.within);
    const DType from = value.dtype;
    return rounded_as(dtype_, std::move(value), from);
  }

  // Names become what stands for them at the read; `around`: inames that have a value there.
  void put_in(Expr& expr, const std::map<std::string, Expr>& at, const std::vector<std::string>& around) {
    if (expr.kind == Expr::Kind::name) {
      if (const auto found = at.find(expr.name); found != at.end()) expr = found->second;
      return;
    }
    if (expr.kind != Expr::Kind::reduce) {
      for (Expr& arg : expr.args) put_in(arg, at, around);
      return;
    }
    const std::vector<std::string> own = own_inames(expr.inames, around, at);
    std::map<std::string, Expr> inside_at = at;
    std::vector<std::string> inside = around;
    for (size_t i = 0; i < own.size(); ++i) {
      inside_at[expr.inames[i]] = make_name(own[i]);
      inside.push_back(expr.inames[i]);
    }
    for (Expr& arg : expr.args) put_in(arg, inside_at, inside);
    expr.inames = own;
  }

  // Copies of a reduction's inames for one read: together they take the values that they take at the read's subscripts.
  std::vector<std::string> own_inames(const std::vector<std::string>& inames, const std::vector<std::string>& around,
                                      const std::map<std::string, Expr>& at) {
    std::vector<std::string>& own = own_names_[fmt::format("{} | {}", fmt::join(around, " "), fmt::join(inames, " "))];
    if (!own.empty()) return own;
    std::vector<std::string> both = around;
    both.insert(both.end(), inames.begin(), inames.end());
    const std::vector<std::string> order = domains_.sorted(both);
    // What is said of them where the reduction is evaluated at all.
    isl::set outside = domains_.over(domains_.sorted(around));
    for (size_t place = 0; place < order.size(); ++place) {
      if (!is_among(inames, order[place])) continue;
      const auto dimension = static_cast<unsigned>(place);
      outside = isl::manage(isl_set_insert_dims(outside.release(), isl_dim_set, dimension, 1));
      outside = isl::manage(isl_set_set_dim_name(outside.release(), isl_dim_set, dimension, order[place].c_str()));
    }
    const std::string constraints = constraints_of(domains_.over(order).gist(outside));
    std::map<std::string, std::string> texts;
    for (const std::string& iname : inames) {
      own.push_back(free_name(kernel_, iname, taken_));
      taken_.insert(own.back());
      texts[iname] = own.back();
    }
    const std::string text =
        fmt::format("{{ [{}]{}{} }}", fmt::join(order, ", "), constraints.empty() ? "" : " : ", constraints);
    DomainText domain = read_domain(text, kernel_.name);
    for (const Token& token : lex(domain.body, kernel_.name)) {
      const auto found = at.find(std::string(token.text));
      if (token.kind != Token::Kind::name || found == at.end()) continue;
      const bool is_own = found->second.kind == Expr::Kind::name && taken_.contains(found->second.name);
      if (!is_own && !is_affine(kernel_, found->second))
        refuse(kernel_, "which values \"{}\" takes depends on {}, which is not affine", fmt::join(inames, ", "),
               print(found->second));
      texts[found->first] = print(found->second);
    }
    domain.inames.clear();
    for (const std::string& iname : domains_.sorted(inames)) domain.inames.push_back(texts.at(iname));
    domain.body = replace_names(kernel_, domain.body, texts);
    new_domains_.push_back(domain.text());
    return own;
  }

  const Kernel& kernel_;
  const Instruction definition_;
  const DType dtype_;
  const Domains domains_;
  std::set<std::string> taken_;
  std::vector<std::string> new_domains_;
  std::map<std::string, std::vector<std::string>> own_names_;  // of the inames of reductions, at one read
};

// ---- factors ------------------------------------------------------------------------------------------------------------

struct Product {
  std::vector<Expr> factors, divisors;
};

void collect(const Expr& expr, bool divides, Product& product) {
  const bool is_product = expr.kind == Expr::Kind::call && (expr.name == "*" || expr.name == "/");
  if (!is_product) {
    (divides ? product.divisors : product.factors).push_back(expr);
    return;
  }
  collect(expr.args[0], divides, product);
  collect(expr.args[1], expr.name == "/" ? !divides : divides, product);
}

Expr product_of(const std::vector<Expr>& factors, const std::vector<Expr>& divisors) {
  Expr result = factors.empty() ? make_number(1) : factors[0];
  for (size_t i = 1; i < factors.size(); ++i) result = make_call("*", {std::move(result), factors[i]});
  for (const Expr& divisor : divisors) result = make_call("/", {std::move(result), divisor});
  return result;
}

bool depends_on(const Expr& expr, const std::vector<std::string>& inames) {
  return std::ranges::any_of(inames, [&](const std::string& iname) { return mentions(expr, iname); });
}

}  // namespace

Kernel substitute(const Kernel& kernel, const std::string& temporary) {
  const size_t at = find_definition(kernel, temporary);
  Kernel result = kernel;
  const Instruction definition = kernel.instructions[at];
  const TensorArgument& tensor = tensor_of(kernel, temporary);
  if (!tensor.dtype) refuse(kernel, "the type of \"{}\" is not known", temporary);
  erase_instruction(result, at);
  Substitution substitution(result, definition, *tensor.dtype);
  for (Instruction& instruction : result.instructions) substitution.apply(instruction);
  inherit_dependences(result, definition);
  for (const std::string& domain : substitution.new_domains()) add_domain(result, domain);
  std::erase_if(result.tensors, [&](const TensorArgument& t) { return t.name == temporary; });
  return finished(std::move(result));
}

Kernel hoist_factors(const Kernel& kernel, const std::string& id) {
  Kernel result = kernel;
  const auto found = std::ranges::find(result.instructions, id, &Instruction::id);
  if (found == result.instructions.end()) refuse(kernel, "there is no instruction \"{}\"", id);
  bool changed = false;
  for_each_expression(found->value, [&](Expr& expr) {
    if (expr.kind != Expr::Kind::reduce || expr.reduce != ReduceOp::sum) return;
    Product all, outside, inside;
    collect(expr.args[0], false, all);
    for (const Expr& factor : all.factors)
      (depends_on(factor, expr.inames) ? inside : outside).factors.push_back(factor);
    for (const Expr& divisor : all.divisors)
      (depends_on(divisor, expr.inames) ? inside : outside).divisors.push_back(divisor);
    if (outside.factors.empty() && outside.divisors.empty()) return;
    changed = true;
    expr.args[0] = product_of(inside.factors, inside.divisors);
    outside.factors.insert(outside.factors.begin(), expr);
    expr = product_of(outside.factors, outside.divisors);
  });
  if (!changed) refuse(kernel, "no sum in {} has a factor that does not depend on what it runs over", id);
  return finished(std::move(result));
}

}  // namespace megalith::loop
