// Every transformation: what it gives, that it means the same, and what it refuses.
#include "megalith/loop/transform/transform.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "loop/kernels.h"
#include "loop/support.h"
#include "megalith/loop/bind.h"
#include "megalith/loop/check.h"
#include "megalith/loop/domain.h"
#include "megalith/loop/infer.h"
#include "megalith/loop/transform/schedule.h"

namespace megalith::loop {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Kernel typed(const std::string& text) {
  Kernel kernel = parse_kernel(text);
  infer_types(kernel);
  infer_shapes(kernel);
  return kernel;
}

// Random values for all inputs; whole numbers below `most` for integers.
Arrays random_inputs(const Kernel& kernel, const Binding& binding, int most) {
  Arrays arrays;
  const Kernel bound = bind_sizes(kernel, binding);
  unsigned seed = 1;
  for (const TensorArgument& tensor : bound.tensors) {
    if (tensor.role != Role::input && tensor.role != Role::inout) continue;
    std::vector<int64_t> shape;
    for (const Expr& size : tensor.shape) shape.push_back(*constant_value(size));
    Array& array = arrays[tensor.name] = random_array(shape, ++seed);
    if (!dtype_is_float(*tensor.dtype))
      for (double& value : array.values) value = std::floor((value + 1) / 2 * most);
  }
  return arrays;
}

// `after` checks, prints and reads back, and computes what `before` does.
void expect_same(const Kernel& before, const Kernel& after, const Binding& binding, int most = 4) {
  SCOPED_TRACE(print(after));
  check_kernel(bind(after, binding));
  EXPECT_EQ(print(parse_kernel(print(after))), print(after));
  Arrays expected = random_inputs(before, binding, most), found = expected;
  interpret(before, binding, expected);
  interpret(after, binding, found);
  for (const TensorArgument& tensor : before.tensors) {
    if (tensor.role != Role::output && tensor.role != Role::inout) continue;
    ASSERT_TRUE(found.contains(tensor.name)) << tensor.name;
    const Array &want = expected.at(tensor.name), &have = found.at(tensor.name);
    ASSERT_EQ(have.values.size(), want.values.size()) << tensor.name;
    for (size_t i = 0; i < want.values.size(); ++i)
      ASSERT_NEAR(have.values[i], want.values[i], 1e-9 * (1 + std::abs(want.values[i]))) << tensor.name << " at " << i;
  }
}

const Binding kSmall = {{{"T", 3}, {"H", 10}, {"K", 10}, {"N", 7}, {"n", 4}, {"m", 5}, {"l", 9}}, {{"eps", 1e-5}}};

// ---- names --------------------------------------------------------------------------------------------------------------

TEST(Transform, RenamesWhateverHasAName) {
  const Kernel before = typed(kRmsNorm);
  for (const char* from : {"t", "k", "ss"}) expect_same(before, rename(before, from, "renamed"), kSmall);
  const Kernel after = rename(rename(rename(before, "x", "z"), "H", "width"), "eps", "epsilon");
  EXPECT_THAT(print(after),
              AllOf(HasSubstr("input z: bf16[T, width]"), HasSubstr("attribute epsilon ="),
                    HasSubstr("rsqrt(ss[t] / width + epsilon)"), HasSubstr("width >= 1"), HasSubstr("0 <= k < width")));
  EXPECT_THAT(error_of([&] { rename(before, "x", "weight"); }), HasSubstr("[rmsnorm] the name \"weight\" is taken"));
  EXPECT_THAT(error_of([&] { rename(before, "q", "r"); }), HasSubstr("there is no \"q\""));
  EXPECT_THAT(error_of([&] { rename(before, "x", "sum"); }), HasSubstr("a word of loop kernels"));
  EXPECT_THAT(error_of([&] { rename(before, "x", "1x"); }), HasSubstr("is no name"));
}

TEST(Transform, InamesBecomeOneWhereTheyTakeTheSameValues) {
  const Kernel before = typed(
      "kernel two\ninput x: f32[n]\noutput y: f32[n]\noutput z: f32[n]\n{ [i] : 0 <= i < n }\n{ [j] : 0 <= j < n }\n"
      "{ [k] : 0 <= k < n - 1 }\ny[i] = 2 * x[i]\nz[j] = y[j] + 1\n");
  const Kernel after = unify_inames(before, "j", "i");
  expect_same(before, after, kSmall);
  EXPECT_THAT(print(after), AllOf(HasSubstr("z[i] = y[i] + 1"), Not(HasSubstr("[j]"))));
  EXPECT_THAT(error_of([&] { unify_inames(before, "j", "k"); }), HasSubstr("takes other values than \"k\""));
  EXPECT_THAT(error_of([&] { unify_inames(typed(kMatmul), "i", "j"); }), HasSubstr("takes other values"));
  // All values of k are those of j, but not for each i. Found by megalith loops --random.
  const Kernel triangle = typed(
      "input x: f32[n, n]\noutput y: f32[n]\noutput z: f32[n]\nassume n >= 1\n{ [i] : 0 <= i < n }\n{ [j] : 0 <= j < n "
      "}\n"
      "{ [k] : 0 <= k <= i }\ny[i] = sum(k, x[i, k])\nz[j] = x[j, j]\n");
  EXPECT_THAT(error_of([&] { unify_inames(triangle, "k", "j"); }),
              HasSubstr("\"k\" takes other values than \"j\" in insn0"));
  expect_same(triangle, unify_inames(triangle, "j", "k"), kSmall);  // z runs over all values of k
}

TEST(Transform, TagsAnIname) {
  const Kernel after = tag_iname(typed(kMatmul), "i", InameTag::task);
  EXPECT_EQ(after.tags.at("i"), InameTag::task);
  EXPECT_THAT(error_of([&] { tag_iname(after, "q", InameTag::task); }),
              HasSubstr("no iname \"q\": want one of i, j, k"));
}

// ---- loops --------------------------------------------------------------------------------------------------------------

TEST(Transform, SplitsAnIname) {
  for (const char* text : {kRmsNorm, kLinear, kMatmul})
    for (const int64_t factor : {1, 3, 16})
      for (const std::string& iname : typed(text).inames()) {
        const Kernel before = typed(text);
        expect_same(before, split_iname(before, iname, factor, "outer", "inner"), kSmall);
      }
  const Kernel after = split_iname(tag_iname(typed(kLinear), "n", InameTag::task), "n", 16, "n_tile", "n_row");
  EXPECT_THAT(print(after), AllOf(HasSubstr("0 <= (16 * n_tile + n_row) < N"), HasSubstr("0 <= n_row < 16"),
                                  HasSubstr("y[t, 16 * n_tile + n_row]"), HasSubstr("w[16 * n_tile + n_row, k]")));
  EXPECT_EQ(after.tags.at("n_tile"), InameTag::task);
}

TEST(Transform, SplitsWhatIsOverATriangleAndAUnion) {
  const Kernel triangle = typed(
      "kernel prefix\ninput x: f32[n]\noutput y: f32[n]\n{ [i, j] : 0 <= i < n and 0 <= j <= i }\ny[i] = sum(j, "
      "x[j])\n");
  for (const char* iname : {"i", "j"})
    expect_same(triangle, split_iname(triangle, iname, 3, "o", "p"), {{{"n", 11}}, {}});
  const Kernel gaps = typed(
      "kernel gaps\ninput x: f32[n]\noutput y: f32[n]\n{ [i] : (0 <= i < 3 or 5 <= i < n) and i mod 2 = 0 }\n"
      "{ [j] : 0 <= j < n }\ny[j] = 0\ny[i] = x[i]\n");
  expect_same(gaps, split_iname(gaps, "i", 4, "o", "p"), {{{"n", 12}}, {}});
}

TEST(Transform, AnArgmaxIsNotSplit) {
  const Kernel kernel = typed(
      "kernel first\ninput x: f32[n, m]\noutput y: i32[n]\n{ [i, j] : 0 <= i < n and 0 <= j < m }\n"
      "y[i] = argmax(j, x[i, j])\n");
  EXPECT_THAT(error_of([&] { split_iname(kernel, "j", 2, "o", "p"); }), HasSubstr("cannot be split"));
  EXPECT_THAT(error_of([&] { split_iname(kernel, "i", 0, "o", "p"); }), HasSubstr("want at least 1"));
  EXPECT_THAT(error_of([&] { split_iname(kernel, "i", 2, "o", "o"); }), HasSubstr("cannot be outer and inner"));
  EXPECT_THAT(error_of([&] { split_iname(kernel, "i", 2, "j", "p"); }), HasSubstr("the name \"j\" is taken"));
}

TEST(Transform, SplitsAReduction) {
  for (const char* reduce : {"sum", "max", "min"}) {
    const Kernel before = typed(
        fmt::format("kernel rows\ninput x: f32[n, m]\noutput y: f32[n]\n{{ [i, j] : 0 <= i < n and 0 <= j < m }}\n"
                    "y[i] = 1 + {}(j, x[i, j] * x[i, j], x[i, j] > 0)\n",
                    reduce));
    const Kernel after = split_reduction(split_iname(before, "j", 2, "slice", "in"), {"slice"}, "part");
    expect_same(before, after, kSmall);
    EXPECT_THAT(print(after), AllOf(HasSubstr(fmt::format("part[i, slice] = {}(in, ", reduce)),
                                    HasSubstr(fmt::format("y[i] = 1 + {}(slice, part[i, slice])", reduce))));
  }
  const Kernel linear = split_iname(typed(kLinear), "k", 4, "s", "p");
  expect_same(typed(kLinear), split_reduction(linear, {"s"}, "part"), kSmall);
  EXPECT_THAT(error_of([&] { split_reduction(linear, {"s", "p"}, "part"); }), HasSubstr("runs over nothing else"));
  EXPECT_THAT(error_of([&] { split_reduction(linear, {"t"}, "part"); }), HasSubstr("no reduction runs over t"));
  EXPECT_THAT(error_of([&] { split_reduction(linear, {"s"}, "x"); }), HasSubstr("\"x\" is taken"));
  const Kernel nested = typed(
      "kernel nested\ninput x: f32[n, n, n]\noutput y: f32[n]\n{ [i, j, o, k] : 0 <= i, j, o, k < n }\n"
      "y[i] = sum(j, sum((o, k), x[j, o, k]))\n");
  EXPECT_THAT(error_of([&] { split_reduction(nested, {"o"}, "part"); }), HasSubstr("inside of a reduction over j"));
}

// ---- expressions --------------------------------------------------------------------------------------------------------

TEST(Transform, SubstitutesATemporary) {
  const Kernel before = typed(kRmsNorm), after = substitute(before, "ss");
  expect_same(before, after, kSmall);
  EXPECT_EQ(after.find_tensor("ss"), nullptr);
  EXPECT_EQ(after.instructions.size(), 1u);
}

// Each read has a reduction of its own, over what its subscripts say.
TEST(Transform, SubstitutesAReductionOverATriangle) {
  const Kernel before = typed(
      "kernel prefixes\ninput x: f32[n]\noutput y: f32[n]\n{ [i, j, k] : 0 <= i < n and 0 <= j <= i and 0 <= k < n }\n"
      "s[i] = sum(j, x[j])\ny[k] = s[k] * s[n - 1 - k]\n");
  const Kernel after = substitute(before, "s");
  expect_same(before, after, {{{"n", 9}}, {}});
}

TEST(Transform, ANarrowTemporaryRoundsInACast) {
  const Kernel before = typed(
      "kernel narrow\ninput x: f32[n]\noutput y: f32[n]\ntemporary h: bf16[n]\n{ [i] : 0 <= i < n }\nh[i] = x[i] * 3\n"
      "y[i] = h[i] + 1\n");
  EXPECT_THAT(print(substitute(before, "h")), HasSubstr("y[i] = bf16(x[i] * 3) + 1"));
}

TEST(Transform, WhatCannotBeSubstitutedIsSaid) {
  const auto error = [](const std::string& instructions, const std::string& temporary = "h") {
    return error_of([&] {
      substitute(typed("kernel it\ninput x: f32[n]\noutput y: f32[n]\ninout z: f32[n]\n"
                       "{ [i, j] : 0 <= i < n and 0 <= j < n }\n" +
                       instructions),
                 temporary);
    });
  };
  EXPECT_THAT(error("h[i] = x[i]\ny[i] = h[i]\nz[i] = 1\n", "y"), HasSubstr("\"y\" is no temporary"));
  EXPECT_THAT(error("h[i] = x[i]\nh[j] = h[j] + 1\ny[j] = h[j]\nz[i] = 1\n"), HasSubstr("two instructions assign"));
  EXPECT_THAT(error("h[i] = x[i]  {if=i < 3}\ny[i] = h[i]\nz[i] = 1\n"), HasSubstr("under a condition"));
  EXPECT_THAT(error("h[i + 1] = x[i]\ny[i] = h[i + 1]\nz[i] = 1\n"), HasSubstr("are not an iname each"));
  EXPECT_THAT(error("h[i] = z[i]\nz[i] = 0\ny[i] = h[i]\n"), HasSubstr("changes \"z\", from which \"h\" was made"));
  EXPECT_THAT(error("y[i] = x[i]\nz[i] = 1\n"), HasSubstr("there is no tensor \"h\""));
}

TEST(Transform, HoistsFactorsOutOfASum) {
  const Kernel before = typed(
      "kernel scaled\ninput x: f32[n, m]\ninput w: f32[m]\ninput s: f32[n]\noutput y: f32[n]\n"
      "{ [i, k] : 0 <= i < n and 0 <= k < m }\ny[i] = 1 + sum(k, x[i, k] * s[i] / (s[i] + 3) * w[k], x[i, k] > 0) / "
      "2\n");
  const Kernel after = hoist_factors(before, before.instructions[0].id);
  expect_same(before, after, kSmall);
  EXPECT_THAT(print(after), HasSubstr("sum(k, x[i, k] * w[k], x[i, k] > 0) * s[i] / (s[i] + 3)"));
  EXPECT_THAT(error_of([&] { hoist_factors(after, after.instructions[0].id); }), HasSubstr("no sum in"));
  EXPECT_THAT(error_of([&] { hoist_factors(after, "other"); }), HasSubstr("there is no instruction \"other\""));
}

// ---- several kernels ----------------------------------------------------------------------------------------------------

// rmsnorm(x) w = (x * weight) w * rsqrt(...): the norm is deferred, by rules that know nothing of norms.
TEST(Transform, FusesANormWithAProduct) {
  const Kernel norm = rename(
      rename(typed(std::string(kRmsNorm).replace(std::string(kRmsNorm).find("output y: bf16"), 14, "output y: f32")),
             "H", "K"),
      "weight", "scale");
  const Kernel linear = rename(typed(kLinear), "y", "out");
  const Kernel fused = fuse(norm, linear, {{"x", "y"}});
  EXPECT_EQ(fused.name, "rmsnorm_linear");
  EXPECT_EQ(fused.find_tensor("y")->role, Role::temporary);

  Arrays arrays = random_inputs(fused, kSmall, 4), first = arrays;
  interpret(norm, kSmall, first);
  first["x"] = first.at("y");
  interpret(linear, kSmall, first);
  const auto expect_out = [&](const Kernel& kernel) {
    check_kernel(bind(kernel, kSmall));
    Arrays found = arrays;
    interpret(kernel, kSmall, found);
    for (size_t i = 0; i < first.at("out").values.size(); ++i)
      EXPECT_NEAR(found.at("out").values[i], first.at("out").values[i], 1e-9) << print(kernel);
  };
  expect_out(fused);
  const Kernel inlined = substitute(fused, "y");
  expect_out(inlined);
  const Kernel deferred = hoist_factors(inlined, inlined.instructions.back().id);
  expect_out(deferred);
  EXPECT_THAT(print(deferred), HasSubstr("* rsqrt(ss["));

  const Kernel kept = fuse(norm, linear, {{"x", "y"}}, {"y"});
  EXPECT_EQ(kept.find_tensor("y")->role, Role::output);
  expect_out(kept);

  Schedule schedule(norm, {{"linear", linear}});
  for (const char* line : {"fuse linear x=y", "# a comment", "substitute  y", "hoist_factors insn2"})
    schedule = schedule.then(line);
  EXPECT_EQ(print(schedule.kernel()), print(deferred));
  EXPECT_EQ(schedule.text(), "fuse linear x=y\nsubstitute y\nhoist_factors insn2\n");
  const Schedule again = Schedule::parse(norm, schedule.text(), {{"linear", linear}});
  EXPECT_EQ(print(again.kernel()), print(deferred));
  EXPECT_EQ(again.hash(), schedule.hash());
  EXPECT_NE(again.then("rename k j").hash(), schedule.hash());
}

TEST(Transform, WhatCannotBeFusedIsSaid) {
  const Kernel norm = typed(kRmsNorm), linear = typed(kLinear);
  EXPECT_THAT(error_of([&] {
                fuse(norm, linear, {{"x", "y"}});
              }),
              AllOf(HasSubstr("\"x\" f32[T, K] is not \"y\" bf16[T, H]")));
  EXPECT_THAT(error_of([&] { fuse(norm, linear, {}); }), HasSubstr("no input is given that comes from rmsnorm"));
  EXPECT_THAT(error_of([&] { fuse(norm, linear, {{"y", "y"}}); }), HasSubstr("\"y\" is no input"));
  EXPECT_THAT(error_of([&] { fuse(norm, linear, {{"x", "x"}}); }), HasSubstr("\"x\" is no output"));
  EXPECT_THAT(error_of([&] { fuse(linear, linear, {{"x", "y"}}); }), HasSubstr("f32[T, K] is not \"y\" f32[T, N]"));
}

// ---- how tensors lie ----------------------------------------------------------------------------------------------------

TEST(Transform, AxesAreOnlyAnotherPlace) {
  const Kernel before = typed(kLinear);
  const Kernel turned = permute_axes(before, "w", {1, 0});
  EXPECT_THAT(print(turned), AllOf(HasSubstr("w: bf16[K, N]"), HasSubstr("w[k, n]")));
  const Kernel split = split_axis(before, "w", 0, 4);
  EXPECT_THAT(print(split), AllOf(HasSubstr("w[n // 4, n mod 4, k]")));
  check_kernel(bind(turned, kSmall));
  check_kernel(bind(split, kSmall));

  Arrays arrays = random_inputs(before, kSmall, 4), expected = arrays, found = arrays;
  interpret(before, kSmall, expected);
  Array& w = found["w"] = Array::zeros({10, 7});
  for (int64_t n = 0; n < 7; ++n)
    for (int64_t k = 0; k < 10; ++k) element(found, "w", {k, n}) = element(arrays, "w", {n, k});
  interpret(turned, kSmall, found);
  EXPECT_EQ(found.at("y").values, expected.at("y").values);
  w = Array::zeros({2, 4, 10});
  for (int64_t n = 0; n < 7; ++n)
    for (int64_t k = 0; k < 10; ++k) element(found, "w", {n / 4, n % 4, k}) = element(arrays, "w", {n, k});
  interpret(split, kSmall, found);
  EXPECT_EQ(found.at("y").values, expected.at("y").values);

  // Of a temporary nobody else notices.
  const Kernel norm = typed(kRmsNorm);
  expect_same(norm, split_axis(norm, "ss", 0, 2), kSmall);
  EXPECT_THAT(error_of([&] { permute_axes(before, "w", {0, 0}); }), HasSubstr("are not those of \"w\", 0 to 1"));
  EXPECT_THAT(error_of([&] { split_axis(before, "w", 2, 4); }), HasSubstr("\"w\" has no axis 2"));
}

TEST(Transform, AVectorsAxisIsTheLastOne) {
  const Kernel before = typed(
      "input a: f32[4, n]\noutput c: f32[n]\n{ [i] : 0 <= i < n }\n"
      "c[i] = a[0, i] + a[1, i] * a[2, i] - a[3, i]\n");
  const Kernel vectors = vector_axis(before, "a", 0);
  EXPECT_THAT(print(vectors), AllOf(HasSubstr("a: f32[n, 4]"), HasSubstr("a[i, 1] * a[i, 2]")));
  EXPECT_THAT(error_of([&] { vector_axis(before, "a", 1); }), HasSubstr("axis 1 of \"a\" has n elements"));
  EXPECT_THAT(error_of([&] { vector_axis(before, "a", 2); }), HasSubstr("\"a\" has no axis 2"));
  const Kernel three = typed("input a: f32[3, n]\noutput c: f32[n]\n{ [i] : 0 <= i < n }\nc[i] = a[0, i]\n");
  EXPECT_THAT(error_of([&] { vector_axis(three, "a", 0); }), HasSubstr("has 3 elements: a vector has 2, 4, 8 or 16"));
}

TEST(Transform, AnAxisBecomesTensors) {
  const Kernel before = typed(
      "input a: f32[n, 3]\noutput c: f32[n, 2]\n{ [i] : 0 <= i < n }\n{ [k] : 0 <= k < 1 }\n"
      "c[i, 0] = a[i, 0] + a[i, 2]  {id=plus}\nc[i, k + 1] = a[i, 1] * a[i, 2]  {id=product}\n");
  const Kernel separate = separate_axis(separate_axis(before, "a", 1), "c", 1);
  EXPECT_THAT(print(separate), AllOf(HasSubstr("a_0: f32[n]"), HasSubstr("c_1: f32[n]"),
                                     HasSubstr("c_0[i] = a_0[i] + a_2[i]"), HasSubstr("c_1[i] = a_1[i] * a_2[i]")));
  const Binding five = {{{"n", 5}}, {}};
  Arrays arrays = random_inputs(before, five, 4), parts;
  for (int64_t i = 0; i < 3; ++i) {
    Array& part = parts[fmt::format("a_{}", i)] = Array::zeros({5});
    for (int64_t e = 0; e < 5; ++e) part.values[static_cast<size_t>(e)] = element(arrays, "a", {e, i});
  }
  interpret(before, five, arrays);
  interpret(separate, five, parts);
  for (int64_t i = 0; i < 2; ++i)
    for (int64_t e = 0; e < 5; ++e)
      EXPECT_EQ(element(parts, fmt::format("c_{}", i), {e}), element(arrays, "c", {e, i})) << i << ", " << e;

  // Of a temporary nobody else notices; one of a single axis leaves single elements.
  const Kernel pair = typed(
      "input a: f32[n]\noutput c: f32[n]\n{ [i] : 0 <= i < n }\n"
      "t[i, 0] = a[i]  {id=one}\nt[i, 1] = 2 * t[i, 0]  {id=two, dep=one}\n"
      "c[i] = t[i, 0] + t[i, 1]  {dep=one:two}\n");
  expect_same(pair, separate_axis(pair, "t", 1), five);
  EXPECT_EQ(separate_axis(pair, "t", 1).find_tensor("t"), nullptr);
  const Kernel single = typed("input a: f32[2]\noutput c: f32[1]\nc[0] = a[0] - a[1]\n");
  EXPECT_THAT(print(separate_axis(single, "a", 0)), HasSubstr("c[0] = a_0[0] - a_1[0]"));

  const Kernel looped = typed(
      "input a: f32[n, 2]\noutput c: f32[n]\n{ [i] : 0 <= i < n }\n{ [k] : 0 <= k < 2 }\n"
      "c[i] = sum(k, a[i, k])  {id=both}\n");
  EXPECT_THAT(error_of([&] { separate_axis(looped, "a", 1); }),
              AllOf(HasSubstr("both takes k of axis 1 of \"a\", which has several values"), HasSubstr("peel")));
  EXPECT_THAT(error_of([&] { separate_axis(looped, "a", 0); }), HasSubstr("axis 0 of \"a\" has n elements"));
}

TEST(Transform, AllAxesHaveATag) {
  const Kernel before = typed(
      "input a: f32[n, 4, 2]\noutput c: f32[n]\n{ [i] : 0 <= i < n }\n"
      "c[i] = a[i, 0, 0] + a[i, 3, 1]\n");
  const auto tagged = [&](const std::string& tags) {
    return Schedule::parse(before, "tag_array_axes a " + tags).kernel();
  };
  EXPECT_THAT(print(tagged("N0 N1 N2")), HasSubstr("a: f32[2, 4, n]"));
  EXPECT_THAT(print(tagged("f f f")), HasSubstr("a: f32[2, 4, n]"));
  EXPECT_EQ(print(tagged("c c c")), print(before));
  EXPECT_THAT(print(tagged("N0 vec N1")), HasSubstr("a: f32[2, n, 4]"));
  EXPECT_THAT(print(tagged("N0 vec sep")), AllOf(HasSubstr("a_0: f32[n, 4]"), HasSubstr("a_0[i, 0] + a_1[i, 3]")));
  EXPECT_THAT(print(tagged("N0 sep sep")), AllOf(HasSubstr("a_1_3: f32[n]"), HasSubstr("a_0_0[i] + a_1_3[i]")));
  EXPECT_THAT(error_of([&] { tagged("N0 N1"); }), HasSubstr("2 tags for the 3 axes"));
  EXPECT_THAT(error_of([&] { tagged("N0 N0 N1"); }), HasSubstr("two axes of \"a\" have the level N0"));
  EXPECT_THAT(error_of([&] { tagged("N0 vec vec"); }), HasSubstr("two vector axes"));
  EXPECT_THAT(error_of([&] { tagged("N0 N1 rows"); }), HasSubstr("there is no axis tag \"rows\""));
  EXPECT_THAT(error_of([&] { tagged("c f N2"); }), HasSubstr("the level N2 (c f N2)"));
}

TEST(Transform, InamesThatNothingUsesGo) {
  const std::string text =
      "input x: f32[n]\noutput y: f32[n]\n{ [i, j] : 0 <= i < n and 0 <= j < i }\n{ [k] : 0 <= k < n }\n";
  const Kernel kernel = typed(text + "y[i] = 2 * x[i]\n");
  EXPECT_THAT(kernel.inames(), ElementsAre("i", "j", "k"));
  const Kernel without = Schedule::parse(kernel, "remove_unused_inames").kernel();
  EXPECT_THAT(without.inames(), ElementsAre("i"));
  expect_same(kernel, without, {{{"n", 5}}, {}});
  // What a sum runs over is used.
  EXPECT_THAT(remove_unused(typed(text + "y[i] = sum(j, x[j])\n")).inames(), ElementsAre("i", "j"));
}

// ---- scripts ------------------------------------------------------------------------------------------------------------

TEST(Schedule, ALineThatIsWrongIsNamed) {
  const Kernel kernel = typed(kLinear);
  const auto error = [&](const std::string& script) { return error_of([&] { Schedule::parse(kernel, script); }); };
  EXPECT_EQ(error("# nothing\n\nrename k j\nsplit_iname n 16 a b  # tiles\n"), "");
  EXPECT_THAT(error("\nturn k"), AllOf(HasSubstr("line 2: there is no transformation \"turn\""), HasSubstr("fuse")));
  EXPECT_THAT(error("split_iname n 16 a"), HasSubstr("want \"split_iname INAME FACTOR OUTER INNER\""));
  EXPECT_THAT(error("split_iname n x a b"), HasSubstr("\"x\" is no whole number"));
  EXPECT_THAT(error("fuse other x=y"), HasSubstr("there is no kernel \"other\" to fuse with"));
  EXPECT_THAT(error("tag_iname n warp"), HasSubstr("there is no tag \"warp\""));
  EXPECT_THAT(error("rename q k"), HasSubstr("line 1: [linear] there is no \"q\" to rename (\"rename q k\")"));
  EXPECT_THAT(error_of([&] { Schedule(kernel).then("rename q k"); }), HasSubstr("(\"rename q k\")"));
}

}  // namespace
}  // namespace megalith::loop
