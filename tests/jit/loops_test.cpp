// Scheduled loop kernels as code: what it looks like, and that it computes what the interpreter does, as a CPU runs it and
// as a GPU would (emulated).
#include "megalith/jit/loops.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/jit/loop_program.h"
#include "megalith/jit/random_loops.h"
#include "megalith/loop/domain.h"
#include "megalith/loop/infer.h"
#include "megalith/loop/text.h"
#include "megalith/loop/transform/random_schedule.h"
#include "megalith/loop/transform/schedule.h"

namespace megalith::jit {
namespace {

using codegen::LoopSource;
using codegen::LoopTarget;
using loop::Array;
using loop::Arrays;
using loop::Binding;
using loop::Schedule;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<std::string> kQuick = {"-std=c++20", "-fPIC", "-O0", "-w"};

Schedule scheduled(const std::string& kernel_text, const std::string& steps) {
  loop::Kernel kernel = loop::parse_kernel(kernel_text);
  loop::infer_types(kernel);
  loop::infer_shapes(kernel);
  return Schedule::parse(std::move(kernel), steps);
}

std::string body_of(const Schedule& schedule, LoopTarget target) {
  const std::string text = codegen::emit_loops(schedule.kernel(), target, "kernel").text;
  return text.substr(text.find("extern"));
}

constexpr const char* kDouble =
    "input a: f32[n]\noutput out: f32[n]\nassume n >= 1\n{ [i] : 0 <= i < n }\nout[i] = 2 * a[i]\n";

// L3: the length of the last block is looked at where it may be shorter, and nowhere else.
TEST(LoopSource, L3_ABoundOnlyWhereTheLengthNeedsIt) {
  const std::string any = body_of(scheduled(kDouble, "split i 16 -> o p"), LoopTarget::cpu);
  EXPECT_THAT(any, AllOf(HasSubstr("o < floord(n - 1, 16) + 1;"), HasSubstr("p < min(16, n - 16 * o);"),
                         Not(HasSubstr("if ("))));
  const std::string whole = body_of(scheduled(kDouble, "assume n mod 16 = 0\nsplit i 16 -> o p"), LoopTarget::cpu);
  EXPECT_THAT(whole, AllOf(HasSubstr("p < 16;"), Not(HasSubstr("min(")), Not(HasSubstr("if ("))));
}

// L4: the same for what is unrolled; or the bulk without, and a last block with it.
TEST(LoopSource, L4_UnrolledBulkAndTail) {
  const std::string steps = "split i 4 -> o p\nunroll p\n";
  EXPECT_THAT(body_of(scheduled(kDouble, steps), LoopTarget::cpu),
              AllOf(HasSubstr("#pragma GCC unroll"), HasSubstr("p < min(4, n - 4 * o);")));
  EXPECT_THAT(body_of(scheduled(kDouble, "assume n mod 4 = 0\n" + steps), LoopTarget::cpu),
              AllOf(HasSubstr("p < 4;"), Not(HasSubstr("min("))));
  const std::string peeled =
      body_of(scheduled(kDouble, steps + "peel o -> last where o >= floor(n/4)"), LoopTarget::cpu);
  const size_t tail = peeled.find("last =");
  ASSERT_NE(tail, std::string::npos) << peeled;
  EXPECT_THAT(peeled.substr(0, tail), AllOf(HasSubstr("p < 4;"), Not(HasSubstr("min("))));
  EXPECT_THAT(peeled.substr(tail), HasSubstr("p < "));
}

// L5: a thread looks whether it is inside, and the grid covers all.
TEST(LoopSource, L5_AGuardedGrid) {
  const Schedule schedule = scheduled(kDouble, "split i 128 -> o:g.0 p:l.0");
  const LoopSource source = codegen::emit_loops(schedule.kernel(), LoopTarget::cuda, "kernel");
  EXPECT_THAT(source.text, AllOf(HasSubstr("const i64 o = blockIdx.x;"), HasSubstr("const i64 p = threadIdx.x;"),
                                 HasSubstr("if (n - 128 * o - p - 1 >= 0) {")));
  EXPECT_EQ(source.threads[0], 128);
  for (const int64_t n : {1, 128, 129, 1000}) EXPECT_EQ(source.blocks({n})[0], (127 + n) / 128) << n;
  const Schedule whole = scheduled(kDouble, "assume n mod 128 = 0\nsplit i 128 -> o:g.0 p:l.0");
  EXPECT_THAT(body_of(whole, LoopTarget::cuda), Not(HasSubstr("if (")));
}

std::string example(const std::string& file) {
  return file_read(std::string(MEGALITH_SOURCE_DIR) + "/examples/loops/" + file);
}

TEST(Loops, AMatmulOnACpuAndAsAGpuRunsIt) {
  const Schedule schedule = scheduled(example("matmul.loops"), example("matmul.schedule"));
  const LoopSource cpu = codegen::emit_loops(schedule.kernel(), LoopTarget::cpu, "matmul_cpu");
  const LoopSource emulated = codegen::emit_loops(schedule.kernel(), LoopTarget::emulated, "matmul_emulated");
  EXPECT_EQ(emulated.num_barriers, 2);
  const CompiledLoops compiled = CompiledLoops::compile({cpu, emulated}, kQuick);
  for (const auto& [n, m, l] : {std::array<int64_t, 3>{32, 16, 48}, {19, 33, 17}, {1, 1, 1}}) {
    const Binding binding{{{"n", n}, {"m", m}, {"l", l}}, {}};
    Arrays inputs = {{"a", Array::zeros({n, l})}, {"b", Array::zeros({l, m})}};
    for (auto& [name, array] : inputs)
      for (size_t i = 0; i < array.values.size(); ++i) array.values[i] = static_cast<double>(i * 7 % 11) - 5;
    Arrays wanted = inputs;
    loop::interpret(schedule.origin(), binding, wanted);
    for (const LoopSource& source : {cpu, emulated}) {
      Arrays found = inputs;
      compiled.run(source, schedule.kernel(), binding, found);
      EXPECT_EQ(found.at("c").values, wanted.at("c").values) << source.name << " of " << n;
    }
  }
}

struct Program {
  const char* name;
  const char* kernel;
  const char* steps;
  std::vector<std::map<std::string, int64_t>> sizes;
};

// loopy's programs (L17 and L19 of its tests, of smaller sizes) under schedules like theirs.
const Program kPrograms[] = {
    {"axpy",
     "attribute a = 2.5\ninput x: f32[n]\ninput y: f32[n]\noutput z: f32[n]\nassume n >= 1\n{ [i] : 0 <= i < n }\n"
     "z[i] = a * x[i] + y[i]\n",
     "split i 32 -> o p\nsplit o 4 -> b:g.0 u:unr\ntag p l.0\n",
     {{{"n", 300}}, {{"n", 256}}}},
    {"axpy_with_slabs",
     "attribute a = 2.5\ninput x: f32[n]\ninput y: f32[n]\noutput z: f32[n]\nassume n >= 1\n{ [i] : 0 <= i < n }\n"
     "z[i] = a * x[i] + y[i]\n",
     "split i 4 -> o p:unr\npeel o -> last where o >= floor(n/4)\n",
     {{{"n", 23}}, {{"n", 24}}, {{"n", 3}}}},
    {"transpose",
     "input a: f32[n, n]\noutput b: f32[n, n]\nassume n >= 1\n{ [i, j] : 0 <= i < n and 0 <= j < n }\nb[i, j] = a[j, "
     "i]\n",
     "tile i j 16 16 -> i_o:g.1 j_o:g.0 i_i:l.1 j_i:l.0\nprefetch a[j_i, i_i] -> t p:l.1 q:l.0\npad t 1 1\n",
     {{{"n", 50}}, {{"n", 32}}}},
    {"rank_one",
     "input a: f32[n]\ninput b: f32[n]\noutput c: f32[n, n]\nassume n >= 1\n{ [i, j] : 0 <= i < n and 0 <= j < n }\n"
     "c[i, j] = a[i] * b[j]\n",
     "tile i j 8 8 -> i_o:g.0 j_o:g.1 i_i:l.0 j_i:l.1\nprefetch a[i_i] -> a_s p:l.0\nprefetch b[j_i] -> b_s q:l.0\n",
     {{{"n", 21}}}},
    {"matmul_with_register_tiles",
     "input a: f32[n, n]\ninput b: f32[n, n]\noutput c: f32[n, n]\nassume n >= 1\n"
     "{ [i, j, k] : 0 <= i < n and 0 <= j < n and 0 <= k < n }\nc[i, j] = sum(k, a[i, k] * b[k, j])\n",
     "tile i j 8 8 -> i_o:g.0 j_o:g.1 i_i j_i\nsplit i_i 2 -> i_t:l.1 i_r:ilp\nsplit j_i 2 -> j_t:l.0 j_r:ilp\n"
     "split k 4 -> k_o k_i\norder i_o j_o k_o i_t j_t k_i i_r j_r\naccumulate k_o k_i -> acc\n"
     "prefetch a[i_t, i_r, k_i] -> a_s p:l.1 q:l.0\n",
     {{{"n", 16}}, {{"n", 13}}}},
    {"computed_where_it_is_needed",
     "input a: f32[n + 2]\noutput y: f32[n]\nassume n >= 1\n{ [i] : 0 <= i < n + 2 }\n{ [j] : 0 <= j < n }\n"
     "t[i] = a[i] * a[i] + 1\ny[j] = t[j] + t[j + 1] + t[j + 2]\n",
     "split j 8 -> o:g.0 p:l.0\nprecompute t[p] -> s q:l.0\n",
     {{{"n", 8}}, {{"n", 19}}}},
    {"joined",
     "input a: f32[16, 16]\noutput b: f32[16, 16]\n{ [i, j] : 0 <= i < 16 and 0 <= j < 16 }\nb[i, j] = 2 * a[i, j]\n",
     "join i j -> ij:l.0\n",
     {{}}},
    {"triangle",
     "input x: f32[n]\noutput y: f32[n, n]\nassume n >= 1\n{ [i, j] : 0 <= j <= i < n }\ny[i, j] = x[i] - x[j]\n",
     "tile i j 4 4 -> i_o:g.0 j_o i_i:l.0 j_i\n",
     {{{"n", 10}}}},
    {"every_third",
     "input x: f32[n]\noutput y: f32[n]\nassume n >= 1\n{ [i] : 0 <= i < n and i mod 3 = 1 }\ny[i] = x[i]\n",
     "split i 8 -> o:g.0 p:l.0\n",
     {{{"n", 20}}}},
    {"diamonds",
     "inout u: f32[9, 32]\n{ [t, i] : 1 <= t < 9 and 1 <= i < 31 }\nu[t, i] = u[t - 1, i - 1] + u[t - 1, i + 1] - u[t "
     "- 1, i]\n",
     "map [t, i] -> v = t + i, w = t - i + 32\ntile v w 4 4 -> v_o w_o v_i w_i\n",
     {{}}},
};

TEST(Loops, L17_L19_ProgramsAndTheirSchedules) {
  std::vector<LoopSource> sources;
  std::vector<Schedule> schedules;
  for (const Program& program : kPrograms) {
    SCOPED_TRACE(program.name);
    schedules.push_back(scheduled(program.kernel, program.steps));
    for (const auto& [target, suffix] : {std::pair(LoopTarget::cpu, "cpu"), {LoopTarget::emulated, "gpu"}})
      sources.push_back(
          codegen::emit_loops(schedules.back().kernel(), target, fmt::format("{}_{}", program.name, suffix)));
  }
  const CompiledLoops compiled = CompiledLoops::compile(sources, kQuick);
  for (size_t i = 0; i < schedules.size(); ++i)
    for (const auto& sizes : kPrograms[i].sizes) {
      const Schedule& schedule = schedules[i];
      const Binding binding{sizes, {}};
      Arrays inputs;
      const loop::Kernel bound = loop::bind_sizes(schedule.origin(), binding);
      for (const loop::TensorArgument& tensor : bound.tensors) {
        if (tensor.role != loop::Role::input && tensor.role != loop::Role::inout) continue;
        std::vector<int64_t> shape;
        for (const loop::Expr& size : tensor.shape) shape.push_back(*loop::constant_value(size));
        Array& array = inputs[tensor.name] = Array::zeros(shape);
        for (size_t at = 0; at < array.values.size(); ++at) array.values[at] = static_cast<double>(at * 7 % 13) - 6;
      }
      Arrays wanted = inputs;
      loop::interpret(schedule.origin(), binding, wanted);
      for (size_t which : {2 * i, 2 * i + 1}) {
        Arrays found = inputs;
        compiled.run(sources[which], schedule.kernel(), binding, found);
        for (const auto& [name, array] : wanted)
          EXPECT_EQ(found.at(name).values, array.values) << sources[which].name << ": " << name;
      }
    }
}

// The emulation shows what is missing: the same source without its barriers computes something else.
TEST(Loops, AnEmulationWithoutBarriersGoesWrong) {
  const std::string reverse =
      "input x: f32[16]\noutput y: f32[16]\n{ [i, j] : 0 <= i, j < 16 }\nt[i] = 2 * x[i]\ny[j] = t[15 - j]\n";
  const Schedule schedule = scheduled(reverse, "tag i l.0 j l.0");
  const LoopSource good = codegen::emit_loops(schedule.kernel(), LoopTarget::emulated, "reversed");
  LoopSource bad = good;
  bad.name = "without";
  bad.text.replace(bad.text.find("reversed"), 8, "without");
  const std::string turn =
      "  }\n  // barrier\n  for (i64 thread = kThreads - 1; thread >= 0; --thread) {\n    threadIdx = "
      "thread_at(thread);\n";
  const size_t barrier = bad.text.find(turn);
  ASSERT_NE(barrier, std::string::npos) << bad.text;
  bad.text.erase(barrier, turn.size());
  const CompiledLoops compiled = CompiledLoops::compile({good, bad}, kQuick);
  Arrays inputs = {{"x", Array::zeros({16})}}, wanted, first, second;
  for (size_t i = 0; i < 16; ++i) inputs["x"].values[i] = static_cast<double>(i + 1);
  wanted = first = second = inputs;
  loop::interpret(schedule.origin(), {}, wanted);
  compiled.run(good, schedule.kernel(), {}, first);
  compiled.run(bad, schedule.kernel(), {}, second);
  EXPECT_EQ(first.at("y").values, wanted.at("y").values);
  EXPECT_NE(second.at("y").values, wanted.at("y").values);
}

TEST(Loops, WhatRandomSchedulesGiveComputesTheSame) {
  const RandomLoops report = check_random_loops(1, 24, 6, kQuick);
  EXPECT_THAT(report.wrong, testing::IsEmpty()) << fmt::format("{}", fmt::join(report.wrong, "\n"));
  EXPECT_GT(report.num_steps, 60);
  EXPECT_GT(report.num_refused, 20);
  EXPECT_GT(report.num_barriers, 0);
  EXPECT_LT(report.num_without, 12);
}

// What is known of sizes is written in behind a schedule: all of them, every second one, or that they are multiples.
TEST(Loops, WhatIsSpecializedAfterRandomSchedulesComputesTheSame) {
  struct Case {
    loop::RandomCase random;
    loop::Kernel kernel;
    LoopSource source;
  };
  std::vector<Case> cases;
  for (uint64_t seed = 500; seed < 512; ++seed) {
    const loop::RandomCase random = loop::random_case(seed, 6);
    LoopSpecialization known;
    size_t number = 0;
    for (const auto& [name, value] : random.binding.sizes) {
      if (!random.schedule.kernel().is_parameter(name)) continue;
      if (number++ % 2 == seed % 2 || seed % 3 == 0)
        known.constants[name] = value;
      else if (value % kLoopMultiple == 0)
        known.multiples.insert(name);
    }
    const loop::Kernel kernel = specialize(random.schedule.kernel(), known);
    for (const auto& [target, suffix] : {std::pair(LoopTarget::cpu, "c"), {LoopTarget::emulated, "g"}}) try {
        cases.push_back(
            {random, kernel, codegen::emit_loops(kernel, target, fmt::format("known_{}_{}", seed, suffix))});
      } catch (const UserError&) {  // a temporary whose size is no number
      }
  }
  ASSERT_GT(cases.size(), 15u);
  std::vector<LoopSource> sources;
  for (const Case& one : cases) sources.push_back(one.source);
  const CompiledLoops compiled = CompiledLoops::compile(sources, kQuick);
  for (const Case& one : cases) {
    Arrays inputs;
    const loop::Kernel bound = loop::bind_sizes(one.random.schedule.origin(), one.random.binding);
    for (const loop::TensorArgument& tensor : bound.tensors) {
      if (tensor.role != loop::Role::input && tensor.role != loop::Role::inout) continue;
      std::vector<int64_t> shape;
      for (const loop::Expr& size : tensor.shape) shape.push_back(*loop::constant_value(size));
      Array& array = inputs[tensor.name] = Array::zeros(shape);
      for (size_t at = 0; at < array.values.size(); ++at) array.values[at] = static_cast<double>(at * 7 % 13) - 6;
    }
    Arrays wanted = inputs, found = inputs;
    loop::interpret(one.random.schedule.origin(), one.random.binding, wanted);
    compiled.run(one.source, one.kernel, one.random.binding, found);
    for (const auto& [name, array] : wanted)
      for (size_t at = 0; at < array.values.size(); ++at)
        ASSERT_NEAR(found.at(name).values[at], array.values[at], 1e-4 * (1 + std::abs(array.values[at])))
            << one.source.name << ": " << name << "\n"
            << one.source.text;
  }
}

// The page shows what the example gives.
TEST(LoopSource, ThePageOfSchedulesIsAsTheExampleIs) {
  const std::string page = file_read(std::string(MEGALITH_SOURCE_DIR) + "/docs/schedules.md");
  EXPECT_THAT(page, HasSubstr(example("matmul.loops")));
  const std::string steps = example("matmul.schedule");
  EXPECT_THAT(page, HasSubstr(steps));
  const Schedule schedule = scheduled(example("matmul.loops"), steps);
  const std::string kernel = loop::print(schedule.kernel());
  EXPECT_THAT(page, HasSubstr(kernel.substr(kernel.find("acc[i_i, j_i] = 0.0"))));
  const std::string text = codegen::emit_loops(schedule.kernel(), LoopTarget::cuda, "matmul").text;
  EXPECT_THAT(page, HasSubstr(text.substr(text.find("  __shared__"))));
}

TEST(LoopSource, WhatCannotBeCodeIsSaid) {
  const auto refusal = [](const std::string& kernel, const std::string& steps, LoopTarget target) {
    try {
      body_of(scheduled(kernel, steps), target);
    } catch (const UserError& error) { return std::string(error.what()); }
    return std::string();
  };
  EXPECT_THAT(refusal("input a: f32[n]\ninput at: i32[m]\noutput y: f32[m]\n{ [i] : 0 <= i < m }\ny[i] = a[at[i]]\n",
                      "", LoopTarget::cpu),
              HasSubstr("the subscript at[i] of a is not affine"));
  EXPECT_THAT(
      refusal("input a: f32[n]\noutput int: f32[n]\n{ [i] : 0 <= i < n }\nint[i] = a[i]\n", "", LoopTarget::cpu),
      HasSubstr("\"int\" has a meaning in generated code: rename it"));
  EXPECT_THAT(refusal(kDouble, "tag i l.0", LoopTarget::cuda),
              HasSubstr("a block has at most 1024 threads; split i first"));
  EXPECT_THAT(refusal(kDouble, "split i 64 -> o:l.0 p:l.0", LoopTarget::cuda), HasSubstr("which are both tagged l.0"));
}

}  // namespace
}  // namespace megalith::jit
