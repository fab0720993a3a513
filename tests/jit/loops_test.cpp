// Scheduled loop kernels as code: that it computes what the interpreter does, as a CPU runs it and as a GPU would (emulated).
#include "megalith/jit/loops.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "jit/scheduled.h"
#include "megalith/jit/loop_program.h"
#include "megalith/jit/random_loops.h"
#include "megalith/loop/domain.h"
#include "megalith/loop/stages.h"
#include "megalith/loop/transform/random_schedule.h"
#include "megalith/loop/transform/steps.h"
#include "megalith/loop/transform/transform.h"

namespace megalith::jit {
namespace {

using codegen::LoopSource;
using codegen::LoopTarget;
using loop::Array;
using loop::Arrays;
using loop::Binding;
using loop::Schedule;
using ::testing::HasSubstr;

TEST(Loops, AMatmulOnACpuAndAsAGpuRunsIt) {
  const Schedule schedule = scheduled(example("matmul.loops"), example("matmul.schedule"));
  const LoopSource cpu = codegen::emit_loops(schedule.kernel(), LoopTarget::cpu, "matmul_cpu");
  const LoopSource emulated = codegen::emit_loops(schedule.kernel(), LoopTarget::emulated, "matmul_emulated");
  EXPECT_EQ(emulated.num_barriers, 2);
  const CompiledLoops compiled = CompiledLoops::compile({cpu, emulated}, kQuickFlags);
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

// Squares of every width that there is code for, whole and with tails; the values of a sum of a square, of what is not
// turned round and of a number; and where vectors begin anywhere, so that they cannot go past the caches.
TEST(Loops, SquaresInRegistersComputeTheSame) {
  std::vector<LoopSource> sources;
  std::vector<Schedule> schedules;
  for (const int width : {4, 8, 16})
    for (const char* value : {"a[i, j]", "2 * a[i, j] + b[j, i] - a[0, j]"}) {
      std::string text = kTransposition + std::string("b[j, i] = ") + value + "\n";
      if (std::string(value) != "a[i, j]") text.replace(text.find("output b"), 8, "inout b");
      schedules.push_back(scheduled(
          text, fmt::format("split i {0} -> i_o p:vec, j {0} -> j_o q:vec\norder j_o i_o q p\nstream b\n", width)));
      sources.push_back(
          codegen::emit_loops(schedules.back().kernel(), LoopTarget::cpu, fmt::format("squares_{}", sources.size())));
      EXPECT_THAT(sources.back().text, HasSubstr(fmt::format("transpose_pack<{}>", width)));
    }
  schedules.push_back(scheduled(example("transpose.loops"), example("transpose_cpu.schedule")));
  sources.push_back(codegen::emit_loops(schedules.back().kernel(), LoopTarget::cpu, "transpose_cpu"));
  // As this machine has vectors, and as one of half their width has.
  for (const char* flag : {"-march=native", "-mno-avx512f"}) {
#if !defined(__x86_64__)
    if (std::string(flag) != "-march=native") continue;
#endif
    std::vector<std::string> flags = kQuickFlags;
    flags.insert(flags.end(), {"-march=native", flag});
    const CompiledLoops compiled = CompiledLoops::compile(sources, flags);
    for (size_t which = 0; which < sources.size(); ++which)
      for (const auto& [n, m] : {std::array<int64_t, 2>{32, 48}, {33, 19}, {3, 50}, {1, 1}}) {
        const Binding binding{{{"n", n}, {"m", m}}, {}};
        Arrays inputs = {{"a", Array::zeros({n, m})}};
        if (schedules[which].kernel().find_tensor("b")->role == loop::Role::inout) inputs["b"] = Array::zeros({m, n});
        for (auto& [name, array] : inputs)
          for (size_t i = 0; i < array.values.size(); ++i) array.values[i] = static_cast<double>(i * 7 % 101) - 5;
        Arrays wanted = inputs, found = inputs;
        loop::interpret(schedules[which].origin(), binding, wanted);
        compiled.run(sources[which], schedules[which].kernel(), binding, found);
        ASSERT_EQ(found.at("b").values, wanted.at("b").values) << sources[which].text << n << " x " << m << " " << flag;
      }
  }
}

// The examples that keep elements in registers, as a GPU would run them.
TEST(Loops, ExamplesWithRegistersComputeTheSame) {
  struct Example {
    const char *kernel, *schedule;
    std::map<std::string, int64_t> sizes;
    std::map<std::string, std::vector<int64_t>> inputs;
  };
  const Example examples[] = {
      {"matmul", "matmul_registers", {{"n", 128}, {"m", 128}, {"l", 64}}, {{"a", {128, 64}}, {"b", {64, 128}}}},
      {"softmax", "softmax_registers", {{"n", 2}, {"m", 2060}}, {{"x", {2, 2060}}}},
      {"layernorm", "layernorm", {{"n", 3}, {"m", 1100}}, {{"x", {3, 1100}}, {"weight", {1100}}, {"bias", {1100}}}}};
  for (const Example& one : examples) {
    SCOPED_TRACE(one.schedule);
    // Looked at as a whole, when it is made code, and not after each of its steps.
    const Schedule plain = scheduled(example(std::string(one.kernel) + ".loops"), "");
    loop::Kernel kernel = plain.kernel();
    std::istringstream steps(example(std::string(one.schedule) + ".schedule"));
    for (std::string line; std::getline(steps, line);)
      if (!loop::step_words(line).empty()) kernel = loop::run_step(kernel, line, {});
    std::set<std::string> aligned;
    for (const loop::TensorArgument& tensor : plain.kernel().tensors) aligned.insert(tensor.name);
    const LoopSource source = codegen::emit_loops(kernel, LoopTarget::emulated, "example", aligned);
    EXPECT_THAT(source.text, HasSubstr("load_pack<4>"));
    const CompiledLoops compiled = CompiledLoops::compile({source}, kQuickFlags);
    const Binding binding{one.sizes, {{"eps", 1e-5}}};
    Arrays found;
    for (const auto& [name, shape] : one.inputs) {
      Array& array = found[name] = Array::zeros(shape);
      for (size_t at = 0; at < array.values.size(); ++at) array.values[at] = static_cast<double>(at * 7 % 13) - 6;
    }
    Arrays wanted = found;
    loop::interpret(plain.kernel(), binding, wanted);
    compiled.run(source, kernel, binding, found);
    const std::string output = std::string(one.kernel) == "matmul" ? "c" : "y";
    for (size_t at = 0; at < wanted.at(output).values.size(); ++at)
      ASSERT_NEAR(found.at(output).values[at], wanted.at(output).values[at], 1e-4) << at;
  }
}

// As the interpreter does, wherever the NaN stands and however the values are reduced.
TEST(Loops, MaximaKeepNaN) {
  const std::string text =
      "input x: f32[n]\noutput high: f32[1]\noutput low: f32[1]\noutput place: i32[1]\noutput both: f32[n]\n"
      "assume n >= 1\n{ [i, j, k, e] : 0 <= i, j, k, e < n }\nhigh[0] = max(i, x[i])\nlow[0] = min(j, x[j])\n"
      "place[0] = argmax(k, x[k])\nboth[e] = max(x[e], 0) + min(0, x[e])\n";
  const Schedule schedule = scheduled(text, "tree i 8 -> part p:l.0\n");
  const LoopSource cpu = codegen::emit_loops(schedule.kernel(), LoopTarget::cpu, "nan_cpu");
  const LoopSource gpu = codegen::emit_loops(schedule.kernel(), LoopTarget::emulated, "nan_gpu");
  const CompiledLoops compiled = CompiledLoops::compile({cpu, gpu}, kQuickFlags);
  for (const size_t nan : {0, 5, 19}) {
    const Binding binding{{{"n", 20}}, {}};
    Arrays inputs = {{"x", Array::zeros({20})}};
    for (size_t i = 0; i < 20; ++i) inputs.at("x").values[i] = i == nan ? NAN : static_cast<double>(i * 7 % 20) - 9;
    Arrays wanted = inputs;
    loop::interpret(schedule.origin(), binding, wanted);
    ASSERT_TRUE(std::isnan(wanted.at("high").values[0]));
    for (const LoopSource& source : {cpu, gpu}) {
      Arrays found = inputs;
      compiled.run(source, schedule.kernel(), binding, found);
      for (const char* name : {"high", "low", "both"})
        for (size_t i = 0; i < wanted.at(name).values.size(); ++i)
          EXPECT_TRUE(found.at(name).values[i] == wanted.at(name).values[i] ||
                      (std::isnan(found.at(name).values[i]) && std::isnan(wanted.at(name).values[i])))
              << source.name << ": " << name << " at " << i;
      EXPECT_EQ(found.at("place").values, wanted.at("place").values) << source.name << " of " << nan;
    }
  }
}

// A sum over blocks: partial sums in one kernel, what they come to in another. By steps, and as tags of its inames say.
class SumOverBlocks : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(
    Loops, SumOverBlocks,
    ::testing::Values("split i 64 -> b i_i\nsplit_reduction b part\nduplicate b -> s in insn0\n"
                      "tree i_i -> in_block p:l.0\nbarrier before insn0\ntag b g.0\ntree s 32 -> all q:lane\n",
                      "split i 64 -> b:g.0 i_i:l.0\n", "split i 64 -> b:g.0 i_i\nsplit i_i 32 -> i_w:w i_l:lane\n",
                      "split i 64 -> b:g.0 i_i:l.0\nrealise_reductions\n"));

TEST_P(SumOverBlocks, ABarrierOverAllBlocksCutsTheKernel) {
  const std::string total =
      "input a: f32[n]\noutput y: f32[1]\nassume n >= 1\n{ [i] : 0 <= i < n }\ny[0] = sum(i, a[i])\n";
  const Schedule schedule = scheduled(total, GetParam());
  EXPECT_EQ(loop::print(loop::parse_kernel(loop::print(schedule.kernel()))), loop::print(schedule.kernel()));
  EXPECT_THAT([&] { body_of(schedule, LoopTarget::cuda); },
              testing::ThrowsMessage<UserError>(HasSubstr("emit its stages")));
  std::vector<LoopSource> all;
  std::vector<std::vector<LoopSource>> sources;
  const std::vector<loop::Kernel> stages = loop::split_stages(loop::realise_dealt_out(schedule.kernel()));
  ASSERT_EQ(stages.size(), 2u);
  for (const auto& [target, name] : {std::pair(LoopTarget::cpu, "on_cpu"), {LoopTarget::emulated, "as_gpu"}}) {
    sources.push_back(codegen::emit_stages(schedule.kernel(), target, name));
    ASSERT_EQ(sources.back().size(), 2u);
    all.insert(all.end(), sources.back().begin(), sources.back().end());
  }
  EXPECT_EQ(sources[1][0].blocks({1000})[0], 16);
  EXPECT_EQ(sources[1][1].blocks({1000})[0], 1);
  EXPECT_EQ(sources[1][0].tensors, (std::vector<std::string>{"a", "part"}));
  EXPECT_EQ(sources[1][1].tensors, (std::vector<std::string>{"y", "part"}));
  const CompiledLoops compiled = CompiledLoops::compile(all, kQuickFlags);
  for (const int64_t n : {1, 64, 1000, 5000}) {
    const Binding binding{{{"n", n}}, {}};
    Arrays inputs = {{"a", Array::zeros({n})}};
    for (size_t i = 0; i < inputs["a"].values.size(); ++i) inputs["a"].values[i] = static_cast<double>(i * 7 % 11) - 5;
    Arrays wanted = inputs;
    loop::interpret(schedule.kernel(), binding, wanted);
    EXPECT_EQ(wanted.at("y").values[0], std::accumulate(inputs["a"].values.begin(), inputs["a"].values.end(), 0.0));
    for (const std::vector<LoopSource>& parts : sources) {
      Arrays found = inputs;
      for (size_t i = 0; i < parts.size(); ++i) compiled.run(parts[i], stages[i], binding, found);
      EXPECT_EQ(found.at("y").values, wanted.at("y").values) << parts[0].name << " of " << n;
    }
  }
}

// The emulation shows what is missing: the same source without its barriers computes something else.
TEST(Loops, AnEmulationWithoutBarriersGoesWrong) {
  const std::string reverse =
      "input x: f32[48]\noutput y: f32[48]\n{ [i, j] : 0 <= i, j < 48 }\nt[i] = 2 * x[i]\ny[j] = t[47 - j]\n";
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
  const CompiledLoops compiled = CompiledLoops::compile({good, bad}, kQuickFlags);
  Arrays inputs = {{"x", Array::zeros({48})}}, wanted, first, second;
  for (size_t i = 0; i < 48; ++i) inputs["x"].values[i] = static_cast<double>(i + 1);
  wanted = first = second = inputs;
  loop::interpret(schedule.origin(), {}, wanted);
  compiled.run(good, schedule.kernel(), {}, first);
  compiled.run(bad, schedule.kernel(), {}, second);
  EXPECT_EQ(first.at("y").values, wanted.at("y").values);
  EXPECT_NE(second.at("y").values, wanted.at("y").values);
}

TEST(Loops, WhatRandomSchedulesGiveComputesTheSame) {
  const RandomLoops report = check_random_loops(1, 24, 6, kQuickFlags);
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
  const CompiledLoops compiled = CompiledLoops::compile(sources, kQuickFlags);
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
    for (const auto& [name, array] : wanted) {
      if (!found.contains(name)) continue;  // fused with what takes it
      for (size_t at = 0; at < array.values.size(); ++at)
        ASSERT_NEAR(found.at(name).values[at], array.values[at], 1e-4 * (1 + std::abs(array.values[at])))
            << one.source.name << ": " << name << "\n"
            << one.source.text;
    }
  }
}

}  // namespace
}  // namespace megalith::jit
