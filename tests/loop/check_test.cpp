// What the checks refuse, word for word, and what they must let pass.
#include <gtest/gtest.h>

#include "loop/kernels.h"
#include "loop/support.h"
#include "megalith/loop/check.h"
#include "megalith/loop/infer.h"

namespace megalith::loop {
namespace {

using Check = void (*)(const Kernel&);
std::string message_of(Check check, const std::string& text) {
  const Kernel kernel = parse_kernel(text);
  return error_of([&] { check(kernel); });
}

TEST(CheckKernel, OperatorsPass) {
  for (const char* text :
       {kRmsNorm, kMatmul, kLinear, kEmbedding, kRope, kPagedAttention, kArgmax, kTransposeThenDouble}) {
    Kernel kernel = parse_kernel(text);
    infer_types(kernel);
    for (const char* temporary : {"ss", "score", "largest", "total"})
      if (TensorArgument* tensor = kernel.find_tensor(temporary)) {
        tensor->shape = inferred_shape(kernel, temporary);
        tensor->shape_known = true;
      }
    EXPECT_EQ(error_of([&] { check_kernel(kernel); }), "") << kernel.name;
  }
}

TEST(CheckNames, Messages) {
  EXPECT_EQ(message_of(check_names, "kernel k\ny[] = eps"), "[k] instruction \"insn0\": unknown name \"eps\"");
  EXPECT_EQ(
      message_of(check_names, "kernel k\n{ [i, j] : 0 <= i, j < 4 }\ny[i] = x[j]"),
      "[k] instruction \"insn0\" uses the iname \"j\", which is neither in its target nor reduced over: name it with "
      "{inames=j} or reduce over it");
  EXPECT_EQ(message_of(check_names, "kernel k\n{ [i] : 0 <= i < 4 }\ny[i] = sum(i, 1)"),
            "[k] instruction \"insn0\" reduces over the iname \"i\", which has a value there already");
  EXPECT_EQ(message_of(check_names, "kernel k\ny[0] = 1 {dep=late}\nz[0] = 1 {id=late}"),
            "[k] instruction \"insn0\" depends on \"late\", which is no earlier instruction");
  EXPECT_EQ(message_of(check_names, "kernel k\ninput x: f32[4]\nx[0] = 1"),
            "[k] instruction \"insn0\" writes the input x");
  EXPECT_EQ(message_of(check_names, "kernel k\noutput z: f32[4]\ny[0] = 1"), "[k] no instruction writes the output z");
  EXPECT_EQ(message_of(check_names, "kernel k\ninput x: f32[4, n]\ny[0] = x[0]"),
            "[k] instruction \"insn0\": x[0] has 1 subscripts, its shape [4, n] has 2 dimensions");
  // What the parser would not let through, but a pass that builds kernels may make.
  Kernel kernel = parse_kernel("kernel k\ny[0] = exp(1)");
  kernel.instructions[0].value.name = "erf";
  EXPECT_EQ(error_of([&] { check_names(kernel); }), "[k] instruction \"insn0\": unknown function \"erf\"");
  kernel.instructions[0].value.name = "pow";
  EXPECT_EQ(error_of([&] { check_names(kernel); }), "[k] instruction \"insn0\": pow has 1 arguments, wanted 2");
}

TEST(CheckBounds, Messages) {
  EXPECT_EQ(message_of(check_bounds,
                       "kernel transpose\ninput a: f32[n, n]\noutput out: f32[n, n]\n{ [i] : 0 <= i < n }\n"
                       "out[i, 0] = 1\nout[i, 1] = a[i, n]"),
            "[transpose] instruction \"insn1\" reads a[i, n] outside its shape [n, n] (dimension 1: index n, allowed 0 "
            "<= index "
            "< n; for example i = 0, n = 1)");
  EXPECT_EQ(message_of(check_bounds, "kernel k\noutput y: f32[n]\n{ [i] : 0 <= i < n }\ny[i - 1] = 1"),
            "[k] instruction \"insn0\" writes y[i - 1] outside its shape [n] (dimension 0: index i - 1, allowed 0 <= "
            "index < n; "
            "for example i = 0, n = 1)");
}

TEST(CheckBounds, ConditionsAndAssumptionsCount) {
  const std::string start = "kernel k\ninput x: f32[n]\n{ [i] : 0 <= i < n }\n{ [j] : 0 <= j < 10 }\n";
  auto passes = [&](const std::string& text) { return message_of(check_bounds, start + text).empty(); };
  EXPECT_FALSE(passes("y[i] = x[i + 1]"));
  EXPECT_TRUE(passes("y[i] = if(i + 1 < n, x[i + 1], 0)"));
  EXPECT_FALSE(passes("y[i] = if(i + 1 < n, 0, x[i + 1])"));
  EXPECT_TRUE(passes("y[i] = if(i + 1 >= n, 0, x[i + 1])"));
  EXPECT_TRUE(passes("y[i] = if(i + 1 >= n or x[i + 1] > 0, 0, 1)"));
  EXPECT_FALSE(passes("y[i] = if(i + 1 >= n and x[i + 1] > 0, 0, 1)"));
  EXPECT_TRUE(passes("y[i] = x[i + 1]  {if=i < n - 1}"));
  EXPECT_FALSE(passes("y[i] = sum(j, x[j])"));
  EXPECT_TRUE(passes("y[i] = sum(j, x[j], j < n)"));
  EXPECT_TRUE(passes("assume n >= 10\ny[i] = sum(j, x[j])"));
  EXPECT_TRUE(passes("y[i] = x[i // 2]"));
  EXPECT_FALSE(passes("y[i] = x[i * 2]"));
  EXPECT_TRUE(passes("y[i] = x[x[i + 0]]"));                 // depends on data
  EXPECT_FALSE(passes("y[i] = x[x[i + 1]]"));                // but what is inside is checked
  EXPECT_FALSE(passes("y[i] = if(x[i] > 0, x[i + 1], 0)"));  // data proves nothing
}

TEST(CheckAssumptions, SomeSizesMustFit) {
  EXPECT_EQ(message_of(check_assumptions, "kernel k\nparameter n\nassume n >= 1\n{ [i] : 0 <= i < n }\ny[i] = 1"), "");
  EXPECT_EQ(
      message_of(check_assumptions, "kernel k\nparameter n\nassume n >= 1 and n < 1\n{ [i] : 0 <= i < n }\ny[i] = 1"),
      "[k] no sizes are as it assumes: n >= 1 and n < 1");
}

TEST(CheckWriteRaces, Messages) {
  EXPECT_EQ(message_of(check_write_races, "kernel k\n{ [i, j] : 0 <= i, j < n }\nout[i] = a[i, j]  {inames=j}"),
            "[k] instruction \"insn0\" writes out[i] within i, j, but the subscripts leave out j: every j writes the "
            "same element "
            "of out; reduce over j, or put it into the subscripts");
  EXPECT_EQ(message_of(check_write_races, "kernel k\n{ [i] : 0 <= i < n }\nout[i // 2] = 1"),
            "[k] instruction \"insn0\" writes the same element out[i // 2] for different values of i");
}

TEST(CheckWriteRaces, WhatIsAllowed) {
  auto passes = [](const std::string& text) { return message_of(check_write_races, text).empty(); };
  EXPECT_TRUE(passes("{ [i, j] : 0 <= i < n and j = 3 }\nout[i] = a[i, j]  {inames=j}"));
  EXPECT_TRUE(passes("{ [i, j] : 0 <= i < n and 0 <= j < 2 }\nout[2 * i + j] = 1"));
  EXPECT_FALSE(passes("{ [i, j] : 0 <= i < n and 0 <= j < 3 }\nout[2 * i + j] = 1"));
  EXPECT_TRUE(passes("{ [i, j] : 0 <= i, j < 8 }\nout[i // 4, i mod 4, j] = 1"));
  EXPECT_TRUE(passes("{ [i] : 0 <= i < n }\nout[ids[i]] = 1"));  // the data tells them apart
  EXPECT_FALSE(passes("{ [i, j] : 0 <= i, j < n }\nout[ids[i]] = 1  {inames=j}"));
  // A recurrence in loop order; not if its inames are tasks.
  const std::string update = "{ [i, j] : 0 <= i, j < n }\nout[i] = out[i] + a[i, j]  {inames=j}";
  EXPECT_TRUE(passes(update));
  EXPECT_TRUE(passes(update + "\ntag i = task"));
  EXPECT_FALSE(passes(update + "\ntag j = task"));
}

TEST(CheckAccessOrder, WhatIsInOrder) {
  auto passes = [](const std::string& text) { return message_of(check_access_order, text).empty(); };
  const std::string domain = "{ [i, j, k, l] : 0 <= i, j, k, l < n }\n";
  EXPECT_TRUE(passes(domain + "a[i] = 1\nb[i] = a[i]"));
  // In one loop, a[j] is not there yet for later j.
  EXPECT_FALSE(passes(domain + "a[i] = x[i]\nb[i] = sum(j, a[j])"));
  EXPECT_TRUE(passes(domain + "a[i] = x[i]\nb[k] = sum(j, a[j])"));
  EXPECT_FALSE(passes(domain + "h[i, j] = x[i]\nb[i, j] = sum(k, h[i, k])"));
  EXPECT_TRUE(passes(domain + "h[i, j] = x[i]\nb[i, l] = sum(k, h[i, k])"));
  // A recurrence: each b[i] is written one step before it is read.
  EXPECT_TRUE(passes("{ [i] : 1 <= i < n }\nb[0] = 1\na[i] = b[i - 1]\nb[i] = a[i] * 2"));
  EXPECT_FALSE(passes("{ [i] : 1 <= i < n }\nb[0] = 1\na[i] = b[i - 1]\nb[i] = a[i] * 2\ntag i = task"));
  EXPECT_FALSE(passes("{ [i] : 1 <= i < n }\nb[i] = b[i - 1]\nb[0] = 1\ntag i = task"));
  EXPECT_TRUE(passes("{ [i] : 0 <= i < n }\na[i] = x[i]\nb[i] = a[i]\ntag i = task"));
}

// Nothing orders the tasks of one operator: what all of them read none may write.
TEST(CheckAccessOrder, WhatEveryTaskReadsNoTaskWrites) {
  auto refusal = [](const std::string& text) { return message_of(check_access_order, "kernel k\n" + text); };
  const std::string sum = "inout x: f32[n]\n{ [h, k] : 0 <= h, k < n }\ns[0] = sum(k, x[k])\nx[h] = x[h] * s[0]";
  EXPECT_EQ(refusal(sum), "");
  EXPECT_EQ(
      refusal(sum + "\ntag h = task"),
      "[k] instruction \"insn0\" reads x[k] in every task, since h is tagged task and does not stand in it, while "
      "\"insn1\" writes x[h]: one task finds what another has made of it; leave h out of the task axes, or write "
      "another tensor");
  EXPECT_EQ(refusal("inout x: f32[1]\n{ [h, k] : h = 0 and k = 0 }\ns[0] = sum(k, x[k])\nx[h] = x[h] * s[0]\n"
                    "tag h = task"),
            "")
      << "there is one task";
  // An output is no better: the others' tiles are not there yet.
  const std::string twice =
      "output y: f32[n, n]\noutput z: f32[n]\n{ [t, h, k] : 0 <= t, h, k < n }\ny[t, h] = a[t, h]\n"
      "z[t] = sum(k, y[t, k])";
  EXPECT_EQ(refusal(twice + "\ntag t = task"), "");
  EXPECT_NE(refusal(twice + "\ntag h = task"), "");
  // Every task adds one.
  const std::string count = "inout x: f32[n]\n{ [t, h] : 0 <= t, h < n }\ny[t, h] = x[t]\nx[t] = x[t] + 1";
  EXPECT_EQ(refusal(count + "\ntag t = task"), "");
  EXPECT_NE(refusal(count + "\ntag h = task"), "");
  // Every task writes the same, and reads it afterwards.
  EXPECT_EQ(refusal("output r: f32[n]\n{ [t, h] : 0 <= t, h < n }\nr[t] = a[t]\ny[t, h] = r[t]\ntag h = task"), "");
}

TEST(CheckAccessOrder, TemporariesAreWrittenBeforeTheyAreRead) {
  EXPECT_EQ(message_of(check_access_order, "kernel k\n{ [i] : 0 <= i < n }\ns[i] = 1\ny[i] = s[i + 1]"),
            "[k] instruction \"insn1\" reads s[i + 1] of the temporary s, elements of which nothing writes before");
  EXPECT_NE(message_of(check_access_order, "y[0] = s[0]\ns[0] = 1"), "");
  EXPECT_EQ(message_of(check_access_order, "s[0] = 1\ny[0] = s[0]"), "");
  EXPECT_EQ(message_of(check_access_order, "{ [i] : 0 <= i < n }\ns[0] = 0\ns[i + 1] = s[i] + x[i]\ny[i] = s[i]"), "");
}

}  // namespace
}  // namespace megalith::loop
