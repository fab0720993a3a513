// The functions and operators that expressions may call, in one table: parser, printer, checks, type inference,
// interpreter and code generators all look here. Casts (calls of a dtype's name) are not in it.
#pragma once

#include <span>
#include <string_view>

namespace megalith::loop {

struct Function {
  std::string_view name;  // as in Expr::name
  int num_args;
  int precedence;          // 0: written as a call; else how tightly the operator binds, 1 = weakest
  std::string_view count;  // the name under which loop/count.h counts it, "" if it is not counted
};

inline constexpr int kPrecedenceNot = 3, kPrecedenceCompare = 4, kPrecedenceNeg = 7, kPrecedencePrimary = 8;

std::span<const Function> function_table();
/// nullptr if there is no such function.
const Function* find_function(std::string_view name);

/// True for bf16, f16, f32, i8, i32, i64: a call of that name is a cast.
bool is_dtype_name(std::string_view name);
/// Names that have a meaning of their own and cannot be given to inames, parameters, attributes or tensors.
bool is_reserved_name(std::string_view name);

}  // namespace megalith::loop
