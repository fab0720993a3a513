#include "megalith/loop/transform/rewrite.h"

#include <isl/set.h>

#include <algorithm>

#include "megalith/base/plain_text.h"
#include "megalith/loop/access.h"
#include "megalith/loop/affine.h"
#include "megalith/loop/check.h"
#include "megalith/loop/domain_text.h"
#include "megalith/loop/function.h"
#include "megalith/loop/infer.h"
#include "megalith/loop/rules.h"
#include "megalith/loop/text.h"

namespace megalith::loop {

void for_each_expression(Expr& expr, const std::function<void(Expr&)>& visit) {
  for (Expr& arg : expr.args) for_each_expression(arg, visit);
  visit(expr);
}

void for_each_expression(Instruction& instruction, const std::function<void(Expr&)>& visit) {
  for_each_expression(instruction.target, visit);
  for_each_expression(instruction.value, visit);
  if (instruction.condition) for_each_expression(*instruction.condition, visit);
}

void for_each_expression(Kernel& kernel, const std::function<void(Expr&)>& visit) {
  for (Instruction& instruction : kernel.instructions) for_each_expression(instruction, visit);
  for (Rule& rule : kernel.rules) for_each_expression(rule.body, visit);
  for (TensorArgument& tensor : kernel.tensors)
    for (Expr& size : tensor.shape) for_each_expression(size, visit);
}

void replace_names(Expr& expr, const std::map<std::string, Expr>& by) {
  if (expr.kind == Expr::Kind::name) {
    if (const auto found = by.find(expr.name); found != by.end()) expr = found->second;
    return;
  }
  for (Expr& arg : expr.args) replace_names(arg, by);
}

std::string replace_names(const Kernel& kernel, std::string_view constraints,
                          const std::map<std::string, std::string>& by) {
  const std::vector<Token> tokens = lex(constraints, kernel.name);
  std::string result;
  bool in_exists = false;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const Token& token = tokens[i];
    if (token.kind == Token::Kind::newline || token.kind == Token::Kind::end) continue;
    if (token.is("exists")) in_exists = true;
    if (token.is(":")) in_exists = false;
    if (token.space_before && !result.empty()) result += ' ';
    const auto found = token.kind == Token::Kind::name ? by.find(std::string(token.text)) : by.end();
    if (found == by.end()) {
      result += token.text;
      continue;
    }
    if (in_exists) refuse(kernel, "a domain says that there exists some {}: give that another name", token.text);
    if (i > 0 && (tokens[i - 1].kind == Token::Kind::number || tokens[i - 1].is(")"))) result += " * ";  // 2n
    result += is_identifier(found->second) ? found->second : "(" + found->second + ")";
  }
  return result;
}

std::set<std::string> names_of(const Kernel& kernel) {
  std::set<std::string> names;
  for (const std::string& iname : kernel.inames()) names.insert(iname);
  for (const Parameter& parameter : kernel.parameters) names.insert(parameter.name);
  for (const Attribute& attribute : kernel.attributes) names.insert(attribute.name);
  for (const TensorArgument& tensor : kernel.tensors) names.insert(tensor.name);
  for (const TensorArgument& tensor : kernel.tensors)
    if (!tensor.storage.empty()) names.insert(tensor.storage);
  for (const Rule& rule : kernel.rules) {
    names.insert(rule.name);
    names.insert(rule.arguments.begin(), rule.arguments.end());
  }
  return names;
}

std::set<std::string> words_of(const Kernel& kernel) {
  std::set<std::string> words = names_of(kernel);
  for (const std::string& domain : kernel.domains)
    for (const Token& token : lex(domain, kernel.name))
      if (token.kind == Token::Kind::name) words.emplace(token.text);
  return words;
}

void check_is_name(const Kernel& kernel, const std::string& name) {
  if (!is_identifier(name)) refuse(kernel, "\"{}\" is no name: want letters, digits and _", name);
  if (is_reserved_name(name)) refuse(kernel, "\"{}\" is a word of loop kernels", name);
}

void check_is_free(const Kernel& kernel, const std::string& name) {
  check_is_name(kernel, name);
  if (names_of(kernel).contains(name)) refuse(kernel, "the name \"{}\" is taken", name);
  for (const std::string& domain : kernel.domains)
    for (const Token& token : lex(domain, kernel.name))
      if (token.kind == Token::Kind::name && token.text == name)
        refuse(kernel, "the name \"{}\" has a meaning in the domain {}", name, domain);
}

std::string free_name(const Kernel& kernel, const std::string& base, const std::set<std::string>& more) {
  const auto is_taken = [&](const std::string& name) {
    if (more.contains(name)) return true;
    try {
      check_is_free(kernel, name);
    } catch (const UserError&) { return true; }
    return false;
  };
  std::string name = base;
  for (int number = 0; is_taken(name); ++number) name = fmt::format("{}_{}", base, number);
  return name;
}

bool has_iname(const Kernel& kernel, const std::string& iname) {
  const std::vector<std::string> inames = kernel.inames();
  return std::ranges::find(inames, iname) != inames.end();
}

void check_has_iname(const Kernel& kernel, const std::string& iname) {
  if (!has_iname(kernel, iname))
    refuse(kernel, "there is no iname \"{}\": want one of {}", iname, fmt::join(kernel.inames(), ", "));
}

const TensorArgument& tensor_of(const Kernel& kernel, const std::string& tensor) {
  const TensorArgument* found = kernel.find_tensor(tensor);
  if (!found) refuse(kernel, "there is no tensor \"{}\"", tensor);
  return *found;
}

// ---- isl to text --------------------------------------------------------------------------------------------------------

namespace {

std::string form_text(const QuasiAffine& form, const std::vector<std::string>& names);

std::string term_text(const QuasiAffine::Term& term, const std::vector<std::string>& names) {
  const std::string what = term.variable >= 0
                               ? names[static_cast<size_t>(term.variable)]
                               : fmt::format("floor(({})/{})", form_text(*term.numerator, names), term.denominator);
  return term.coefficient == 1 ? what : fmt::format("{} * {}", term.coefficient, what);
}

std::string form_text(const QuasiAffine& form, const std::vector<std::string>& names) {
  std::vector<std::string> items;
  for (const QuasiAffine::Term& term : form.terms) items.push_back(term_text(term, names));
  if (form.constant != 0 || items.empty()) items.push_back(std::to_string(form.constant));
  return fmt::format("{}", fmt::join(items, " + "));
}

struct ConstraintText {
  std::string left, relation, right;
};

// Negative terms go to the other side: "t < T", and not "T - t - 1 >= 0".
ConstraintText constraint_text(const AffineConstraint& constraint, const std::vector<std::string>& names) {
  QuasiAffine less, more;  // less <= more
  for (QuasiAffine::Term term : constraint.form.terms) {
    QuasiAffine& side = term.coefficient < 0 ? less : more;
    term.coefficient = std::abs(term.coefficient);
    side.terms.push_back(std::move(term));
  }
  const bool is_strict = !constraint.equality && constraint.form.constant < 0 && !less.terms.empty();
  if (constraint.form.constant < 0)
    less.constant = -constraint.form.constant - (is_strict ? 1 : 0);
  else
    more.constant = constraint.form.constant;
  return {form_text(less, names), constraint.equality ? "=" : is_strict ? "<" : "<=", form_text(more, names)};
}

// "0 <= t" and "t < T" are "0 <= t < T", as one would write it.
std::string joined(std::vector<ConstraintText> constraints) {
  for (size_t i = 0; i < constraints.size();) {
    const auto next = std::ranges::find_if(constraints, [&](const ConstraintText& other) {
      return &other != &constraints[i] && is_identifier(other.left) && other.left == constraints[i].right &&
             other.relation != "=" && constraints[i].relation != "=";
    });
    if (next == constraints.end()) {
      ++i;
      continue;
    }
    constraints[i].right = fmt::format("{} {} {}", next->left, next->relation, next->right);
    constraints.erase(next);
    i = 0;
  }
  std::vector<std::string> texts;
  for (const auto& [left, relation, right] : constraints)
    texts.push_back(fmt::format("{} {} {}", left, relation, right));
  return fmt::format("{}", fmt::join(texts, " and "));
}

}  // namespace

std::string constraints_of(const isl::set& set) {
  const std::vector<std::string> names = variable_names(set);
  const isl::set simple = isl::manage(isl_set_detect_equalities(isl_set_coalesce(set.copy())));
  const AffineSet forms = affine_set(simple, names);
  if (forms.is_universe()) return "";
  std::vector<std::string> pieces;
  for (const auto& piece : forms.pieces) {
    std::vector<ConstraintText> texts;
    for (const AffineConstraint& constraint : piece) texts.push_back(constraint_text(constraint, names));
    pieces.push_back(joined(std::move(texts)));
  }
  if (pieces.empty()) return "1 = 0";
  return pieces.size() == 1 ? pieces[0] : fmt::format("({})", fmt::join(pieces, ") or ("));
}

std::string isl_text_of(const Expr& expr) {
  if (expr.kind == Expr::Kind::call && (expr.name == "//" || expr.name == "mod")) {
    const std::string left = isl_text_of(expr.args[0]), right = isl_text_of(expr.args[1]);
    return expr.name == "mod" ? fmt::format("(({}) mod {})", left, right) : fmt::format("floor(({})/{})", left, right);
  }
  if (expr.kind == Expr::Kind::call && expr.args.size() == 2)
    return fmt::format("({} {} {})", isl_text_of(expr.args[0]), expr.name, isl_text_of(expr.args[1]));
  if (expr.kind == Expr::Kind::call) return fmt::format("(-{})", isl_text_of(expr.args[0]));
  return print(expr);
}

// ---- the end ------------------------------------------------------------------------------------------------------------

namespace {

std::set<std::string> used_inames(Kernel& kernel) {
  std::set<std::string> used;
  for (const Instruction& instruction : kernel.instructions)
    used.insert(instruction.within.begin(), instruction.within.end());
  for_each_expression(kernel, [&](Expr& expr) {
    if (expr.kind == Expr::Kind::reduce) used.insert(expr.inames.begin(), expr.inames.end());
    if (expr.kind == Expr::Kind::name) used.insert(expr.name);
  });
  return used;
}

bool calls(const Expr& expr, const std::string& rule) {
  return (expr.kind == Expr::Kind::call && expr.name == rule) ||
         std::ranges::any_of(expr.args, [&](const Expr& arg) { return calls(arg, rule); });
}

bool is_called(const Kernel& kernel, const std::string& rule) {
  const auto in = [&](const Expr& expr) { return calls(expr, rule); };
  return std::ranges::any_of(kernel.rules, [&](const Rule& other) { return in(other.body); }) ||
         std::ranges::any_of(kernel.instructions, [&](const Instruction& i) {
           return in(i.value) || in(i.target) || (i.condition && in(*i.condition));
         });
}

// A text that mentions an iname needs it; else what it says of those that are used is all that counts.
void drop_unused_inames(Kernel& kernel) {
  const std::set<std::string> used = used_inames(kernel);
  std::vector<DomainText> texts;
  std::set<std::string> mentioned;
  for (const std::string& domain : kernel.domains) {
    texts.push_back(read_domain(domain, kernel.name));
    mentioned.insert(texts.back().names.begin(), texts.back().names.end());
  }
  const auto is_kept = [&](const std::string& iname) { return used.contains(iname) || mentioned.contains(iname); };
  std::erase_if(kernel.order, [&](const std::string& iname) { return !is_kept(iname); });
  std::vector<std::string> domains;
  for (size_t i = 0; i < texts.size(); ++i) {
    std::vector<std::string> kept, all = texts[i].inames;
    std::ranges::copy_if(all, std::back_inserter(kept), is_kept);
    if (kept.size() == all.size()) {
      domains.push_back(kernel.domains[i]);
      continue;
    }
    if (kept.empty()) continue;
    // What it mentions are parameters to isl.
    std::vector<std::string> parameters = texts[i].names;
    const isl::set set(isl_context(), fmt::format("[{}] -> {}", fmt::join(parameters, ", "), texts[i].text()));
    texts[i].inames = kept;
    texts[i].body = constraints_of(project_dimensions(set, kept));
    domains.push_back(texts[i].text());
  }
  kernel.domains = std::move(domains);
  const std::vector<std::string> left = kernel.inames();
  const std::set<std::string> inames(left.begin(), left.end());
  std::erase_if(kernel.tags, [&](const auto& tag) { return !inames.contains(tag.first); });
}

}  // namespace

void add_domain(Kernel& kernel, const std::string& domain) {
  if (!kernel.order.empty())
    for (const std::string& iname : read_domain(domain, kernel.name).inames) kernel.order.push_back(iname);
  kernel.domains.push_back(domain);
}

void insert_instructions(Kernel& kernel, size_t at, std::vector<Instruction> instructions) {
  for (Instruction& instruction : instructions) instruction.is_behind_barrier = false;
  if (at < kernel.instructions.size() && !instructions.empty())
    instructions.front().is_behind_barrier = std::exchange(kernel.instructions[at].is_behind_barrier, false);
  kernel.instructions.insert(kernel.instructions.begin() + static_cast<std::ptrdiff_t>(at),
                             std::make_move_iterator(instructions.begin()),
                             std::make_move_iterator(instructions.end()));
}

void erase_instruction(Kernel& kernel, size_t at) {
  std::vector<Instruction>& all = kernel.instructions;
  const bool is_behind_barrier = all[at].is_behind_barrier;
  all.erase(all.begin() + static_cast<std::ptrdiff_t>(at));
  if (at > 0 && at < all.size()) all[at].is_behind_barrier |= is_behind_barrier;
  if (!all.empty()) all.front().is_behind_barrier = false;
}

Kernel finished(Kernel kernel) {
  drop_unused_inames(kernel);
  for (Instruction& instruction : kernel.instructions)
    std::erase_if(instruction.unordered, [&](const std::string& id) {
      return std::ranges::find(kernel.instructions, id, &Instruction::id) == kernel.instructions.end();
    });
  const std::vector<std::string> order = kernel.inames();
  for (Instruction& instruction : kernel.instructions) {
    const std::set<std::string> within(instruction.within.begin(), instruction.within.end());
    instruction.within.clear();
    for (const std::string& iname : order)
      if (within.contains(iname)) instruction.within.push_back(iname);
  }
  for (Instruction& instruction : kernel.instructions)
    std::erase_if(instruction.tags, [&](const auto& tag) { return !uses_iname(instruction, tag.first); });
  // Rules that nothing calls go, so that what is left has a meaning.
  std::erase_if(kernel.rules, [&](const Rule& rule) { return !is_called(kernel, rule.name); });
  infer_types(kernel);
  infer_shapes(kernel);
  check_names(without_rules(kernel));
  return kernel;
}

}  // namespace megalith::loop
