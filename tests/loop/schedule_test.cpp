// Schedules: steps one after the other, what each gives, that all compute the same, and what is refused.
#include "megalith/loop/transform/schedule.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "loop/kernels.h"
#include "loop/support.h"
#include "megalith/loop/infer.h"
#include "megalith/loop/parallel.h"

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

TEST(Schedule, NoInameStandsTwice) {
  EXPECT_THAT(refusal(kMatmul, "fix l 1\nsplit k 1 -> p q\nfuse_loops p q"),
              AllOf(HasSubstr("line 3"), HasSubstr("a reduction in insn0 runs over \"p\" where \"q\" has a value")));
  EXPECT_THAT(refusal(kMatmul, "map [i, i] -> u = i, v = 2 * i"), HasSubstr("an iname stands in [i, i] twice"));
}

}  // namespace
}  // namespace megalith::loop
