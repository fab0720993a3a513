#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "megalith/codegen/block.h"
#include "megalith/codegen/checks.h"
#include "megalith/codegen/columns.h"
#include "megalith/loop/function.h"
#include "megalith/loop/text.h"

namespace megalith::codegen {

using loop::Expr;

namespace {

// A subscript inside a subscript: a read at a place that data decides.
bool reads_computed_place(const Expr& expr) {
  if (expr.kind == Expr::Kind::subscript && std::ranges::any_of(expr.args, loop::reads_tensor)) return true;
  return std::ranges::any_of(expr.args, reads_computed_place);
}

void names_of(const Expr& expr, std::vector<std::string>& names) {
  if (expr.kind == Expr::Kind::name) names.push_back(expr.name);
  for (const Expr& arg : expr.args) names_of(arg, names);
}

const Expr* first_subscript(const Expr& expr) {
  if (expr.kind == Expr::Kind::subscript) return &expr;
  for (const Expr& arg : expr.args)
    if (const Expr* found = first_subscript(arg)) return found;
  return nullptr;
}

}  // namespace

std::string Hoister::fresh_name(const std::string& wanted) {
  auto is_free = [&](const std::string& name) {
    if (is_taken_name(name) || used_names_.contains(name) || context_.kernel.is_parameter(name) ||
        context_.kernel.is_attribute(name))
      return false;
    const std::vector<std::string> inames = context_.kernel.inames();
    if (std::ranges::find(inames, name) != inames.end()) return false;
    return std::ranges::none_of(context_.places.of, [&](const auto& place) { return place.second.text == name; });
  };
  std::string name = wanted;
  for (int number = 2; !is_free(name); ++number) name = fmt::format("{}_{}", wanted, number);
  used_names_.insert(name);
  return name;
}

// "rsqrt_ss" for a function of something, "position_t" for a read.
std::string Hoister::name_for(const Expr& expr) const {
  if (expr.kind == Expr::Kind::subscript) {
    std::string name = expr.name;
    std::vector<std::string> names;
    names_of(expr, names);
    std::ranges::sort(names);
    names.erase(std::unique(names.begin(), names.end()), names.end());
    for (const std::string& one : names)
      if (one.size() == 1) name += "_" + one;
    return name;
  }
  if (expr.kind == Expr::Kind::call &&
      (loop::is_dtype_name(expr.name) || expr.name == "inside" || expr.name == "nonzero"))
    return name_for(expr.args[0]);
  std::string name = "value";
  if (expr.kind == Expr::Kind::reduce) name = expr.reduce == loop::ReduceOp::sum ? "sum" : "extreme";
  if (expr.kind == Expr::Kind::call && std::isalpha(static_cast<unsigned char>(expr.name[0])) && expr.name != "if")
    name = expr.name;
  if (const Expr* read = first_subscript(expr)) name += "_" + read->name;
  return name;
}

// All names that a value depends on: those it mentions, and those that bound its reductions.
std::vector<std::string> Hoister::names_in(const Expr& expr) const {
  std::vector<std::string> names;
  names_of(expr, names);
  auto visit_reductions = [&](const Expr& part, std::vector<std::string> scope, auto&& self) -> void {
    if (part.kind == Expr::Kind::reduce) {
      const auto [known, is_new] = bounds_.try_emplace(fmt::format("{}: {}", fmt::join(scope, " "), loop::print(part)));
      if (is_new) {
        ExpressionWriter writer(context_);
        writer.set_scope(scope);
        for (const ExpressionWriter::Reduction& one : writer.reductions(part)) {
          known->second += " " + one.bounds.lower + " " + one.bounds.upper;
          for (const std::string& guard : one.guards) known->second += " " + guard;
        }
      }
      for (const std::string& name : scope)
        if (has_word(known->second, name)) names.push_back(name);
      scope.insert(scope.end(), part.inames.begin(), part.inames.end());
    }
    for (const Expr& arg : part.args) self(arg, scope, self);
  };
  visit_reductions(expr, scope_, visit_reductions);
  return names;
}

int Hoister::level_of(const Expr& expr) const {
  const std::vector<std::string> names = names_in(expr);
  auto is_written = [&](const Block& block, const Expr& part, auto&& self) -> bool {
    if (part.kind == Expr::Kind::subscript && block.writes.contains(part.name)) return true;
    return std::ranges::any_of(part.args, [&](const Expr& arg) { return self(block, arg, self); });
  };
  for (size_t level = blocks_.size() - 1; level > 0; --level) {
    const Block& block = blocks_[level];
    const bool depends = std::ranges::find(names, block.iname) != names.end() || is_written(block, expr, is_written) ||
                         std::ranges::any_of(block.named, [&](const Block::Named& value) {
                           return std::ranges::find(names, value.name) != names.end();
                         });
    if (depends || (block.guarded && reads_computed_place(expr)) || (block.strict && reads_tensor(expr)) ||
        ((block.guarded || block.strict || block.may_be_empty) && has_check(expr)))
      return static_cast<int>(level);
  }
  return 0;
}

void Hoister::name_value(Expr& expr, int level) {
  // The same value may have a name already, in this block or around it; what it reads must not have changed since.
  for (int l = level; l >= 0; --l)
    for (const Block::Named& value : blocks_[static_cast<size_t>(l)].named)
      if (!value.stale && same_expression(value.value, expr)) {
        expr = loop::make_name(value.name);
        return;
      }
  // Reads inside it that stand further out get names of their own there.
  const Expr value = expr;
  for (Expr& arg : expr.args) name_outer_reads(arg, level);
  Type type = writer_.natural(expr);
  const Type natural = type;
  if (type == Type::i32) type = Type::i64;
  const std::string name = fresh_name(name_for(expr));
  Block& block = blocks_[static_cast<size_t>(level)];
  const Level here = writer_.level();
  writer_.set_level(block.level);
  block.lines.push_back(fmt::format("const {} {} = {};", type_name(type), name, writer_.write(expr, natural)));
  writer_.set_level(here);
  block.named.push_back({value, name, false});
  context_.locals[name] = type;
  expr = loop::make_name(name);
}

void Hoister::name_outer_reads(Expr& expr, int level) {
  const bool only_sometimes =
      expr.kind == Expr::Kind::reduce ||
      (expr.kind == Expr::Kind::call && (expr.name == "if" || expr.name == "and" || expr.name == "or"));
  if (only_sometimes) return;
  if (expr.kind == Expr::Kind::subscript && context_.places.of.at(expr.name).where != Place::Where::scalar) {
    if (const int own = level_of(expr); own < level) {
      name_value(expr, own);
      return;
    }
  }
  for (Expr& arg : expr.args) name_outer_reads(arg, level);
}

void Hoister::visit(Expr& expr, const Position& position) {
  if (expr.kind == Expr::Kind::number || expr.kind == Expr::Kind::name) return;
  const bool scalar =
      expr.kind == Expr::Kind::subscript && context_.places.of.at(expr.name).where == Place::Where::scalar;
  if (scalar) return;

  auto worth = [&](const Expr& part, auto&& self) -> bool {
    if (part.kind == Expr::Kind::subscript) return context_.places.of.at(part.name).where != Place::Where::scalar;
    if (part.kind == Expr::Kind::reduce) return true;
    if (part.kind == Expr::Kind::call) {
      static const std::set<std::string> costly = {"exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh", "pow"};
      if (costly.contains(part.name)) return true;
      if (part.name == "/" && part.args[0].kind != Expr::Kind::number) return true;
    }
    return std::ranges::any_of(part.args, [&](const Expr& arg) { return self(arg, self); });
  };
  const int depth = static_cast<int>(blocks_.size()) - 1;
  scope_ = writer_.scope();
  for (const std::string& iname : position.bound)
    if (std::ranges::find(scope_, iname) == scope_.end()) scope_.push_back(iname);
  const std::vector<std::string> names = names_in(expr);
  const bool moves = std::ranges::any_of(
      position.bound, [&](const std::string& iname) { return std::ranges::find(names, iname) != names.end(); });
  if (!moves && worth(expr, worth)) {
    const int level = level_of(expr);
    const bool stays_safe = (!position.guarded || !reads_computed_place(expr)) &&
                            (!position.strict || !reads_tensor(expr)) &&
                            (!(position.guarded || position.strict || position.may_be_empty) || !has_check(expr));
    if ((level < depth || !position.bound.empty()) && stays_safe) {
      name_value(expr, level);
      return;
    }
  }

  if (expr.kind == Expr::Kind::reduce) {
    Position inside = position;
    inside.bound.insert(inside.bound.end(), expr.inames.begin(), expr.inames.end());
    if (has_check(expr)) {
      writer_.set_scope(scope_);
      for (const ExpressionWriter::Reduction& one : writer_.reductions(expr))
        inside.may_be_empty = inside.may_be_empty || one.may_be_empty;
    }
    if (expr.args.size() > 1) {
      visit(expr.args[1], inside);
      for (const Expr& condition : conjuncts(expr.args[1])) {
        const bool bounds = std::ranges::any_of(
            expr.inames, [&](const std::string& iname) { return condition_bound(condition, iname).has_value(); });
        (bounds ? inside.guarded : inside.strict) = true;
      }
    }
    visit(expr.args[0], inside);
    return;
  }
  // What only one side of a choice may read stays there.
  const bool first_only =
      expr.kind == Expr::Kind::call && (expr.name == "if" || expr.name == "and" || expr.name == "or");
  for (size_t i = 0; i < (first_only ? 1 : expr.args.size()); ++i) visit(expr.args[i], position);
}

void Hoister::forget(const std::string& tensor) {
  auto reads = [&](const Expr& expr, auto&& self) -> bool {
    if (expr.kind == Expr::Kind::subscript && expr.name == tensor) return true;
    return std::ranges::any_of(expr.args, [&](const Expr& arg) { return self(arg, self); });
  };
  for (Block& block : blocks_)
    for (Block::Named& value : block.named) value.stale = value.stale || reads(value.value, reads);
}

void Hoister::hoist(Expr& expr, std::vector<std::string> bound, bool strict) {
  visit(expr, {std::move(bound), false, strict, false});
}

void Hoister::hoist_reads(Expr& expr) {
  if (expr.kind == Expr::Kind::subscript && context_.places.of.at(expr.name).where != Place::Where::scalar) {
    name_value(expr, level_of(expr));
    return;
  }
  for (Expr& arg : expr.args) hoist_reads(arg);
}

}  // namespace megalith::codegen
