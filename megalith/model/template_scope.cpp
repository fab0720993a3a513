#include "megalith/model/template_scope.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <set>

#include "megalith/model/template_filter.h"
#include "megalith/model/template_lex.h"

namespace megalith {

namespace {

using Expression = TemplateExpression;
using Statement = TemplateStatement;

// Visits all names in an expression that it reads.
template <class Visit>
void each_read(const Expression* e, const Visit& visit) {
  if (!e) return;
  if (e->kind == Expression::Kind::name) visit(e->name);
  for (const auto& part : e->parts) each_read(part.get(), visit);
  for (const auto& [name, part] : e->keywords) each_read(part.get(), visit);
}

// Visits the names of a target: read(name) of a namespace, whose attribute is set, and write(name).
template <class Read, class Write>
void each_target(const Expression& target, const Read& read, const Write& write) {
  if (target.kind == Expression::Kind::name) return write(target.name);
  if (target.kind == Expression::Kind::attribute) return read(target.parts[0]->name);
  for (const auto& part : target.parts) each_target(*part, read, write);
}

// The names of one scope: where each has its value from at the beginning. A branch of a condition begins with what was
// known before it and notes what it adds.
class Symbols {
 public:
  /// In the scope `outer`.
  explicit Symbols(const Symbols* outer) : outer_(outer) {}
  static Symbols branch(const Symbols& before) {
    Symbols symbols(before.outer_);
    symbols.before_ = &before;
    return symbols;
  }

  void read(const std::string& name) {
    if (!knows(name)) from_[name] = From::outside;
  }
  void write(const std::string& name) {
    written_.insert(name);
    if (!knows_itself(name)) from_[name] = outer_ && outer_->knows(name) ? From::outside : From::nothing;
  }
  void take_argument(const std::string& name) {
    written_.insert(name);
    from_[name] = From::argument;
  }
  void read_all(const Expression* e) {
    each_read(e, [&](const std::string& name) { read(name); });
  }
  void take_target(const Expression& target) {
    each_target(
        target, [&](const std::string& name) { read(name); }, [&](const std::string& name) { take_argument(name); });
  }
  void statements(const TemplateBody& body) {
    for (const auto& statement : body.statements) visit(*statement);
  }
  std::vector<std::string> unset() const {
    std::vector<std::string> names;
    for (const auto& [name, from] : from_)
      if (from == From::nothing) names.push_back(name);
    return names;
  }

 private:
  enum class From { argument, outside, nothing };

  bool knows_itself(const std::string& name) const {
    return from_.contains(name) || (before_ && before_->knows_itself(name));
  }
  bool knows(const std::string& name) const { return knows_itself(name) || (outer_ && outer_->knows(name)); }
  bool has_written(const std::string& name) const {
    return written_.contains(name) || (before_ && before_->has_written(name));
  }

  // What stands in scopes of its own is none of this one's.
  void visit(const Statement& s) {
    switch (s.kind) {
      case Statement::Kind::output:
      case Statement::Kind::with:
        for (const auto& value : s.values) read_all(value.get());
        return;
      case Statement::Kind::for_:
      case Statement::Kind::call:
      case Statement::Kind::filter: return read_all(s.expression.get());
      case Statement::Kind::if_: return condition(s);
      case Statement::Kind::set: read_all(s.expression.get()); return write_target(*s.targets[0]);
      case Statement::Kind::set_block: return write_target(*s.targets[0]);
      case Statement::Kind::macro: return write(s.macro->name);
      default: return;
    }
  }
  void write_target(const Expression& target) {
    each_target(
        target, [&](const std::string& name) { read(name); }, [&](const std::string& name) { write(name); });
  }

  void condition(const Statement& s) {
    read_all(s.branches[0].first.get());
    Symbols first = branch(*this), others = branch(*this), last = branch(*this);
    first.statements(s.branches[0].second);
    for (size_t i = 1; i < s.branches.size(); ++i) {
      others.read_all(s.branches[i].first.get());
      Symbols other = branch(others);
      other.statements(s.branches[i].second);
      others.merge({&other});
    }
    last.statements(s.other);
    merge({&first, &others, &last});
  }

  // What only a branch sets may have its value from outside, where another is taken.
  void merge(std::initializer_list<const Symbols*> branches) {
    std::set<std::string> anew;
    for (const Symbols* branch : branches)
      for (const std::string& name : branch->written_)
        if (!has_written(name)) anew.insert(name);
    for (const Symbols* branch : branches) {
      for (const auto& [name, from] : branch->from_) from_[name] = from;
      written_.insert(branch->written_.begin(), branch->written_.end());
    }
    for (const std::string& name : anew) from_[name] = From::outside;
  }

  const Symbols* outer_;
  const Symbols* before_ = nullptr;
  std::map<std::string, From> from_;
  std::set<std::string> written_;
};

// Which of some names statements read, before they set them.
class Undeclared {
 public:
  explicit Undeclared(std::set<std::string> names) : wanted_(std::move(names)) {}

  bool found(const std::string& name) const { return found_.contains(name); }
  void statements(const TemplateBody& body) {
    for (const auto& statement : body.statements) visit(*statement);
  }

 private:
  void read(const Expression* e) {
    each_read(e, [&](const std::string& name) {
      if (wanted_.contains(name)) found_.insert(name);
    });
  }
  void write(const Expression& target) {
    each_target(
        target, [](const std::string&) {}, [&](const std::string& name) { wanted_.erase(name); });
  }
  void callable(const TemplateMacroTree& tree) {
    for (const TemplateParameter& parameter : tree.parameters) wanted_.erase(parameter.name);
    for (const TemplateParameter& parameter : tree.parameters) read(parameter.absent.get());
    statements(tree.body);
  }
  void visit(const Statement& s) {
    if (s.kind == Statement::Kind::block) return;
    if (s.kind == Statement::Kind::call) read(s.expression.get());
    for (const auto& target : s.targets) write(*target);
    if (s.kind != Statement::Kind::call && s.kind != Statement::Kind::filter) read(s.expression.get());
    for (const auto& value : s.values) read(value.get());
    if (s.macro) callable(*s.macro);
    for (const auto& [condition, body] : s.branches) {
      read(condition.get());
      statements(body);
    }
    statements(s.body);
    if (s.kind == Statement::Kind::filter) read(s.expression.get());
    statements(s.other);
    read(s.condition.get());
  }

  std::set<std::string> wanted_, found_;
};

class Resolver {
 public:
  explicit Resolver(const std::string& template_name) : template_name_(template_name) {}

  void body(TemplateBody& body, Symbols& symbols) {
    symbols.statements(body);
    statements(body, symbols, false);
    body.unset = symbols.unset();
  }

 private:
  // `in_condition`: what is not there is an error only when it is reached.
  void statements(TemplateBody& body, const Symbols& symbols, bool in_condition) {
    for (const auto& statement : body.statements) visit(*statement, symbols, in_condition);
  }

  void inner(TemplateBody& inner_body, const Symbols& symbols) {
    Symbols own(&symbols);
    body(inner_body, own);
  }

  void visit(Statement& s, const Symbols& symbols, bool in_condition) {
    const bool is_inner_filter = s.kind == Statement::Kind::filter || s.kind == Statement::Kind::set_block;
    check(s.expression.get(), in_condition && !is_inner_filter);
    for (const auto& value : s.values) check(value.get(), in_condition);
    switch (s.kind) {
      case Statement::Kind::for_: return loop(s, symbols);
      case Statement::Kind::if_:
        for (auto& [condition, body] : s.branches) {
          check(condition.get(), true);
          statements(body, symbols, true);
        }
        return statements(s.other, symbols, true);
      case Statement::Kind::macro:
      case Statement::Kind::generation:
      case Statement::Kind::call: return callable(*s.macro, symbols);
      case Statement::Kind::with: {
        Symbols own(&symbols);
        for (const auto& target : s.targets) own.take_target(*target);
        return body(s.body, own);
      }
      case Statement::Kind::block: {
        Symbols own(nullptr);
        return body(s.body, own);
      }
      default: return inner(s.body, symbols);
    }
  }

  void loop(Statement& s, const Symbols& symbols) {
    Undeclared undeclared({"loop"});
    undeclared.statements(s.body);
    s.uses_loop = s.is_recursive || undeclared.found("loop");
    check(s.condition.get(), false);
    Symbols own(&symbols);
    if (s.uses_loop) own.take_argument("loop");
    own.take_target(*s.targets[0]);
    body(s.body, own);
    inner(s.other, symbols);
  }

  void callable(TemplateMacroTree& tree, const Symbols& symbols) {
    Undeclared undeclared({"caller", "kwargs", "varargs"});
    undeclared.statements(tree.body);
    auto has_parameter = [&](std::string_view name) {
      return std::any_of(tree.parameters.begin(), tree.parameters.end(), [&](const auto& p) { return p.name == name; });
    };
    tree.uses_caller = undeclared.found("caller");
    tree.uses_kwargs = undeclared.found("kwargs") && !has_parameter("kwargs");
    tree.uses_varargs = undeclared.found("varargs") && !has_parameter("varargs");
    Symbols own(&symbols);
    for (const TemplateParameter& parameter : tree.parameters) {
      if (parameter.name == "caller" && tree.uses_caller && !parameter.absent)
        template_fail(template_name_, tree.line, "the parameter \"caller\" needs a value for when there is no caller");
      own.take_argument(parameter.name);
      check(parameter.absent.get(), false);
    }
    if (tree.uses_caller) own.take_argument("caller");
    if (tree.uses_kwargs) own.take_argument("kwargs");
    if (tree.uses_varargs) own.take_argument("varargs");
    for (const TemplateParameter& parameter : tree.parameters) own.read_all(parameter.absent.get());
    body(tree.body, own);
  }

  void check(const Expression* e, bool in_condition) {
    if (!e) return;
    in_condition |= e->kind == Expression::Kind::condition;
    if (!in_condition && e->kind == Expression::Kind::filter && !template_has_filter(e->name))
      template_fail(template_name_, e->line, template_no_filter(e->name));
    if (!in_condition && e->kind == Expression::Kind::test && !template_has_test(e->name))
      template_fail(template_name_, e->line, template_no_test(e->name));
    for (const auto& part : e->parts) check(part.get(), in_condition);
    for (const auto& [name, part] : e->keywords) check(part.get(), in_condition);
  }

  const std::string& template_name_;
};

}  // namespace

void template_resolve(TemplateBody& body, const std::string& template_name) {
  Symbols root(nullptr);
  Resolver(template_name).body(body, root);
}

}  // namespace megalith
