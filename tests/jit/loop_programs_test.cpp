// Programs under schedules: code for a CPU and what a GPU would run (emulated) compute what the interpreter does.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "jit/scheduled.h"
#include "megalith/loop/domain.h"
#include "megalith/loop/stages.h"
#include "support/loop_programs.h"

namespace megalith::jit {
namespace {

using codegen::LoopSource;
using codegen::LoopTarget;
using loop::Array;
using loop::Arrays;
using loop::Binding;
using loop::Schedule;
using megalith::testing::kLoopPrograms;
using megalith::testing::LoopProgram;
using megalith::testing::small_number;
using megalith::testing::tree_programs;
using megalith::testing::TreeProgram;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(LoopPrograms, L17_L19_ProgramsAndTheirSchedules) {
  std::vector<LoopSource> sources;
  std::vector<Schedule> schedules;
  for (const LoopProgram& program : kLoopPrograms) {
    SCOPED_TRACE(program.name);
    schedules.push_back(scheduled(program.kernel, program.steps));
    std::set<std::string> aligned;  // as all memory here is
    for (const loop::TensorArgument& tensor : schedules.back().kernel().tensors)
      if (tensor.role != loop::Role::temporary) aligned.insert(tensor.name);
    for (const auto& [target, suffix] : {std::pair(LoopTarget::cpu, "cpu"), {LoopTarget::emulated, "gpu"}})
      sources.push_back(
          codegen::emit_loops(schedules.back().kernel(), target, fmt::format("{}_{}", program.name, suffix), aligned));
  }
  const CompiledLoops compiled = CompiledLoops::compile(sources, kQuickFlags);
  for (size_t i = 0; i < schedules.size(); ++i)
    for (const auto& sizes : kLoopPrograms[i].sizes) {
      const Schedule& schedule = schedules[i];
      const Binding binding{sizes, {}};
      Arrays inputs;
      const loop::Kernel bound = loop::bind_sizes(schedule.origin(), binding);
      for (const loop::TensorArgument& tensor : bound.tensors) {
        if (tensor.role != loop::Role::input && tensor.role != loop::Role::inout) continue;
        std::vector<int64_t> shape;
        for (const loop::Expr& size : tensor.shape) shape.push_back(*loop::constant_value(size));
        Array& array = inputs[tensor.name] = Array::zeros(shape);
        for (size_t at = 0; at < array.values.size(); ++at) array.values[at] = small_number(at);
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

void expect_same(const Schedule& schedule, const std::vector<Binding>& bindings,
                 const std::function<double(size_t)>& value) {
  const LoopSource cpu = codegen::emit_loops(schedule.kernel(), LoopTarget::cpu, "on_cpu");
  const LoopSource gpu = codegen::emit_loops(schedule.kernel(), LoopTarget::emulated, "as_gpu");
  const CompiledLoops compiled = CompiledLoops::compile({cpu, gpu}, kQuickFlags);
  for (const Binding& binding : bindings) {
    Arrays inputs;
    const loop::Kernel bound = loop::bind_sizes(schedule.origin(), binding);
    for (const loop::TensorArgument& tensor : bound.tensors) {
      if (tensor.role != loop::Role::input) continue;
      std::vector<int64_t> shape;
      for (const loop::Expr& size : tensor.shape) shape.push_back(*loop::constant_value(size));
      Array& array = inputs[tensor.name] = Array::zeros(shape);
      for (size_t at = 0; at < array.values.size(); ++at) array.values[at] = value(at);
    }
    Arrays wanted = inputs, interpreted = inputs;
    loop::interpret(schedule.origin(), binding, wanted);
    loop::interpret(schedule.kernel(), binding, interpreted);
    for (const LoopSource* source : {&cpu, &gpu}) {
      Arrays found = inputs;
      compiled.run(*source, schedule.kernel(), binding, found);
      for (const auto& [name, array] : wanted) {
        EXPECT_EQ(found.at(name).values, array.values) << source->name << ": " << name;
        EXPECT_EQ(interpreted.at(name).values, array.values) << name;
      }
    }
  }
}

// L18
TEST(LoopPrograms, L18_ReductionsByATree) {
  for (const TreeProgram& program : tree_programs()) {
    SCOPED_TRACE(program.kernel + program.steps);
    std::vector<Binding> bindings;
    for (const auto& sizes : program.sizes) bindings.push_back({sizes, {}});
    expect_same(scheduled(program.kernel, program.steps), bindings, program.value);
  }
}

TEST(LoopPrograms, TreesInWarpsWaitForTheirWarpOnly) {
  const std::string rows =
      "input a: f32[n, m]\noutput y: f32[n]\nassume n >= 1 and m >= 1\n"
      "{ [i, k] : 0 <= i < n and 0 <= k < m }\ny[i] = sum(k, a[i, k], a[i, k] > 0)\n";
  const Schedule schedule =
      scheduled(rows, "split i 4 -> i_o:g.0 i_w\norder i_o k i_w\ntree k 32 -> part p:lane\ntag i_w w");
  const std::string cuda = body_of(schedule, LoopTarget::cuda);
  EXPECT_THAT(cuda, AllOf(HasSubstr("__syncwarp();"), Not(HasSubstr("__syncthreads"))));
  expect_same(schedule, {{{{"n", 13}, {"m", 45}}, {}}, {{{"n", 4}, {"m", 3}}, {}}}, small_number);
}

}  // namespace
}  // namespace megalith::jit
