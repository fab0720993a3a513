// Which kernels may be given one tensor for an input and an output, and which would read there what they have written.
#include "megalith/loop/in_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "loop/support.h"
#include "megalith/loop/check.h"
#include "megalith/loop/infer.h"

namespace megalith::loop {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kOperands =
    "kernel k\ninput x: f32[4, 8]\ninput w: f32[8, 8]\ninput ids: i32[4]\noutput y: f32[4, 8]\n";

Kernel kernel_of(const std::string& text) {
  Kernel kernel = parse_kernel(kOperands + text);
  infer_types(kernel);
  infer_shapes(kernel);
  return kernel;
}
std::string why_not(const std::string& text) { return why_not_in_place(kernel_of(text), "x", "y"); }

constexpr const char* kRows = "{ [t, h] : 0 <= t < 4 and 0 <= h < 8 }\n";
constexpr const char* kSums = "{ [t, h, k] : 0 <= t < 4 and 0 <= h < 8 and 0 <= k < 8 }\n";

TEST(InPlace, ElementByElementIsFine) {
  for (const char* text :
       {"y[t, h] = x[t, h] * 2", "y[t, h] = if(x[t, h] > 0, x[t, h], 0)", "y[t, h] = x[t, h] {if=x[t, h] > 0}",
        "y[t, h] = x[t, h]\ntag t = task", "y[t, h] = x[t, h]\ntag t = task\ntag h = task"})
    EXPECT_EQ(why_not(std::string(kRows) + text), "") << text;
}

// A row's sum is done before the first element of the row is written.
TEST(InPlace, AllReadsBeforeTheWritesAreFine) {
  const std::string norm = std::string(kSums) + "s[t] = sum(k, x[t, k] * x[t, k])\ny[t, h] = x[t, h] * s[t]";
  EXPECT_EQ(why_not(norm), "");
  EXPECT_EQ(why_not(norm + "\ntag t = task"), "");
  EXPECT_EQ(why_not(norm + "\ntag h = task"),
            "y[t, h] is written before x[t, k] is read for the last time, in another task along h");
  EXPECT_EQ(why_not("{ [t] : 0 <= t < 4 }\n{ [i] : 0 <= i < 4 }\na[t] = x[t, 0]\ny[i, 0] = a[i]"), "");
}

TEST(InPlace, WhatReadsMoreThanItWritesIsNot) {
  EXPECT_EQ(why_not(std::string(kSums) + "y[t, h] = sum(k, x[t, k] * w[h, k])"),
            "y[t, h] is written before x[t, k] is read for the last time");
  EXPECT_EQ(why_not("{ [t, h] : 0 <= t < 4 and 1 <= h < 8 }\ny[t, h] = x[t, h - 1]"),
            "y[t, h] is written before x[t, h - 1] is read for the last time");
  // Reading ahead is right one after the other, and wrong side by side, as a vector's lanes or a GPU's threads are.
  EXPECT_NE(why_not("{ [t, h] : 0 <= t < 4 and 0 <= h < 7 }\ny[t, h] = x[t, h + 1]"), "");
  EXPECT_NE(why_not(std::string(kRows) + "y[t, h] = x[t, 7 - h]"), "");
  EXPECT_EQ(why_not(std::string(kRows) + "y[t, h] = x[ids[t], h]"),
            "which elements x[ids[t], h] reads and y[t, h] writes only the data say");
  // The first instruction has overwritten what the second one reads.
  EXPECT_NE(why_not("{ [t, h] : 0 <= t < 4 and 0 <= h < 4 }\n"
                    "y[t, h] = x[t, h] - x[t, h + 4]\ny[t, h + 4] = x[t, h] + x[t, h + 4]"),
            "");
}

TEST(InPlace, MergedItIsOneTensor) {
  Kernel kernel = kernel_of(std::string(kRows) + "y[t, h] = x[t, h] * 2 {if=x[t, h] > 0}");
  merge_operands(kernel, "x", "y");
  EXPECT_EQ(kernel.find_tensor("y")->role, Role::inout);
  EXPECT_THAT(print(kernel),
              AllOf(HasSubstr("inout y"), HasSubstr("y[t, h] = y[t, h]"), HasSubstr("{if=y[t, h] > 0}")));
  EXPECT_EQ(error_of([&] { check_kernel(kernel); }), "");
}

}  // namespace
}  // namespace megalith::loop
