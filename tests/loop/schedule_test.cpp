// Schedules: steps one after the other, what each gives, that all compute the same, and what is refused.
#include "megalith/loop/transform/schedule.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/temporary_folder.h"
#include "loop/kernels.h"
#include "loop/support.h"
#include "megalith/base/error.h"
#include "megalith/loop/infer.h"
#include "megalith/loop/parallel.h"
#include "megalith/loop/stages.h"
#include "megalith/loop/transform/transform.h"

namespace megalith::loop {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Kernel known(const std::string& text) {
  Kernel kernel = parse_kernel(text);
  infer_types(kernel);
  infer_shapes(kernel);
  return kernel;
}

// Every step leaves a kernel that prints, reads and computes what the first does.
Schedule scheduled(const Kernel& kernel, const std::vector<std::string>& steps, const Binding& binding) {
  Schedule schedule(kernel);
  Arrays inputs;
  unsigned seed = 1;
  const Kernel bound = bind_sizes(kernel, binding);
  for (const TensorArgument& tensor : bound.tensors) {
    if (tensor.role != Role::input && tensor.role != Role::inout) continue;
    std::vector<int64_t> shape;
    for (const Expr& size : tensor.shape) shape.push_back(*constant_value(size));
    inputs[tensor.name] = random_array(shape, ++seed);
  }
  Arrays expected = inputs;
  interpret(kernel, binding, expected);
  for (const std::string& step : steps) {
    schedule = schedule.then(step);
    SCOPED_TRACE(step + "\n" + print(schedule.kernel()));
    EXPECT_EQ(print(parse_kernel(print(schedule.kernel()))), print(schedule.kernel()));
    Arrays found = inputs;
    interpret(schedule.kernel(), binding, found);
    for (const auto& [name, array] : expected)
      for (size_t i = 0; i < array.values.size(); ++i)
        EXPECT_NEAR(found.at(name).values[i], array.values[i], 1e-9) << name << " at " << i;
    if (testing::Test::HasFailure()) break;
  }
  return schedule;
}

const std::vector<std::string> kMatmulSteps = {
    "tile i j 16 8 -> i_o:g.1 j_o:g.0 i_i:l.1 j_i:l.0",
    "split k 4 -> k_o k_i",
    "order i_o j_o k_o i_i j_i k_i",
    "accumulate k_o -> acc",
    "prefetch a[i_i, k_i] -> a_s a_i:l.1 a_k:l.0",
    "prefetch b[k_i, j_i] -> b_s b_k:l.1 b_j:l.0",
    "pad b_s 1 1",
    "unroll k_i",
};

TEST(Schedule, AMatmulStepByStep) {
  for (const int64_t n : {16, 19}) {
    const Schedule schedule = scheduled(known(kMatmul), kMatmulSteps, {{{"n", n}, {"m", 9}, {"l", 6}}, {}});
    const Parallel parallel = make_parallel(schedule.kernel());
    EXPECT_EQ(parallel.num_barriers, 2);
    EXPECT_EQ(parallel.spaces.at("a_s"), Space::block);
    EXPECT_EQ(parallel.spaces.at("b_s"), Space::block);
    EXPECT_EQ(parallel.spaces.at("acc"), Space::thread);
    EXPECT_EQ(parallel.num_threads[3], 8);
    EXPECT_EQ(parallel.num_threads[4], 16);
  }
}

// What a schedule that is refused says: see refusal().
TEST(Schedule, IterationsOfAVectorTouchNothingOfEachOther) {
  const std::string through =
      "kernel through\ninput x: f32[n]\noutput y: f32[n]\nassume n >= 1\n{ [i] : 0 <= i < n }\n"
      "s[0] = x[i] {inames=i}\ny[i] = s[0] + 1\n";
  EXPECT_THAT(error_of([&] { Schedule::parse(known(through), "vectorise i"); }),
              AllOf(HasSubstr("in another iteration of i"), HasSubstr("which is tagged vec: privatise s, or untag i")));
  scheduled(known(through), {"privatise s i", "vectorise i"}, {{{"n", 7}}, {}});
  const std::string prefix = "kernel prefix\ninout u: f32[9]\n{ [i] : 1 <= i < 9 }\nu[i] = u[i] + u[i - 1]\n";
  EXPECT_THAT(error_of([&] { Schedule::parse(known(prefix), "vectorise i"); }), HasSubstr("untag i"));
}

// What a schedule that is refused says.
std::string refusal(const std::string& kernel, const std::string& steps) {
  return error_of([&] { Schedule::parse(known(kernel), steps); });
}

// Where it is stored is no part of what it means.
TEST(Schedule, OutputsGoPastTheCaches) {
  const Schedule schedule =
      scheduled(known(kMatmul), {"stream c", "split j 8 -> j_o j_v:vec"}, {{{"n", 3}, {"m", 9}, {"l", 2}}, {}});
  EXPECT_THAT(print(schedule.kernel()), HasSubstr("output c: f32[n, m] streamed\n"));
  // What becomes a temporary is read again.
  const Kernel consumer = known(
      "kernel post\ninput p: f32[n, m]\noutput z: f32[n, m]\nassume n >= 1 and m >= 1\n"
      "{ [x, y] : 0 <= x < n and 0 <= y < m }\nz[x, y] = 2 * p[x, y]\n");
  const Schedule fused = Schedule::parse(known(kMatmul), "stream c\nfuse post p=c", {{"post", consumer}});
  EXPECT_FALSE(fused.kernel().find_tensor("c")->is_streamed);
  EXPECT_THAT(refusal(kMatmul, "stream a"),
              HasSubstr("\"a\" is an input: only what is written is stored past the caches"));
  EXPECT_THAT(refusal(kMatmul, "accumulate k -> acc\nstream acc"),
              HasSubstr("\"acc\" is a temporary: what reads it next"));
  EXPECT_THAT(refusal(kMatmul, "stream"), HasSubstr("want \"stream TENSOR\""));
  EXPECT_THAT(refusal(kMatmul, "tag i g.0 in"), HasSubstr("want \"tag INAME TAG... [in INSTRUCTION...]\""));
  EXPECT_THAT(error_of([] { known("input a: f32[n] streamed\n{ [i] : 0 <= i < n }\nb[i] = a[i]\n"); }),
              HasSubstr("wanted the end of the line"));
}

constexpr const char* kReverse = R"(
kernel reverse
input x: f32[16]
output y: f32[16]
{ [i, j] : 0 <= i, j < 16 }
t[i] = 2 * x[i]
y[j] = t[15 - j]
)";

// L6: what threads tell each other takes exactly one barrier.
TEST(Schedule, L6_OneBarrierWhereThreadsReadOfEachOther) {
  const Schedule schedule = scheduled(known(kReverse), {"tag i l.0", "tag j l.0"}, {});
  const Parallel parallel = make_parallel(schedule.kernel());
  EXPECT_EQ(parallel.num_barriers, 1);
  EXPECT_EQ(parallel.spaces.at("t"), Space::block);
  ASSERT_EQ(parallel.nest.size(), 3u);
  EXPECT_TRUE(parallel.nest[1].iname.empty() && parallel.nest[1].instruction < 0);
  EXPECT_THAT(
      refusal(kReverse, "tag i l.0\ntag j l.0\nspace t private"),
      AllOf(HasSubstr("t is private, but instruction \"insn1\" reads in one thread what \"insn0\" writes to t in "
                      "another (at i = "),
            HasSubstr("line 3")));
}

// L7: loopy's rotation, in which each element moves by one.
TEST(Schedule, L7_ARotationOverBlocksMissesABarrier) {
  const std::string apart =
      "kernel rotate\ninout arr: f32[n]\nassume n mod 16 = 0 and n >= 16\n{ [i] : 0 <= i < n }\n{ [j] : 0 <= j < n }\n"
      "tmp[i] = arr[i]\narr[(j + 1) mod n] = tmp[j]\n";
  EXPECT_THAT(
      refusal(apart, "split i 16 -> a b\nsplit j 16 -> c d\ntag a g.0 b l.0 c g.0 d l.0"),
      AllOf(HasSubstr("line 3: [rotate] instruction \"insn1\" writes arr["), HasSubstr("after \"insn0\" reads arr["),
            HasSubstr("in another block of g.0"), HasSubstr("missing barrier")));
  // Within a block it can be done; the values stay with their threads.
  const Schedule schedule = scheduled(known(apart), {"fix n 64", "tag i l.0 j l.0"}, {{{"n", 64}}, {}});
  const Parallel parallel = make_parallel(schedule.kernel());
  EXPECT_EQ(parallel.num_barriers, 1);
  EXPECT_EQ(parallel.spaces.at("tmp"), Space::thread);
  // In one loop, what one iteration writes the next one reads.
  const std::string together =
      "kernel rotate\ninout arr: f32[64]\n{ [i] : 0 <= i < 64 }\ntmp[0] = arr[i] {inames=i}\n"
      "arr[(i + 1) mod 64] = tmp[0] {inames=i}\n";
  EXPECT_THAT(refusal(together, "tag i l.0"),
              AllOf(HasSubstr("in another thread"), HasSubstr("arr[(i + 1) mod 64]"), HasSubstr("duplicate i in")));
}

// loopy lets this pass without a barrier: a dependence that a loop carries, between threads.
TEST(Schedule, AStencilThatALoopCarriesTakesABarrier) {
  const std::string stencil =
      "kernel heat\ninout u: f32[9, 64]\n{ [t, i] : 1 <= t < 9 and 1 <= i < 63 }\n"
      "u[t, i] = u[t - 1, i - 1] + u[t - 1, i + 1] - u[t - 1, i]\n";
  const Schedule schedule = scheduled(known(stencil), {"tag i l.0"}, {});
  const Parallel parallel = make_parallel(schedule.kernel());
  EXPECT_EQ(parallel.num_barriers, 1);
  ASSERT_EQ(parallel.nest[0].body.size(), 2u);
  EXPECT_LT(parallel.nest[0].body[1].instruction, 0);
  EXPECT_THAT(refusal(stencil, "split i 16 -> a:g.0 b:l.0"),
              AllOf(HasSubstr("instruction \"insn0\" reads u["), HasSubstr("in another block of g.0"),
                    HasSubstr("missing barrier")));
  EXPECT_THAT(refusal(stencil, "tag t l.0"), AllOf(HasSubstr("in another thread"), HasSubstr("untag t")));
  // Along a wavefront it may go.
  EXPECT_THAT(refusal(stencil, "order i t"), HasSubstr("this order would turn that round"));
  scheduled(known(stencil), {"map [t, i] -> v = t, w = i + 2 * t", "order w v"}, {});
}

TEST(Schedule, LoopsAreTakenApartAndJoinedAsDependencesAllow) {
  const std::string two =
      "kernel two\ninput x: f32[n]\noutput y: f32[n]\noutput z: f32[n]\nassume n >= 1\n{ [i] : 0 <= i < n }\n"
      "y[i] = 2 * x[i]\nz[i] = y[i] + 1\n";
  const Binding n = {{{"n", 7}}, {}};
  const Schedule apart = scheduled(known(two), {"duplicate i -> j in insn1", "split j 4 -> a b"}, n);
  EXPECT_THAT(print(apart.kernel()), HasSubstr("z[4 * a + b] = y[4 * a + b] + 1"));
  scheduled(known(two), {"duplicate i -> j in insn1", "fuse_loops j i"}, n);
  // A temporary of one element holds one iteration's value.
  const std::string through =
      "kernel through\ninput x: f32[n]\noutput y: f32[n]\nassume n >= 1\n{ [i] : 0 <= i < n }\n"
      "s[0] = x[i] {inames=i}\ny[i] = s[0] + 1\n";
  EXPECT_THAT(refusal(through, "duplicate i -> j in insn1"),
              AllOf(HasSubstr("instruction \"insn0\" writes s[0] after \"insn1\" reads s[0]"), HasSubstr("line 1")));
  scheduled(known(through), {"privatise s i", "duplicate i -> j in insn1"}, n);
  // A neighbour that is not there yet keeps two loops apart.
  const std::string ahead =
      "kernel ahead\ninput x: f32[9]\noutput y: f32[8]\n{ [i] : 0 <= i < 8 }\n{ [j] : 0 <= j < 8 }\n"
      "temporary t: f32[8]\nt[i] = x[i]\ny[j] = t[7 - j]\n";
  EXPECT_THAT(refusal(ahead, "fuse_loops j i"), HasSubstr("must stay loops of their own"));
}

constexpr const char* kTotal =
    "kernel total\ninput a: f32[n]\noutput y: f32[1]\nassume n >= 1\n{ [i] : 0 <= i < n }\ny[0] = sum(i, a[i])\n";

// Between two levels of which all threads are of one warp, that warp alone waits.
TEST(Schedule, ATreeOfSumsTakesABarrierALevel) {
  const Schedule schedule = scheduled(known(kTotal), {"tree i 128 -> part p:l.0"}, {{{"n", 1000}}, {}});
  const Parallel parallel = make_parallel(schedule.kernel());
  EXPECT_EQ(parallel.num_threads[3], 128);
  EXPECT_EQ(parallel.spaces.at("part"), Space::block);
  EXPECT_EQ(parallel.num_barriers, 7);       // halves of 64, 32, 16, 8, 4, 2 and 1
  EXPECT_EQ(parallel.num_warp_barriers, 5);  // of 16 and less: what thread p + 16 has written, p < 16
  EXPECT_THAT(
      print(schedule.kernel()),
      AllOf(HasSubstr("part[p] = sum(i_o, a[128 * i_o + p])"), HasSubstr("part[p_64] = part[p_64] + part[p_64 + 64]"),
            HasSubstr("part[p_1] = part[p_1] + part[p_1 + 1]"), HasSubstr("y[0] = part[0]")));
  EXPECT_EQ(make_parallel(scheduled(known(kTotal), {"tree i 1 -> part p:l.0"}, {{{"n", 9}}, {}}).kernel()).num_barriers,
            0);
}

TEST(Schedule, LanesOfAWarpWaitForEachOtherOnly) {
  const std::string rows =
      "kernel rows\ninput a: f32[n, m]\noutput y: f32[n]\nassume n >= 1 and m >= 1\n"
      "{ [i, k] : 0 <= i < n and 0 <= k < m }\ny[i] = sum(k, a[i, k])\n";
  // A row to a warp, and eight of them in a block: the loop over rows is inside of that over lanes.
  const Schedule schedule =
      scheduled(known(rows), {"split i 8 -> i_o:g.0 i_w", "order i_o k i_w", "tree k 32 -> part p:lane", "tag i_w w"},
                {{{"n", 13}, {"m", 45}}, {}});
  const Parallel parallel = make_parallel(schedule.kernel());
  EXPECT_EQ(parallel.num_threads[3], 32);
  EXPECT_EQ(parallel.num_threads[4], 8);
  EXPECT_EQ(parallel.num_barriers, 5);
  EXPECT_EQ(parallel.num_warp_barriers, 5);
  EXPECT_THAT(refusal(kTotal, "tree i 64 -> part p:lane"), HasSubstr("where a warp has its 32 lanes"));
}

TEST(Schedule, LanesKeepAnElementEach) {
  const std::string rows =
      "kernel rows\ninput a: f32[n, m]\noutput y: f32[n]\nassume n >= 1 and m >= 1\n"
      "{ [i, k] : 0 <= i < n and 0 <= k < m }\ny[i] = sum(k, a[i, k])\n";
  const std::vector<std::string> steps = {"split i 8 -> i_o:g.0 i_w", "order i_o k i_w", "tree k 32 -> part p:lane",
                                          "tag i_w w", "space part lanes"};
  const Schedule schedule = scheduled(known(rows), steps, {{{"n", 13}, {"m", 45}}, {}});
  EXPECT_EQ(make_parallel(schedule.kernel()).spaces.at("part"), Space::warp);
  EXPECT_EQ(make_parallel(schedule.kernel()).lane_axes.at("part"), 1u);
  EXPECT_THAT(print(schedule.kernel()), HasSubstr("temporary part: f32[8, 32] lanes\n"));

  EXPECT_THAT(
      refusal(kTotal, "tree i 16 -> part p:l.0\nspace part lanes"),
      HasSubstr("part is in lanes, and a block has 16 threads along axis 0, where a warp has its 32: tag an iname "
                "lane, or make part shared"));
  // Of another warp.
  EXPECT_THAT(
      refusal("kernel warps\ninput x: f32[4, 32]\noutput y: f32[4, 32]\n{ [w, p] : 0 <= w < 4 and 0 <= p < 32 }\n"
              "{ [v, q] : 0 <= v < 4 and 0 <= q < 32 }\nt[w, p] = x[w, p]\ny[v, q] = t[3 - v, q]\n",
              "tag w w p lane v w q lane\nspace t lanes"),
      AllOf(HasSubstr("t is lanes, but instruction \"insn1\" reads in one thread what \"insn0\" writes to t in "
                      "another")));
  const std::string through =
      "kernel through\ninput x: f32[32]\noutput y: f32[32]\n{ [p, q, s] : 0 <= p, q, s < 32 }\nt[p] = x[p]\ny[q] = ";
  const std::string lanes = "tag p lane q lane\nspace t lanes";
  Schedule::parse(known(through + "t[31 - q]\n"), lanes);
  EXPECT_THAT(
      refusal(through + "sum(s, t[s])\n", lanes),
      HasSubstr("instruction \"insn1\" reads t[s] of another lane inside of a reduction or a condition, where not "
                "all lanes come along: let it stand by itself in the loop over lanes, or make t shared"));
  EXPECT_THAT(refusal(through + "if(q < 8, t[31 - q], 0)\n", lanes), HasSubstr("inside of a reduction or a condition"));
  EXPECT_THAT(refusal("kernel inner\ninput x: f32[32]\noutput y: f32[32, 4]\n{ [p, q] : 0 <= p, q < 32 }\n"
                      "{ [r] : 0 <= r < 4 }\nt[p] = x[p]\ny[q, r] = t[31 - q]\n",
                      lanes),
              HasSubstr("of another lane inside of a loop in that over q"));
  EXPECT_THAT(
      refusal("kernel turned\ninput x: f32[32]\noutput y: f32[32]\n{ [p, q] : 0 <= p, q < 32 }\n"
              "t[31 - p] = x[p]\ny[q] = t[q]\n",
              lanes),
      HasSubstr("\"insn0\" writes t[31 - p]: let one axis have the iname that is tagged lane for its subscript"));
}

TEST(Schedule, WhatATreeCannotTakeIsSaid) {
  EXPECT_THAT(refusal(kTotal, "tree i -> part p:l.0"), HasSubstr("say how many lanes there are"));
  EXPECT_THAT(refusal(kTotal, "tree i 0 -> part p"), HasSubstr("a tree of 0 lanes, want at least 1"));
  EXPECT_THAT(refusal(kTotal, "tree i 2000 -> part p:l.0"), HasSubstr("a block has at most 1024 threads"));
  EXPECT_THAT(refusal("input a: f32[8]\noutput y: f32[1]\n{ [i] : 0 <= i < 8 }\ny[0] = if(a[0] > 0, sum(i, a[i]), 0)\n",
                      "tree i -> part p"),
              HasSubstr("stands inside of a condition"));
  // What an iteration of the loop over t finds in s is of that iteration.
  const std::string through =
      "input a: f32[8]\ninput x: f32[5]\noutput y: f32[5]\n{ [k, t] : 0 <= k < 8 and 0 <= t < 5 }\n"
      "s[0] = x[t] {inames=t}\ny[t] = sum(k, a[k] * s[0])\n";
  EXPECT_THAT(refusal(through, "tree k -> part p"),
              HasSubstr("order the loops such that those of the reduction are inside"));
  EXPECT_THAT(refusal(through, "accumulate k -> acc"),
              HasSubstr("order the loops such that those of the reduction are inside"));
  scheduled(known(through), {"order t k", "tree k -> part p"}, {});
}

TEST(Schedule, ABarrierOverEverythingIsAskedForByName) {
  const std::string rotate =
      "kernel rotate\ninout arr: f32[n]\nassume n mod 16 = 0 and n >= 16\n{ [i] : 0 <= i < n }\n{ [j] : 0 <= j < n }\n"
      "tmp[i] = arr[i]\narr[(j + 1) mod n] = tmp[j]\n";
  const std::vector<std::string> steps = {"fix n 64", "barrier before insn1", "split i 16 -> a:g.0 b:l.0",
                                          "split j 16 -> c:g.0 d:l.0"};
  const Schedule schedule = scheduled(known(rotate), steps, {{{"n", 64}}, {}});
  EXPECT_THAT(print(schedule.kernel()), HasSubstr("tmp[16 * a + b] = arr[16 * a + b]\nbarrier\narr["));
  const std::vector<Kernel> stages = split_stages(schedule.kernel());
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_EQ(stages[0].name, "rotate_0");
  EXPECT_EQ(stages[0].find_tensor("tmp")->role, Role::output);
  EXPECT_EQ(stages[0].find_tensor("arr")->role, Role::input);
  EXPECT_EQ(stages[1].find_tensor("tmp")->role, Role::input);
  for (const Kernel& stage : stages) EXPECT_EQ(make_parallel(stage).num_barriers, 0);
  EXPECT_THAT(error_of([&] { schedule.then("space tmp shared"); }),
              HasSubstr("tmp is shared, but is needed on both sides of a barrier over all blocks: make it global"));
  EXPECT_THAT(error_of([&] { schedule.then("no_barrier before insn1"); }), HasSubstr("missing barrier"));
  EXPECT_THAT(error_of([&] { schedule.then("barrier before insn0"); }), HasSubstr("nothing stands before"));
  // A step that puts instructions before one behind the barrier leaves them behind it.
  const Schedule copied =
      scheduled(known(rotate), {"fix n 64", "barrier before insn1", "prefetch tmp[j] -> t q"}, {{{"n", 64}}, {}});
  EXPECT_THAT(print(copied.kernel()), HasSubstr("barrier\nt[q] = tmp[q]"));
  // It ends loops, so what one iteration hands the next would be done too early.
  const std::string through =
      "input x: f32[8]\noutput y: f32[8]\n{ [i] : 0 <= i < 8 }\ns[0] = x[i] {inames=i}\ny[i] = s[0] + 1\n";
  EXPECT_THAT(refusal(through, "barrier before insn1"), HasSubstr("this order would turn that round"));
  // An instruction that never runs reads what nobody has to hand it. Found by megalith loops --random.
  const std::vector<Kernel> idle = split_stages(
      known("input x: f32[n]\noutput y: f32[n]\nassume n >= 1\n{ [i] : 0 <= i < n }\n{ [j] : 0 <= j < n and n < 0 }\n"
            "{ [k] : 0 <= k < n }\ny[j] = t[j]\nbarrier\nt[i] = 2 * x[i]\ny[k] = t[k]\n"));
  EXPECT_EQ(idle.at(0).find_tensor("t")->role, Role::temporary);
}

// What bounds the inames of a sum together, or by the inames of one around it, stays. Found by megalith loops --random.
TEST(Schedule, ASubstitutedSumKeepsItsBounds) {
  const Binding n = {{{"n", 7}}, {}};
  const std::string triangle =
      "input x: f32[n, n]\noutput y: f32[n]\nassume n >= 1\n{ [i, k] : 0 <= k <= i and i < n }\n{ [j] : 0 <= j < n }\n"
      "t[i] = sum(k, x[i, k])\ny[j] = t[n - 1 - j]\n";
  const Schedule joint = scheduled(known(triangle), {"split k 2 -> a b", "substitute t"}, n);
  EXPECT_THAT(print(joint.kernel()), HasSubstr("sum((a_0, b_0), x["));
  const std::string nested =
      "input x: f32[n, n]\noutput y: f32[n]\nassume n >= 1\n{ [i, k, q] : 0 <= q <= k and k <= i and i < n }\n"
      "{ [j] : 0 <= j < n }\nt[i] = sum(k, x[i, k] * sum(q, x[k, q])) / (1 + sum(k, x[i, k] * x[i, k]))\ny[j] = t[n - "
      "1 - j]\n";
  scheduled(known(nested), {"substitute t"}, n);
}

// L20: loopy's example of a rule, and what steps make of rules.
// Of elements that lie apart only those are copied that are read.
TEST(Schedule, ACopyHasAnAxisForEachInameThatLeavesGaps) {
  const std::string apart =
      "kernel apart\ninput x: f32[128]\noutput y: f32[128]\n{ [h, t, v] : 0 <= h < 2 and 0 <= t < 16 and 0 <= v < 4 }\n"
      "y[64 * h + 4 * t + v] = 2 * x[64 * h + 4 * t + v]\n";
  const Schedule schedule = scheduled(known(apart), {"order t h v", "tag t l.0", "prefetch x[h, v] -> x_r g u"}, {});
  EXPECT_THAT(print(schedule.kernel()),
              AllOf(HasSubstr("temporary x_r: f32[2, 4]\n"), HasSubstr("x_r[g, u] = x[64 * g + 4 * t + u]"),
                    HasSubstr("= 2 * x_r[h, v]")));
  // Read at several distances, all between the first and the last are copied.
  const std::string near =
      "kernel near\ninput x: f32[67]\noutput y: f32[16]\n{ [h] : 0 <= h < 16 }\ny[h] = x[4 * h] + x[4 * h + 3]\n";
  EXPECT_THAT(print(scheduled(known(near), {"prefetch x[h] -> x_r g"}, {}).kernel()),
              HasSubstr("temporary x_r: f32[64]\n"));
}

TEST(Schedule, AnAxisIsSplitAsItsSubscriptsAre) {
  const std::string text =
      "kernel parts\ninput x: f32[n]\noutput y: f32[n]\nassume n >= 1 and n <= 64\n{ [i] : 0 <= i < n }\ny[i] = x[i]\n";
  const std::vector<std::string> steps = {"split i 16 -> o p", "prefetch x[o, p] -> x_r q", "split q 16 -> a b",
                                          "split_axis x_r 0 16"};
  const Schedule schedule = scheduled(known(text), steps, {{{"n", 37}}, {}});
  EXPECT_THAT(print(schedule.kernel()), AllOf(HasSubstr("x_r[a, b] = x[16 * a + b]"), HasSubstr("= x_r[o, p]")));
  EXPECT_THAT(
      print(scheduled(known(text), {"prefetch x[i] -> x_r q", "split_axis x_r 0 16"}, {{{"n", 37}}, {}}).kernel()),
      HasSubstr("x_r[q // 16, q mod 16] = x[q]"));
  EXPECT_THAT(
      refusal("kernel any\ninput x: f32[n]\noutput y: f32[n]\nassume n >= 1\n{ [i] : 0 <= i < n }\ny[i] = x[i]\n",
              "prefetch x[i] -> x_r q"),
      HasSubstr("or assume how large it gets"));
}

TEST(Schedule, L20_ARuleForWhatIsOfOneForm) {
  const std::string squares =
      "kernel squares\ninput b: f32[n]\noutput a: f32[n]\nassume n >= 1\n{ [i] : 0 <= i < n }\n"
      "a[i] = 23 * pow(b[i], 2) + 25 * pow(b[i], 2)\n";
  const Binding n = {{{"n", 37}}, {}};
  const Schedule extracted = scheduled(known(squares), {"extract_subst bsquare(alpha) = alpha * pow(b[i], 2)"}, n);
  EXPECT_THAT(print(extracted.kernel()), AllOf(HasSubstr("rule bsquare(alpha) = alpha * pow(b[i], 2)\n"),
                                               HasSubstr("a[i] = bsquare(23) + bsquare(25)\n")));
  // Loops are split around it, and it stays.
  const Schedule split = scheduled(
      known(squares), {"extract_subst bsquare(alpha) = alpha * pow(b[i], 2)", "split i 16 -> o:g.0 p:l.0"}, n);
  EXPECT_THAT(print(split.kernel()), AllOf(HasSubstr("rule bsquare(alpha) = alpha * pow(b[16 * o + p], 2)\n"),
                                           HasSubstr("bsquare(23) + bsquare(25)")));
  const Schedule back = split.then("expand bsquare");
  EXPECT_THAT(print(back.kernel()), HasSubstr("= 23 * pow(b[16 * o + p], 2) + 25 * pow(b[16 * o + p], 2)"));
  const Schedule renamed = split.then("rename bsquare square").then("rename alpha factor");
  EXPECT_THAT(print(renamed.kernel()),
              AllOf(HasSubstr("rule square(factor) = factor * "), HasSubstr("square(23) + square(25)")));
  EXPECT_THAT(refusal(squares, "extract_subst f(x) = x * sin(b[i])"),
              HasSubstr("nothing in the kernel is of the form x * sin(b[i])"));
  EXPECT_THAT(refusal(squares, "extract_subst f(i) = 23 * i"), HasSubstr("the name \"i\" is taken"));
}

TEST(Schedule, ARuleIsComputedWhereATileNeedsIt) {
  const std::string stencil =
      "kernel smooth\ninput a: f32[n + 2]\noutput y: f32[n]\nassume n >= 1\n{ [j] : 0 <= j < n }\n"
      "y[j] = sin(a[j]) + sin(a[j + 1]) + sin(a[j + 2])\n";
  const Binding n = {{{"n", 19}}, {}};
  const Schedule tiled =
      scheduled(known(stencil),
                {"split j 8 -> o:g.0 p:l.0", "extract_subst s(at) = sin(a[at])", "precompute s[p] -> t q:l.0"}, n);
  EXPECT_THAT(print(tiled.kernel()), AllOf(HasSubstr("t[q] = sin(a[8 * o + q])"),
                                           HasSubstr("= t[p] + t[p + 1] + t[p + 2]"), Not(HasSubstr("rule"))));
  EXPECT_EQ(make_parallel(tiled.kernel()).num_barriers, 1);
  const std::string two =
      "kernel two\ninput a: f32[n]\noutput y: f32[n]\nassume n >= 1\n{ [i] : 0 <= i < n }\n{ [j] : 0 <= j < n }\n"
      "t[i] = 3 * a[i]\ny[j] = t[n - 1 - j] + 1\n";
  const Schedule ruled = scheduled(known(two), {"assignment_to_subst t", "split j 4 -> o p"}, n);
  EXPECT_THAT(print(ruled.kernel()),
              AllOf(HasSubstr("rule t(i_at) = 3 * a[i_at]"), HasSubstr("= t(n - 1 - (4 * o + p)) + 1")));
  scheduled(known(two), {"assignment_to_subst t", "split j 4 -> o p", "prefetch t[p] -> t_s q"}, n);
  EXPECT_THAT(refusal(two, "assignment_to_subst a"), HasSubstr("\"a\" is no temporary"));
}

TEST(Schedule, RulesThatDoubleEndSomewhere) {
  std::string text = "output y: f32[1]\n{ [i] : 0 <= i < 1 }\nrule r0(a) = a + a\n";
  for (int i = 1; i < 40; ++i) text += fmt::format("rule r{0}(a{0}) = r{1}(a{0}) + r{1}(a{0})\n", i, i - 1);
  EXPECT_THAT(error_of([&] { known(text + "y[i] = r39(i)\n"); }),
              HasSubstr("without its rules an expression has more than"));
}

// Schedules as loopy's users write them.
// Of a body (codegen/body_schedule.h); where a kernel has a grid, an iname has one tag.
TEST(Schedule, ATagInOneInstructionPrintsAndIsForBodies) {
  const std::string text =
      "input x: f32[n]\n{ [i, k] : 0 <= i < n and 0 <= k < n }\na[i] = sum(k, x[k])  {tag=i:g.0, tag=k:lane}\nb[i] = "
      "max(k, x[k])";
  const Kernel kernel = known(text);
  EXPECT_EQ(kernel.instructions[0].tags,
            (std::map<std::string, InameTag>{{"i", InameTag::block_0}, {"k", InameTag::lane}}));
  EXPECT_EQ(print(parse_kernel(print(kernel))), print(kernel));
  EXPECT_EQ(tag_of(kernel, kernel.instructions[0], "k"), InameTag::lane);
  EXPECT_EQ(tag_of(kernel, kernel.instructions[1], "k"), InameTag::loop);

  Kernel plain = kernel;
  plain.instructions[0].tags.clear();
  const Schedule::Check anything = [](const Kernel&) {};
  const Schedule tagged = Schedule::parse(plain, "tag k lane i g.0 in insn0", {}, anything);
  EXPECT_EQ(print(tagged.kernel()), print(kernel));
  // A name takes its tag along; what is no more has none.
  EXPECT_EQ(tagged.then("rename k u").kernel().instructions[0].tags.at("u"), InameTag::lane);
  EXPECT_FALSE(tagged.then("split k 4 -> k_o k_i").kernel().instructions[0].tags.contains("k"));
  EXPECT_EQ(megalith::test::message_of<UserError>([&] { Schedule::parse(plain, "tag k lane in insn0"); }),
            "line 1: [kernel] k has a tag in \"insn0\" alone, which is for bodies of operators: duplicate k there, and "
            "tag the "
            "copy (\"tag k "
            "lane in insn0\")");
  EXPECT_THAT(megalith::test::message_of<UserError>([&] { Schedule::parse(plain, "tag k lane in insn2"); }),
              ::testing::HasSubstr("there is no instruction \"insn2\""));
}

TEST(Schedule, NamesOfOtherSystemsMeanTheSame) {
  const Schedule ours = Schedule::parse(known(kReverse), "tag i threadIdx.x j l.0\nspace t shared\n");
  const Schedule theirs = Schedule::parse(
      known(kReverse), "tag_inames i CUDAThreadIndexTag.0 j l.0\nset_temporary_address_space t AddressSpace.LOCAL\n");
  EXPECT_EQ(print(ours.kernel()), print(theirs.kernel()));
  Schedule::parse(known(kMatmul), "affine_map_inames [i, j] -> u = i + j, v = j\nprioritize_loops v u\n");
  Schedule::parse(known(kMatmul), "tile i j 8 8 -> p q u d\nunroll_iname d\nfix l 8\nadd_prefetch a[u, :] -> a_s\n");
}

// L19: loopy's program whose temporaries share memory, of n = 30.
TEST(Schedule, L19_TemporariesThatShareMemory) {
  const std::string text =
      "kernel pair\ninput a: f32[30]\ninput b: f32[30]\noutput c: f32[30]\noutput d: f32[30]\n"
      "{ [i, j, k, l] : 0 <= i, j, k, l < 30 }\n"
      "t1[i] = 2 * a[i]\nc[j] = t1[29 - j] + 1\nt2[k] = 3 * b[k]\nd[l] = t2[29 - l] + 2\n";
  const std::vector<std::string> steps = {"tag i l.0 j l.0 k l.0 l l.0", "alias t1 t2 -> pool"};
  const Schedule schedule = scheduled(known(text), steps, {});
  EXPECT_THAT(print(schedule.kernel()), HasSubstr("temporary t1: f32[30] in pool\n"));
  // One more than without: what is read of t1 must be read before t2 is written.
  EXPECT_EQ(make_parallel(schedule.kernel()).num_barriers, 3);
  EXPECT_EQ(make_parallel(Schedule::parse(known(text), steps[0]).kernel()).num_barriers, 2);
  const std::string both =
      "kernel both\ninput a: f32[30]\noutput c: f32[30]\n{ [i, j, k] : 0 <= i, j, k < 30 }\n"
      "t1[i] = 2 * a[i]\nt2[k] = 3 * a[k]\nc[j] = t1[29 - j] + t2[j]\n";
  EXPECT_THAT(
      refusal(both, "alias t1 t2 -> pool"),
      AllOf(HasSubstr(
                "t1 and t2 share memory, and \"insn1\" writes t2 before \"insn2\" has read what \"insn0\" wrote to t1"),
            HasSubstr("give each its own")));
}

// L20: the ways out of a nest in which two inames cross, as loopy lists them.
TEST(Schedule, L20_FourWaysToDuplicate) {
  const Kernel kernel = known(
      "inout mat1: f32[9, 9]\ninout mat2: f32[9]\ninout mat3: f32[9]\n{ [i, j] : 0 <= i, j < 9 }\n"
      "mat1[i, j] = mat1[i, j] + 1 {id=i1}\nmat2[j] = mat2[j] + 1 {id=i2}\nmat3[i] = mat3[i] + 1 {id=i3}\n");
  std::vector<std::string> found;
  for (const Duplication& option : duplication_options(kernel))
    found.push_back(fmt::format("{} in {}", option.iname, fmt::join(option.ids, " ")));
  EXPECT_THAT(found, testing::UnorderedElementsAre("i in i1", "i in i3", "j in i1", "j in i2"));
  for (const Duplication& option : duplication_options(kernel))
    EXPECT_TRUE(duplication_options(duplicate_inames(kernel, {{option.iname, "copy"}}, option.ids)).empty())
        << option.iname;
  EXPECT_TRUE(duplication_options(known(kMatmul)).empty());
}

TEST(Schedule, WhoVouchesForItNeedsNoBarrier) {
  const Schedule schedule = Schedule::parse(known(kReverse), "tag i l.0 j l.0\nno_sync insn0 insn1");
  EXPECT_EQ(make_parallel(schedule.kernel()).num_barriers, 0);
  EXPECT_THAT(print(schedule.kernel()), HasSubstr("nosync=insn0"));
  EXPECT_EQ(print(parse_kernel(print(schedule.kernel()))), print(schedule.kernel()));
}

TEST(Schedule, NoInameStandsTwice) {
  EXPECT_THAT(refusal(kMatmul, "fix l 1\nsplit k 1 -> p q\nfuse_loops p q"),
              AllOf(HasSubstr("line 3"), HasSubstr("a reduction in insn0 runs over \"p\" where \"q\" has a value")));
  EXPECT_THAT(refusal(kMatmul, "map [i, i] -> u = i, v = 2 * i"), HasSubstr("an iname stands in [i, i] twice"));
}

}  // namespace
}  // namespace megalith::loop
