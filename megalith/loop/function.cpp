#include "megalith/loop/function.h"

#include <algorithm>

namespace megalith::loop {

namespace {
constexpr Function kFunctions[] = {
    {"or", 2, 1, "logic"},    {"and", 2, 2, "logic"},   {"not", 1, 3, "logic"},  {"<", 2, 4, "compare"},
    {"<=", 2, 4, "compare"},  {">", 2, 4, "compare"},   {">=", 2, 4, "compare"}, {"==", 2, 4, "compare"},
    {"!=", 2, 4, "compare"},  {"+", 2, 5, "add"},       {"-", 2, 5, "sub"},      {"*", 2, 6, "mul"},
    {"/", 2, 6, "div"},       {"//", 2, 6, "floordiv"}, {"mod", 2, 6, "mod"},    {"neg", 1, 7, "neg"},
    {"if", 3, 0, "select"},   {"exp", 1, 0, "exp"},     {"log", 1, 0, "log"},    {"sqrt", 1, 0, "sqrt"},
    {"rsqrt", 1, 0, "rsqrt"}, {"sin", 1, 0, "sin"},     {"cos", 1, 0, "cos"},    {"tanh", 1, 0, "tanh"},
    {"abs", 1, 0, "abs"},     {"floor", 1, 0, "floor"}, {"min", 2, 0, "min"},    {"max", 2, 0, "max"},
    {"pow", 2, 0, "pow"},
};
constexpr std::string_view kDTypeNames[] = {"bf16", "f16", "f32", "i8", "i32", "i64"};
// Words of isl's set notation and of reductions.
constexpr std::string_view kOtherReserved[] = {"sum",  "argmax", "inf",   "exists", "ceil",
                                               "true", "false",  "infty", "NaN",    "implies"};
}  // namespace

std::span<const Function> function_table() { return kFunctions; }

const Function* find_function(std::string_view name) {
  const Function* found = std::ranges::find(kFunctions, name, &Function::name);
  return found == std::end(kFunctions) ? nullptr : found;
}

bool is_dtype_name(std::string_view name) { return std::ranges::find(kDTypeNames, name) != std::end(kDTypeNames); }

bool is_reserved_name(std::string_view name) {
  return find_function(name) || is_dtype_name(name) ||
         std::ranges::find(kOtherReserved, name) != std::end(kOtherReserved);
}

}  // namespace megalith::loop
