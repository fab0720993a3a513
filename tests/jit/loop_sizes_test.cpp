// loopy's programs at its sizes (tests/support/sized_loop_programs.h), compiled as a CPU's code is.
#include <gtest/gtest.h>

#include "jit/scheduled.h"
#include "support/sized_loop_programs.h"

namespace megalith::jit {
namespace {

using codegen::LoopSource;
using codegen::LoopTarget;
using megalith::testing::inputs_of;
using megalith::testing::sized_loop_programs;
using megalith::testing::SizedLoopProgram;
using megalith::testing::wrong_element;

TEST(LoopSizes, L17_ProgramsAtTheirSizes) {
  std::vector<LoopSource> sources;
  std::vector<loop::Schedule> schedules;
  for (const SizedLoopProgram& program : sized_loop_programs()) {
    SCOPED_TRACE(program.name);
    schedules.push_back(scheduled(program.kernel, program.steps));
    sources.push_back(codegen::emit_loops(schedules.back().kernel(), LoopTarget::cpu, program.name));
  }
  const CompiledLoops compiled = CompiledLoops::compile(sources, {"-std=c++20", "-fPIC", "-O2", "-w"});
  for (size_t i = 0; i < sources.size(); ++i) {
    const SizedLoopProgram& program = sized_loop_programs()[i];
    loop::Arrays arrays = inputs_of(program);
    compiled.run(sources[i], schedules[i].kernel(), {{{"n", program.n}}, {}}, arrays);
    EXPECT_EQ(wrong_element(program, arrays), -1) << program.name;
  }
}

}  // namespace
}  // namespace megalith::jit
