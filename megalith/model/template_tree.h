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
    test,       // parts[0] is name(parts[1], ..., keywords)
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

/// Statements with a scope of their own.
struct TemplateBody {
  std::vector<std::unique_ptr<TemplateStatement>> statements = {};
  // What they set and nothing around them knows: undefined until they do, whatever has that name outside.
  std::vector<std::string> unset = {};
};

struct TemplateParameter {
  std::string name;
  TemplateExpressionPtr absent;  // the value of an absent argument; null: undefined
};

/// What can be called: a macro, or the body of a call block.
struct TemplateMacroTree {
  std::string name;  // "": a call block's
  int line;
  std::vector<TemplateParameter> parameters = {};
  TemplateBody body = {};
  // Whether the body speaks of these, and so takes arguments that have no parameter.
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
};

struct TemplateStatement {
  enum class Kind {
    text,        // text
    output,      // values
    for_,        // targets[0] in expression, if condition: body, else other
    if_,         // branches, else other
    set,         // targets[0] = expression
    set_block,   // targets[0] = body, through filters (expression, on the name "")
    macro,       // macro
    call,        // expression is a call, macro its caller
    filter,      // body through filters (expression, on the name "")
    with,        // targets[i] = values[i] in body
    generation,  // macro, called once: {% generation %}, which marks text for training and does nothing more here
    autoescape,  // expression, body
    block,       // body, with the variables of the template, or those at hand
    break_,
    continue_,
    refused  // text: an error when it is reached
  };
  Kind kind;
  int line;
  std::string text = {};
  TemplateExpressionPtr expression = {};
  TemplateExpressionPtr condition = {};
  std::vector<TemplateExpressionPtr> targets = {};  // names, attributes of namespaces, tuples of names
  std::vector<TemplateExpressionPtr> values = {};
  std::vector<std::pair<TemplateExpressionPtr, TemplateBody>> branches = {};  // without scopes of their own
  TemplateBody body = {};
  TemplateBody other = {};
  std::shared_ptr<TemplateMacroTree> macro = {};
  bool uses_loop = false;     // whether the body speaks of the variable "loop"
  bool is_recursive = false;  // whether loop(...) runs the loop again
  bool is_scoped = false;     // whether a block sees the variables around it
};

}  // namespace megalith
