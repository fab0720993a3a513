// Template values as text: str() and repr().
#include "megalith/base/error.h"
#include "megalith/model/template_number.h"
#include "megalith/model/template_object.h"
#include "megalith/model/template_text.h"
#include "megalith/model/template_value.h"

namespace megalith {

using Kind = TemplateValue::Kind;

namespace {

void append_repr(TemplateTextBuilder& out, const TemplateValue& value) {
  switch (value.kind()) {
    case Kind::undefined: return out.append("Undefined");
    case Kind::string:
      if (value.is_markup()) out.append("Markup(");
      out.append(template_quote(value.string().view()).view());
      if (value.is_markup()) out.append(")");
      return;
    case Kind::list:
    case Kind::tuple: {
      const std::vector<TemplateValue>& elements = value.list().elements;
      const bool is_tuple = value.is(Kind::tuple);
      out.append(is_tuple ? "(" : "[");
      for (size_t i = 0; i < elements.size(); ++i) {
        if (i) out.append(", ");
        append_repr(out, elements[i]);
      }
      return out.append(!is_tuple ? "]" : elements.size() == 1 ? ",)" : ")");
    }
    case Kind::dict: {
      out.append("{");
      bool first = true;
      for (const auto& [key, member] : value.dict().members) {
        if (!std::exchange(first, false)) out.append(", ");
        append_repr(out, key);
        out.append(": ");
        append_repr(out, member);
      }
      return out.append("}");
    }
    case Kind::object: return out.append(value.object().repr().view());
    default: return out.append(value.to_text().view());
  }
}

}  // namespace

MarkedText TemplateValue::to_text() const {
  switch (kind_) {
    case Kind::undefined: return {};
    case Kind::none: return {"None"};
    case Kind::boolean: return {integer_ ? "True" : "False"};
    case Kind::integer: return {template_digits(*this)};
    case Kind::number: return {template_number(number_)};
    case Kind::string: return string();
    default: return to_repr();
  }
}

MarkedText TemplateValue::to_repr() const {
  TemplateTextBuilder out;
  append_repr(out, *this);
  return out.take();
}

}  // namespace megalith
