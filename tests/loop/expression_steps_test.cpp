// What is computed twice and what numbers decide; the passes before a schedule; tiles that are written back; kernels that are
// repeated. Each step against the interpreter.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ranges>
#include <string>

#include "loop/support.h"
#include "megalith/loop/infer.h"
#include "megalith/loop/parallel.h"
#include "megalith/loop/stages.h"
#include "megalith/loop/text.h"
#include "megalith/loop/transform/preprocess.h"
#include "megalith/loop/transform/schedule.h"
#include "megalith/loop/transform/transform.h"

namespace megalith::loop {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Kernel typed_kernel(const std::string& text) {
  Kernel kernel = parse_kernel(text);
  infer_types(kernel);
  infer_shapes(kernel);
  return kernel;
}

Arrays some_inputs(const Kernel& kernel, const Binding& binding) {
  Arrays inputs;
  const Kernel bound = bind_sizes(kernel, binding);
  int seed = 0;
  for (const TensorArgument& tensor : bound.tensors) {
    if (tensor.role == Role::temporary || tensor.role == Role::output) continue;
    std::vector<int64_t> shape;
    for (const Expr& size : tensor.shape) shape.push_back(*constant_value(size));
    Array& array = inputs[tensor.name] = Array::zeros(shape);
    for (double& value : array.values) value = static_cast<double>(++seed * 37 % 101) / 8 - 5;
  }
  return inputs;
}

// The steps, and that what they give prints, reads, replays and computes the same.
Schedule same_after(const std::string& text, const std::string& steps, const Binding& binding) {
  const Schedule schedule = Schedule::parse(typed_kernel(text), steps);
  EXPECT_EQ(print(parse_kernel(print(schedule.kernel()))), print(schedule.kernel()));
  EXPECT_EQ(print(Schedule::parse(schedule.origin(), schedule.text()).kernel()), print(schedule.kernel()));
  const Arrays inputs = some_inputs(schedule.origin(), binding);
  Arrays wanted = inputs, found = inputs;
  interpret(schedule.origin(), binding, wanted);
  interpret(schedule.kernel(), binding, found);
  for (const auto& [name, array] : wanted)
    for (size_t i = 0; i < array.values.size(); ++i) {
      if (found.at(name).values[i] == array.values[i]) continue;
      EXPECT_NEAR(found.at(name).values[i], array.values[i], 1e-9) << name << " at " << i << "\n"
                                                                   << print(schedule.kernel());
    }
  return schedule;
}

std::string refusal_of(const std::string& kernel, const std::string& steps) {
  return error_of([&] { Schedule::parse(typed_kernel(kernel), steps); });
}

const std::string kVector =
    "input a: f32[n]\ninput b: f32[n]\noutput y: f32[n]\noutput z: f32[n]\nassume n >= 1\n{ [i] : 0 <= i < n }\n";

TEST(FoldConstants, NumbersAndWhatTheyDecide) {
  const auto folded = [](const std::string& value) {
    const std::string text =
        print(same_after(kVector + "y[i] = " + value + "\nz[i] = 0.0\n", "fold_constants", {{{"n", 5}}, {}}).kernel());
    const size_t at = text.find("y[i] = ") + 7;
    return text.substr(at, text.find('\n', at) - at);
  };
  EXPECT_EQ(folded("a[i] * (2 * 3 + 1)"), "a[i] * 7");
  EXPECT_EQ(folded("a[i] * (0.5 + 1)"), "a[i] * 1.5");
  EXPECT_EQ(folded("f32(-7 // 2 + -7 mod 3)"), "f32(-2)");
  EXPECT_EQ(folded("1 * a[i] / 1 - 0"), "a[i]");
  EXPECT_EQ(folded("if(1 < 2 and not 3 == 4, a[i], b[i])"), "a[i]");
  EXPECT_EQ(folded("if(a[i] > 0 or 1 > 0, a[i], b[i])"), "a[i]");
  EXPECT_EQ(folded("a[(i + 0) * 1]"), "a[i]");
  // -0 + 0 is 0, infinity times 0 is no number, and an error stays one.
  EXPECT_EQ(folded("a[i] + 0"), "a[i] + 0");
  EXPECT_EQ(folded("a[i] * 0"), "a[i] * 0");
  EXPECT_EQ(folded("a[i] + 1 / 0"), "a[i] + 1 / 0");
  const Kernel conditional = fold_constants(
      typed_kernel(kVector + "y[i] = a[i] {if=2 > 1}\nz[i] = sum(k, b[k], 0 < 1)\n{ [k] : 0 <= k < n }\n"));
  EXPECT_THAT(print(conditional), AllOf(Not(HasSubstr("if=")), HasSubstr("z[i] = sum(k, b[k])\n")));
  EXPECT_THAT(refusal_of(kVector + "y[i] = 1\nz[i] = 1\n", "fold_constants y"), HasSubstr("want \"fold_constants\""));
}

TEST(CommonSubexpressions, OfOneInstructionAndOfNeighbours) {
  const Schedule one = same_after(kVector + "y[i] = exp(a[i] * b[i]) + exp(a[i] * b[i]) / (a[i] * b[i])\nz[i] = 1\n",
                                  "common_subexpressions", {{{"n", 6}}, {}});
  EXPECT_THAT(print(one.kernel()),
              AllOf(HasSubstr("common_0[0] = a[i] * b[i]"), HasSubstr("common[0] = exp(common_0[0])"),
                    HasSubstr("y[i] = common[0] + common[0] / common_0[0]")))
      << print(one.kernel());
  const Schedule both = same_after(kVector + "y[i] = 1 + a[i] * b[i]\nz[i] = 2 - a[i] * b[i]\n",
                                   "common_subexpressions\nsplit i 4 -> o:g.0 p:l.0", {{{"n", 6}}, {}});
  EXPECT_THAT(print(both.kernel()),
              AllOf(HasSubstr("y[4 * o + p] = 1 + common[0]"), HasSubstr("z[4 * o + p] = 2 - common[0]")));
  EXPECT_EQ(make_parallel(both.kernel()).spaces.at("common"), Space::thread);
  // Sums, too, and only of the instructions that are named.
  const std::string sums =
      kVector +
      "y[i] = sum(k, a[k] * b[i]) * sum(k, a[k] * b[i])\nz[i] = a[i] * a[i] + a[i] * a[i]\n{ [k] : 0 <= k < n }\n";
  EXPECT_THAT(print(same_after(sums, "common_subexpressions", {{{"n", 4}}, {}}).kernel()),
              AllOf(HasSubstr("common[0] = sum(k, a[k] * b[i])"), HasSubstr("z[i] = common_0[0] + common_0[0]")));
  EXPECT_THAT(print(same_after(sums, "common_subexpressions insn0", {{{"n", 4}}, {}}).kernel()),
              HasSubstr("z[i] = a[i] * a[i] + a[i] * a[i]"));
  EXPECT_THAT(refusal_of(sums, "common_subexpressions insn7"), HasSubstr("there is no instruction \"insn7\""));
  // A vector has one for each of its elements.
  EXPECT_THAT(print(same_after(kVector + "y[i] = a[i] * b[i] + a[i] * b[i]\nz[i] = 1\n",
                               "split i 4 -> o v:vec\ncommon_subexpressions", {{{"n", 6}}, {}})
                        .kernel()),
              HasSubstr("common[v] = "));
}

TEST(CommonSubexpressions, NotWhatChangesOrIsNotComputed) {
  const auto text = [](const std::string& body, const std::string& steps) {
    return print(same_after(kVector + body, steps, {{{"n", 6}}, {}}).kernel());
  };
  // y is written in between; a side of a choice may not be evaluated; what a sum runs over has no value outside.
  EXPECT_THAT(text("y[i] = a[i] * 2\nz[i] = y[i] * 3\ny[i] = z[i] + y[i] * 3 {dep=insn1}\nz[i] = y[i] * 3\n",
                   "common_subexpressions"),
              AllOf(HasSubstr("common[0] = y[i] * 3"), HasSubstr("\nz[i] = y[i] * 3")));
  EXPECT_THAT(
      text("y[i] = if(i > 0, a[i - 1] * 2, 0) + if(i > 0, a[i - 1] * 2, 1)\nz[i] = 0.0\n", "common_subexpressions"),
      Not(HasSubstr("common")));
  EXPECT_THAT(
      text("y[i] = sum(k, a[k] * 2) + max(k, a[k] * 2)\nz[i] = 0.0\n{ [k] : 0 <= k < n }\n", "common_subexpressions"),
      Not(HasSubstr("common")));
  // But where one is evaluated always, all take it; a condition is the temporary's, too.
  EXPECT_THAT(text("y[i] = a[i] * b[i] + if(i > 0, a[i] * b[i], 1)\nz[i] = 0.0\n", "common_subexpressions"),
              HasSubstr("y[i] = common[0] + if(i > 0, common[0], 1)"));
  EXPECT_THAT(text("y[i] = 0.0\nz[i] = a[i]\ny[i] = a[i] * a[i] + a[i] * a[i] {if=b[i] > 0, dep=insn0}\n",
                   "common_subexpressions"),
              HasSubstr("common[0] = a[i] * a[i]  {id=common, if=b[i] > 0, inames=i}"));
  // Indices, casts and conditions are left to the compiler.
  EXPECT_THAT(text("y[i] = f32(i + 1) + f32(i + 1) + if(a[i] > 0, 1, 0) + if(a[i] > 0, 1, 0)\nz[i] = 0.0\n",
                   "common_subexpressions"),
              Not(HasSubstr("common[0] = i")));
}

TEST(Passes, OneAfterTheOther) {
  const auto passes = preprocess(parse_kernel(
      "input a: bf16[n]\noutput y\nassume n >= 1\n{ [i, j, k] : 0 <= i < n and 0 <= j < n and 0 <= k < n }\nt[i] "
      "= a[i] * (1 + 1)\ny[j] = sum(k, t[k]) + t[j] * a[j] + t[j] * a[j]\n"));
  ASSERT_EQ(passes.size(), 4u);
  EXPECT_EQ(passes[0].name, "types");
  EXPECT_THAT(passes[0].text, AllOf(HasSubstr("output y: f32[n]"), HasSubstr("temporary t: f32[n]")));
  EXPECT_EQ(passes[1].name, "common_subexpressions");
  EXPECT_THAT(passes[1].text, AllOf(HasSubstr("t[i] = a[i] * 2"), HasSubstr("common[0] = t[j] * a[j]")));
  EXPECT_EQ(passes[2].name, "dependences");
  // Per instance: the i-th product reads what the i-th instance wrote, a sum what all of them wrote.
  EXPECT_THAT(passes[2].text,
              AllOf(HasSubstr("common reads t[j] after insn0 writes t[i]: "), HasSubstr("insn0[i] -> common[j' = i]"),
                    HasSubstr("insn1 reads t[k] after insn0 writes t[i]: "), HasSubstr("insn0[i] -> insn1[j']")))
      << passes[2].text;
  EXPECT_EQ(passes[3].name, "domains");
  EXPECT_THAT(passes[3].text, AllOf(HasSubstr("= 0.0  {id=sum"), HasSubstr("+ t[k]"), Not(HasSubstr("sum(k"))))
      << passes[3].text;
  EXPECT_EQ(print(parse_kernel(print(passes[3].kernel))), print(passes[3].kernel));
}

TEST(Passes, AWrongKernelIsToldSo) {
  EXPECT_THAT(error_of([] {
                preprocess(
                    parse_kernel("input a: f32[n]\noutput y\nassume n >= 1\n{ [i, k] : 0 <= i, k < n }\n"
                                 "t[i] = a[i]\ny[i] = sum(k, t[k])\n"));
              }),
              HasSubstr("reads elements of the temporary t that nothing wrote before"));
}

TEST(RealiseReductions, WhereTheyMayLeave) {
  const std::string text = kVector +
                           "y[i] = sum(k, a[k]) * max(k, b[k]) + sum((j, k), a[j] * b[k])\nz[i] = if(a[i] > 0, sum(k, "
                           "b[k]), 0.0) + argmax(k, a[k])\n{ [j, k] : 0 <= j < n and 0 <= k < n }\n";
  const Kernel kernel = same_after(text, "realise_reductions", {{{"n", 5}}, {}}).kernel();
  EXPECT_THAT(print(kernel), AllOf(HasSubstr("if(a[i] > 0, sum(k, b[k]), 0.0) + argmax(k, a[k])"),
                                   Not(HasSubstr("max(k, b[k])")), Not(HasSubstr("sum((j")), HasSubstr("= max(sum")));
}

const std::string kDots =
    "kernel dots\ninput a: f32[n, m]\ninput b: f32[n, m]\noutput y: f32[n]\nassume n >= 1 and m >= 1\n"
    "{ [i, k] : 0 <= i < n and 0 <= k < m }\ny[i] = sum(k, a[i, k] * b[i, k])\n";

// In sequence, by lanes, by a tree in shared memory, over blocks.
TEST(RealiseReductions, AsTheTagsOfTheirInamesSay) {
  const auto realised = [](const std::string& steps) {
    const Binding binding{{{"n", 3}, {"m", 21}}, {}};
    const Schedule schedule = same_after(kDots, steps, binding);
    const Schedule done = same_after(kDots, steps + "realise_reductions\n", binding);
    // The pass does the same, and code is written of nothing else.
    const auto passes = preprocess(schedule.kernel());
    EXPECT_EQ(passes.back().text, print(done.kernel()));
    EXPECT_THAT(passes.back().text, Not(HasSubstr("sum(")));
    return done.kernel();
  };
  const auto stages_of = [](const Kernel& kernel) { return split_stages(kernel); };

  const Kernel in_sequence = realised("split k 4 -> k_o k_i:unr\n");
  EXPECT_THAT(print(in_sequence), AllOf(HasSubstr("sum_0[0] = sum_0[0] + "), HasSubstr("inames=i:k_o:k_i")));

  const Kernel tree = realised("split k 4 -> k_o k_i:l.0\n");
  EXPECT_THAT(print(tree), AllOf(HasSubstr("part[k_i_2] = part[k_i_2] + part[k_i_2 + 2]"),
                                 HasSubstr("part[k_i_1] = part[k_i_1] + part[k_i_1 + 1]"), HasSubstr("y[i] = part[0]"),
                                 HasSubstr("tag k_i_2 = l.0"), HasSubstr("sum_0[k_i] = sum_0[k_i] + ")));
  EXPECT_EQ(make_parallel(tree).spaces.at("part"), Space::block);
  EXPECT_EQ(make_parallel(tree).num_threads[3], 4);

  const Kernel lanes = realised("split k 32 -> k_o k_i:lane\n");
  EXPECT_THAT(print(lanes), HasSubstr("temporary part: f32[32] lanes"));
  EXPECT_EQ(make_parallel(lanes).spaces.at("part"), Space::warp);

  const Kernel blocks = realised("split k 4 -> k_o:g.0 k_i\n");
  EXPECT_THAT(print(blocks), AllOf(HasSubstr("\nbarrier\n"), HasSubstr("tag k_o = g.0"), Not(HasSubstr("_all = g.0"))));
  ASSERT_EQ(stages_of(blocks).size(), 2u);
  EXPECT_FALSE(make_parallel(stages_of(blocks)[1]).has_axis[0]);

  // The lanes of warps of blocks.
  const Kernel all = realised("split k 256 -> k_b:g.0 k_i\nsplit k_i 64 -> k_o k_j\nsplit k_j 32 -> k_w:w k_l:lane\n");
  ASSERT_EQ(stages_of(all).size(), 2u);
  const Parallel first = make_parallel(stages_of(all)[0]);
  EXPECT_EQ(first.num_threads[3] * first.num_threads[4], 64);
  EXPECT_EQ(std::ranges::count(std::views::values(first.spaces), Space::warp), 1);
  EXPECT_EQ(std::ranges::count(std::views::values(first.spaces), Space::block), 1);
}

TEST(RealiseReductions, TagsOfWhatIsUsedElsewhereAndWhatCannotBe) {
  const std::string two = kDots + "output z: i32[n]\nz[i] = argmax(k, b[i, k])\n";
  const Schedule both = same_after(two, "assume m <= 40\ntag k l.0\n", {{{"n", 3}, {"m", 21}}, {}});
  const Kernel kernel = realise_dealt_out(both.kernel());
  EXPECT_THAT(print(kernel), AllOf(HasSubstr("part_0"), Not(HasSubstr("argmax")), Not(HasSubstr("sum("))));
  EXPECT_EQ(print(realise_dealt_out(kernel)), print(kernel));
  EXPECT_THAT(
      refusal_of(kDots, "tag k l.0"),
      AllOf(HasSubstr("instruction \"insn0\" reduces over k, which is tagged l.0, and no thread has a part of a sum: "),
            HasSubstr("say how many lanes there are")));
  EXPECT_THAT(refusal_of(kDots, "tag k g.0"), HasSubstr("runs over nothing else"));
  EXPECT_THAT(refusal_of(kDots + "output z: f32[n]\nz[i] = if(a[i, 0] > 0, sum(k, b[i, k]), 0.0)\n",
                         "assume m <= 40\ntag k l.0"),
              AllOf(HasSubstr("\"insn1\" reduces over k"), HasSubstr("stands inside of a condition")));
}

TEST(RealiseReductions, SeveralOfOneInstructionOverOneIname) {
  const std::string three =
      "kernel three\ninput a: f32[n, m]\noutput y: f32[n]\nassume n >= 1 and m >= 1\n"
      "{ [i, k] : 0 <= i < n and 0 <= k < m }\n"
      "y[i] = sum(k, a[i, k]) * max(k, a[i, k] * a[i, k]) + sum(k, 2 * a[i, k])\n";
  for (const char* steps : {"split k 8 -> k_o k_l:lane\n", "tag i g.0\nsplit k 8 -> k_o k_t:l.0\n",
                            "split k 4 -> k_b:g.0 k_i\n", "split k 64 -> k_o k_i\nsplit k_i 32 -> k_w:w k_l:lane\n"}) {
    const Schedule done = same_after(three, std::string(steps) + "realise_reductions\n", {{{"n", 3}, {"m", 70}}, {}});
    EXPECT_THAT(print(done.kernel()), AllOf(HasSubstr("part_1"), Not(HasSubstr("* max(")))) << steps;
  }
}

const std::string kAdding =
    "kernel adding\ninput a: f32[n, l]\ninput b: f32[l, m]\noutput c: f32[n, m]\nassume n >= 1 and m >= 1 and l >= 1\n"
    "{ [i, j, k] : 0 <= i < n and 0 <= j < m and 0 <= k < l }\n{ [i0, j0] : 0 <= i0 < n and 0 <= j0 < m }\n"
    "c[i0, j0] = 1\nc[i, j] = c[i, j] + a[i, k] * b[k, j]  {inames=k, dep=insn0}\n";

// A tile of c while it is added to. It is read before, since another loop wrote it; of an output that is only written it is not.
TEST(Buffer, ATileThatIsAddedTo) {
  const std::string tiles = "split i 4 -> i_o i_i, j 3 -> j_o j_i\norder i_o j_o k i_i j_i\n";
  EXPECT_THAT(refusal_of(kAdding, tiles + "buffer c[i_i, j_i] -> c_s"), HasSubstr("are not next to each other"));
  std::string inout = kAdding;
  inout.replace(inout.find("output c"), 8, "inout c");
  inout.erase(inout.find("c[i0, j0]"), inout.find("c[i, j]") - inout.find("c[i0, j0]"));
  inout.erase(inout.find(", dep=insn0"), 11);
  inout.erase(inout.find("{ [i0"), inout.find("c[i, j]") - inout.find("{ [i0"));
  for (const int64_t n : {8, 7}) {
    const Schedule schedule =
        same_after(inout, tiles + "buffer c[i_i, j_i] -> c_s p q", {{{"n", n}, {"m", 5}, {"l", 3}}, {}});
    const std::string text = print(schedule.kernel());
    EXPECT_THAT(text, AllOf(HasSubstr("c_s[p, q] = c[4 * i_o + p, 3 * j_o + q]  {id=c_s, inames=i_o:j_o}"),
                            HasSubstr("c_s[i_i, j_i] = c_s[i_i, j_i] + "),
                            HasSubstr("c[4 * i_o + p, 3 * j_o + q] = c_s[p, q]  {id=c_s_store")))
        << text;
  }
  // On a GPU the tile may be shared; barriers come by themselves.
  const Schedule shared = same_after(
      inout,
      "tile i j 4 4 -> i_o:g.1 j_o:g.0 i_i:l.1 j_i:l.0\norder i_o j_o k i_i j_i\nbuffer c[i_i, j_i] -> c_s p:l.0 q:l.1",
      {{{"n", 8}, {"m", 5}, {"l", 3}}, {}});
  EXPECT_EQ(make_parallel(shared.kernel()).spaces.at("c_s"), Space::block);
  EXPECT_GE(make_parallel(shared.kernel()).num_barriers, 2);
}

TEST(Buffer, OnlyWhatIsWrittenComesBack) {
  const std::string every_second =
      "kernel second\ninput x: f32[n]\ninout y: f32[n]\nassume n >= 1\n{ [i] : 0 <= i < n and i mod 2 = 1 }\ny[i] = 2 "
      "* x[i]\n";
  const Schedule schedule = same_after(every_second, "split i 6 -> o p\nbuffer y[p] -> y_s q", {{{"n", 15}}, {}});
  EXPECT_THAT(print(schedule.kernel()), Not(HasSubstr("y_s[q] = y["))) << print(schedule.kernel());
  // Data say what is written: all else keeps its value, which is read first.
  const std::string some =
      "kernel some\ninput x: f32[n]\ninout y: f32[n]\nassume n >= 1\n{ [i] : 0 <= i < n }\ny[i] = 2 * x[i] {if=x[i] > "
      "0}\n";
  EXPECT_THAT(print(same_after(some, "split i 6 -> o p\nbuffer y[p] -> y_s q", {{{"n", 15}}, {}}).kernel()),
              HasSubstr("y_s[q] = y[6 * o + q]"));
  // A recurrence within the tile and from the one before it.
  const std::string rows =
      "kernel rows\ninput x: f32[n + 1]\noutput y: f32[n + 1]\nassume n >= 1\n{ [i] : 1 <= i <= n }\n{ [z] : z = 0 "
      "}\ny[z] = 0.0\ny[i] = x[i] + 0.5 * y[i - 1]\n";
  EXPECT_THAT(refusal_of(rows, "split i 4 -> o p\nbuffer y[p] -> y_s"), HasSubstr("y"));
  EXPECT_THAT(refusal_of(every_second, "split i 6 -> o p\nbuffer x[p] -> x_s"),
              HasSubstr("no instruction writes \"x\": prefetch it"));
  EXPECT_THAT(refusal_of(every_second, "buffer y[i] -> x"), HasSubstr("x"));
  // buffer_array is the same.
  EXPECT_EQ(print(Schedule::parse(typed_kernel(some), "split i 6 -> o p\nbuffer_array y[p] -> y_s q").kernel()),
            print(Schedule::parse(typed_kernel(some), "split i 6 -> o p\nbuffer y[p] -> y_s q").kernel()));
}

TEST(Batch, RepeatsAKernelOverANewAxis) {
  const std::string text =
      "kernel scale\ninput x: f32[n]\ninput w: f32[n]\noutput y: f32[n]\nassume n >= 1\n{ [i, j, k] : 0 <= i < n and 0 "
      "<= j < n and 0 <= "
      "k < n }\n"
      "t[i] = x[i] * w[i]\ny[j] = t[j] / sum(k, t[k])\n";
  const Schedule schedule = Schedule::parse(typed_kernel(text), "batch r B shared w\ntag r g.0\nsplit i 4 -> o p:l.0");
  EXPECT_THAT(print(schedule.kernel()),
              AllOf(HasSubstr("input x: f32[B, n]"), HasSubstr("input w: f32[n]"), HasSubstr("output y: f32[B, n]"),
                    HasSubstr("temporary t: f32[B, n]"), HasSubstr("order r, ")));
  EXPECT_EQ(print(Schedule::parse(typed_kernel(text), schedule.text()).kernel()), print(schedule.kernel()));
  const int64_t n = 5, repetitions = 3;
  const Binding binding{{{"n", n}, {"B", repetitions}}, {}};
  Arrays all = some_inputs(schedule.kernel(), binding);
  const Arrays given = all;
  interpret(schedule.kernel(), binding, all);
  for (int64_t r = 0; r < repetitions; ++r) {
    Arrays one = {{"x", Array::zeros({n})}, {"w", given.at("w")}};
    for (int64_t i = 0; i < n; ++i)
      one.at("x").values[static_cast<size_t>(i)] = given.at("x").values[static_cast<size_t>(r * n + i)];
    interpret(schedule.origin(), {{{"n", n}}, {}}, one);
    for (int64_t i = 0; i < n; ++i)
      EXPECT_EQ(all.at("y").values[static_cast<size_t>(r * n + i)], one.at("y").values[static_cast<size_t>(i)]);
  }
  EXPECT_THAT(print(Schedule::parse(typed_kernel(text), "batch r 7").kernel()),
              AllOf(HasSubstr("x: f32[7, n]"), HasSubstr("w: f32[7, n]")));
  EXPECT_THAT(refusal_of(text, "batch r B shared y"),
              HasSubstr("\"y\" is written by each repetition: only inputs are the same"));
  EXPECT_THAT(refusal_of(text, "batch r B shared t"), HasSubstr("\"t\" is a temporary: each repetition has its own"));
  EXPECT_THAT(refusal_of(text, "batch i B"), HasSubstr("\"i\""));
  EXPECT_THAT(refusal_of(text, "batch r x"), HasSubstr("\"x\""));
  EXPECT_THAT(refusal_of(text, "batch r"), HasSubstr("want"));
}

}  // namespace
}  // namespace megalith::loop
