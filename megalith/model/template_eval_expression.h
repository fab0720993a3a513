// Works out the expressions of chat templates; template_eval.cpp runs statements on it. It knows the scope at hand and
// what the rendering may still spend.
#pragma once

#include <ctime>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megalith/model/template_call.h"
#include "megalith/model/template_context.h"
#include "megalith/model/template_text.h"
#include "megalith/model/template_tree.h"

namespace megalith {

struct TemplateScope {
  std::shared_ptr<TemplateScope> parent;
  std::map<std::string, TemplateValue, std::less<>> variables = {};
};
using TemplateScopePtr = std::shared_ptr<TemplateScope>;

class TemplateExpressionEvaluator {
 public:
  TemplateExpressionEvaluator(const std::string& template_name, std::optional<std::time_t> now)
      : context_(template_name, now) {}

 protected:
  using Expression = TemplateExpression;
  using Scope = TemplateScope;
  using ScopePtr = TemplateScopePtr;
  using Out = TemplateTextBuilder;

  // One level deeper, while it lives: an error when these are too many.
  class Deeper {
   public:
    explicit Deeper(TemplateExpressionEvaluator& evaluator);
    ~Deeper() { --evaluator_.levels_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    TemplateExpressionEvaluator& evaluator_;
  };

  TemplateValue look_up(const std::string& name);
  TemplateValue evaluate(const Expression& e);
  // `caller`: the body of a call block, for what it calls.
  [[gnu::noinline]] TemplateValue call(const Expression& e, const TemplateValue* caller);
  void print(Out& out, const TemplateValue& value) { out.append(TemplateTextOf(context_, value)); }

  TemplateContext context_;
  ScopePtr scope_;  // the current one

 private:
  // One function for each, so that what they keep on the stack does not add up.
  [[gnu::noinline]] TemplateValue dict(const Expression& e);
  [[gnu::noinline]] TemplateValue subscript(const Expression& e);
  [[gnu::noinline]] TemplateValue slice(const Expression& e);
  [[gnu::noinline]] TemplateValue filter(const Expression& e);
  [[gnu::noinline]] TemplateValue test(const Expression& e);
  [[gnu::noinline]] TemplateValue binary(const Expression& e);
  [[gnu::noinline]] TemplateValue compare(const Expression& e);
  [[gnu::noinline]] TemplateValue join(const Expression& e);

  std::vector<TemplateValue> parts(const Expression& e, size_t first);
  TemplateCall arguments(const Expression& e, const char* role, const std::string& name, const TemplateValue* caller);

  int levels_ = 0;
};

}  // namespace megalith
