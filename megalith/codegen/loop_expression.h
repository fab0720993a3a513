// Expressions of a scheduled kernel as C++: floats in f32, whole numbers in i64. Internal to codegen/loop_source.cpp.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "megalith/loop/kernel.h"

namespace megalith::codegen {

class LoopExpressions {
 public:
  /// The text of an element, by its tensor's name and the texts of the subscripts.
  using Element = std::function<std::string(const std::string& tensor, const std::vector<std::string>& index)>;
  /// The text of a reduction's value.
  using Reduce = std::function<std::string(const loop::Expr& reduce)>;

  LoopExpressions(const loop::Kernel& kernel, Element element, Reduce reduce)
      : kernel_(kernel), element_(std::move(element)), reduce_(std::move(reduce)) {}

  /// As f32 or i64, whichever `expr` has.
  std::string value(const loop::Expr& expr) const { return text(expr, is_float(expr), 0); }
  std::string as_float(const loop::Expr& expr) const { return text(expr, true, 0); }
  std::string as_whole(const loop::Expr& expr) const { return text(expr, false, 0); }
  std::string condition(const loop::Expr& expr, int least = 0) const;
  /// What is stored in an element of the type.
  std::string stored(const loop::Expr& expr, DType dtype) const;
  std::string element(const loop::Expr& subscript) const;

  static bool is_float(const loop::Expr& expr) { return dtype_is_float(expr.dtype); }
  static std::string element_type(DType dtype);

 private:
  std::string text(const loop::Expr& expr, bool as_float, int least) const;
  std::string call(const loop::Expr& expr, bool as_float, int& precedence) const;

  const loop::Kernel& kernel_;
  Element element_;
  Reduce reduce_;
};

}  // namespace megalith::codegen
