#include "megalith/codegen/source_text.h"

#include <algorithm>
#include <set>

#include "megalith/base/error.h"
#include "megalith/base/plain_text.h"

namespace megalith::codegen {

std::string comment_text(std::string_view text) {
  std::string result;
  for (const char c : plain_text(text)) {
    const char before = result.empty() ? '\0' : result.back();
    const bool is_mark = (before == '*' && c == '/') || (before == '/' && c == '*') || (before == '?' && c == '?');
    if (is_mark)
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else
      result += c;
  }
  return result;
}

std::string comment_lines(std::string_view text) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    result += "// " + comment_text(text.substr(at, end - at)) + "\n";
    at = end + 1;
  }
  return result.empty() ? "//\n" : result;
}

bool is_word_of_cpp(const std::string& name) {
  static const std::set<std::string> words = {
      "alignas",     "alignof",  "and",        "and_eq",    "asm",       "auto",         "bitand",
      "bitor",       "bool",     "break",      "case",      "catch",     "char",         "char16_t",
      "char32_t",    "char8_t",  "class",      "co_await",  "co_return", "co_yield",     "compl",
      "concept",     "const",    "const_cast", "consteval", "constexpr", "constinit",    "continue",
      "decltype",    "default",  "delete",     "do",        "double",    "dynamic_cast", "else",
      "enum",        "explicit", "export",     "extern",    "false",     "float",        "for",
      "friend",      "goto",     "if",         "inline",    "int",       "long",         "mutable",
      "namespace",   "new",      "noexcept",   "not",       "not_eq",    "nullptr",      "operator",
      "or",          "or_eq",    "private",    "protected", "public",    "register",     "reinterpret_cast",
      "requires",    "return",   "short",      "signed",    "sizeof",    "static",       "static_assert",
      "static_cast", "struct",   "switch",     "template",  "this",      "thread_local", "throw",
      "true",        "try",      "typedef",    "typeid",    "typename",  "union",        "unsigned",
      "using",       "virtual",  "void",       "volatile",  "wchar_t",   "while",        "xor",
      "xor_eq"};
  const bool is_kept =
      name.starts_with("__") || (name.size() > 1 && name[0] == '_' && name[1] >= 'A' && name[1] <= 'Z');
  return words.contains(name) || is_kept || name.starts_with("MEGALITH_");
}

void check_names(const graph::LoweredKernel& lowered) {
  const loop::Kernel& kernel = lowered.kernel;
  auto check = [&](const std::string& name, const char* what) {
    MEGALITH_CHECK(is_identifier(name), "[{}] a {} is called \"{}\", want letters, digits and _",
                   plain_text(kernel.name), what, plain_text(name));
  };
  // Those that stand there as they are; tensors and inames may get another name.
  auto check_kept = [&](const std::string& name, const char* what) {
    check(name, what);
    MEGALITH_CHECK(!is_word_of_cpp(name), "[{}] the {} \"{}\" has a meaning in generated code: give it another name",
                   kernel.name, what, name);
  };
  check_kept(lowered.name, "kernel");
  for (const loop::TensorArgument& tensor : kernel.tensors) check(tensor.name, "tensor");
  for (const loop::Parameter& parameter : kernel.parameters) check_kept(parameter.name, "size");
  for (const loop::Attribute& attribute : kernel.attributes) check_kept(attribute.name, "attribute");
  for (const std::string& iname : kernel.inames()) check(iname, "iname");
  for (const std::string& iname : lowered.tiled) check(iname, "task axis");
}

}  // namespace megalith::codegen
