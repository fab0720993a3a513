#include <gtest/gtest.h>

#include "loop/kernels.h"
#include "loop/support.h"
#include "megalith/loop/infer.h"

namespace megalith::loop {
namespace {

// The dtype of `value` with f: f32, b: bf16, h: f16, i: i32, l: i64 to read from.
std::string type_of(const std::string& value) {
  Kernel kernel = parse_kernel(
      "input f: f32[9]\ninput b: bf16[9]\ninput h: f16[9]\ninput i: i32[9]\ninput l: i64[9]\n"
      "attribute eps = 1\n{ [k] : 0 <= k < n }\ny[] = " +
      value);
  infer_types(kernel);
  EXPECT_EQ(kernel.find_tensor("y")->dtype, kernel.instructions[0].value.dtype);
  return std::string(dtype_name(kernel.instructions[0].value.dtype));
}

TEST(InferTypes, OfExpressions) {
  EXPECT_EQ(type_of("b[0]"), "bf16");
  EXPECT_EQ(type_of("b[0] + b[1]"), "f32");
  EXPECT_EQ(type_of("b[0] * h[1]"), "f32");
  EXPECT_EQ(type_of("-h[1]"), "f32");
  EXPECT_EQ(type_of("i[0] + 1"), "i32");
  EXPECT_EQ(type_of("i[0] + l[1]"), "i64");
  EXPECT_EQ(type_of("i[0] + 3000000000"), "i64");
  EXPECT_EQ(type_of("i[0] + 1.0"), "f32");
  EXPECT_EQ(type_of("i[0] / 2"), "f32");
  EXPECT_EQ(type_of("i[0] // 2 mod 3"), "i32");
  EXPECT_EQ(type_of("n + eps"), "f32");
  EXPECT_EQ(type_of("n"), "i32");
  EXPECT_EQ(type_of("f[0] < 1"), "i32");
  EXPECT_EQ(type_of("if(f[0] < 1, i[0], l[0])"), "i64");
  EXPECT_EQ(type_of("if(f[0] < 1, b[0], b[1])"), "f32");
  EXPECT_EQ(type_of("bf16(f[0])"), "bf16");
  EXPECT_EQ(type_of("exp(i[0])"), "f32");
  EXPECT_EQ(type_of("max(i[0], 2)"), "i32");
  EXPECT_EQ(type_of("sum(k, b[0])"), "f32");
  EXPECT_EQ(type_of("sum(k, i[0])"), "i32");
  EXPECT_EQ(type_of("max(k, l[0])"), "i64");
  EXPECT_EQ(type_of("argmax(k, f[k])"), "i32");
}

TEST(InferTypes, FlowThroughTemporariesToAFixedPoint) {
  Kernel kernel = parse_kernel(
      "input x: bf16[n]\n{ [i] : 0 <= i < n }\ns[0] = 0\ns[0] = s[0] + t[0]  {id=a}\nt[0] = x[0]\ny[i] = s[0]");
  infer_types(kernel);
  EXPECT_EQ(kernel.find_tensor("t")->dtype, DType::bf16);
  EXPECT_EQ(kernel.find_tensor("s")->dtype, DType::f32);
  EXPECT_EQ(kernel.find_tensor("y")->dtype, DType::f32);
  EXPECT_EQ(kernel.instructions[1].value.args[0].dtype, DType::f32);
  EXPECT_EQ(kernel.instructions[1].value.args[1].dtype, DType::bf16);
  Kernel declared = parse_kernel("output y: i32\ny[] = 2.5");
  infer_types(declared);
  EXPECT_EQ(declared.find_tensor("y")->dtype, DType::i32);
}

TEST(InferTypes, Errors) {
  auto message = [](const std::string& text) {
    return error_of([&] {
      Kernel kernel = parse_kernel(text);
      infer_types(kernel);
    });
  };
  EXPECT_EQ(message("kernel k\ny[] = 2 * x[0]"),
            "[k] instruction \"insn0\": the dtype of x cannot be found: declare it, as in `input x: f32`");
  EXPECT_EQ(message("kernel k\ns[0] = s[0]\ny[] = s[0]"),
            "[k] instruction \"insn0\": the dtype of s cannot be found: declare it, as in `input s: f32`");
  EXPECT_EQ(message("kernel k\ninput x: f32\ny[] = x[x[0]]"),
            "[k] instruction \"insn0\": the index x[0] of x has dtype f32, wanted an integer");
  EXPECT_EQ(message("kernel k\ninput x: f32\n{ [i] : 0 <= i < 4 }\ny[i / 2] = x[i]"),
            "[k] instruction \"insn0\": the index i / 2 of y has dtype f32, wanted an integer");
  EXPECT_EQ(message("kernel k\ninput x: f32\ny[] = x[0] // 2"),
            "[k] instruction \"insn0\": // of f32, wanted integers in x[0] // 2");
  EXPECT_EQ(message("kernel k\ny[] = foo"), "[k] instruction \"insn0\": unknown name \"foo\"");
}

std::string shape_of(const std::string& text, const std::string& tensor) {
  Kernel kernel = parse_kernel(text);
  infer_shapes(kernel);
  EXPECT_TRUE(kernel.find_tensor(tensor)->shape_known);
  std::string result;
  for (const Expr& size : kernel.find_tensor(tensor)->shape) result += (result.empty() ? "" : ", ") + print(size);
  return "[" + result + "]";
}

TEST(InferShapes, FromTheLargestSubscript) {
  const std::string domain = "assume n >= 1 and m >= n\n{ [i, j] : 0 <= i < n and 0 <= j < m }\n";
  EXPECT_EQ(shape_of(domain + "y[i, j] = 1", "y"), "[n, m]");
  EXPECT_EQ(shape_of(domain + "y[i + 2, 2 * j + i] = 1", "y"), "[n + 2, n + 2 * m - 2]");
  EXPECT_EQ(shape_of(domain + "y[i] = x[n - i - 1] {inames=j}", "x"), "[n]");
  EXPECT_EQ(shape_of(domain + "y[i] = 1\ny[j] = 2", "y"), "[m]");  // for m >= n
  EXPECT_EQ(shape_of(domain + "y[] = 1", "y"), "[]");
  EXPECT_EQ(shape_of(domain + "y[i // 4] = 1 {inames=j}", "y"), "[(n + 3) // 4]");
  EXPECT_EQ(shape_of(domain + "y[i] = sum(j, x[j], j < 3)", "x"), "[3]");
  EXPECT_EQ(shape_of("{ [i] : 0 <= i < 10 }\ny[i] = if(i < 5, x[i], 0)", "x"), "[5]");
  EXPECT_EQ(shape_of("{ [i] : 0 <= i < 0 }\ny[i] = 1", "y"), "[0]");
  EXPECT_EQ(shape_of("input x: f32[n]\ny[] = x[0]", "x"), "[n]");  // a declaration stays
}

TEST(InferShapes, Errors) {
  auto message = [](const std::string& text) {
    return error_of([&] {
      Kernel kernel = parse_kernel(text);
      infer_shapes(kernel);
    });
  };
  EXPECT_EQ(message("kernel k\n{ [i] : 0 <= i < 4 }\ninput ids: i32[4]\ny[i] = x[i, ids[i]]"),
            "[k] instruction \"insn0\": dimension 1 of x is indexed by ids[i], which is not affine: declare its shape");
  EXPECT_EQ(message("kernel k\ninput z: f32\ny[] = 1"),
            "[k] the shape of z is not declared, and no instruction accesses it");
  EXPECT_EQ(message("kernel k\ny[0] = 1\ny[0, 1] = 1"),
            "[k] instruction \"insn1\": y[0, 1] has 2 subscripts, elsewhere 1");
  EXPECT_EQ(
      message("kernel k\n{ [i, j] : 0 <= i < n and 0 <= j < m }\nassume n >= 1 and m >= 1\ny[i] = 1\ny[j] = 2"),
      "[k] the shape of y, dimension 0: static maximum not found: (n): m < n; (m): m >= n; add an assumption such as "
      "`assume n >= 1`, or declare the shape");
}

}  // namespace
}  // namespace megalith::loop
