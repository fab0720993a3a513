// A parsed chat template. Two kinds of node: statements print or steer, expressions have values. How deep they nest is
// bounded by the parser, so that walking a tree cannot exhaust the stack.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "megalith/model/template_value.h"

namespace megalith {

struct TemplateExpression;
using TemplateExpressionPtr = std::unique_ptr<TemplateExpression>;

struct TemplateExpression {
  enum class Kind {
    constant,   // constant
    name,       // name
    list,       // parts
    tuple,      // parts
    dict,       // parts: key, value, key, value, ...
    attribute,  // parts[0].name
    subscript,  // parts[0][parts[1]]
    slice,      // parts[0][parts[1]:parts[2]:parts[3]]; absent ones are null
    call,       // parts[0](parts[1], ..., keywords); the keywords "*" and "**" are lists and dictionaries of arguments
    filter,     // parts[0] | name(parts[1], ..., keywords)
    test,       // parts[0] is name(parts[1], ...)
    unary,      // name parts[0]; "not", "-", "+"
    binary,     // parts[0] name parts[1]; "+", "and", ...
    compare,    // parts[0] operators[0] parts[1] operators[1] parts[2] ...
    join,       // parts[0] ~ parts[1] ~ ...
    condition   // parts[1] if parts[0] else parts[2]; parts[2] may be null
  };
  Kind kind;
  int line;
  std::string name = {};
  TemplateValue constant = {};
  std::vector<TemplateExpressionPtr> parts = {};
  std::vector<std::pair<std::string, TemplateExpressionPtr>> keywords = {};
  std::vector<std::string> operators = {};
  int levels = 1;
};

struct TemplateStatement;
using TemplateBody = std::vector<std::unique_ptr<TemplateStatement>>;

struct TemplateParameter {
  std::string name;
  TemplateExpressionPtr absent;  // the value of an absent argument; null: undefined
};

/// What can be called: a macro, or the body of a call block.
struct TemplateMacroTree {
  std::string name;
  std::vector<TemplateParameter> parameters;
  TemplateBody body;
  // Whether the body speaks of these, and so takes arguments that have no parameter.
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
};

struct TemplateStatement {
  enum class Kind {
    text,       // text
    output,     // expression
    for_,       // targets in expression, if condition: body, else other
    if_,        // branches, else other
    set,        // targets = expression
    set_block,  // targets[0] = body, through filters (expression, on the name "")
    macro,      // macro
    call,       // expression is a call, macro its caller
    filter,     // body through filters (expression, on the name "")
    with,       // targets[i] = values[i] in body
    block,      // body, for nothing else: {% generation %}
    break_,
    continue_
  };
  Kind kind;
  int line;
  std::string text = {};
  TemplateExpressionPtr expression = {};
  TemplateExpressionPtr condition = {};
  std::vector<TemplateExpressionPtr> targets = {};  // names, attributes of namespaces, tuples of names
  std::vector<TemplateExpressionPtr> values = {};
  std::vector<std::pair<TemplateExpressionPtr, TemplateBody>> branches = {};
  TemplateBody body = {};
  TemplateBody other = {};
  std::shared_ptr<const TemplateMacroTree> macro = {};
  bool uses_loop = false;  // whether the body speaks of the variable "loop"
};

}  // namespace megalith
