#include "megalith/jit/random_loops.h"

#include <fmt/format.h>

#include <cmath>
#include <random>
#include <set>

#include "megalith/base/error.h"
#include "megalith/jit/loops.h"
#include "megalith/loop/domain.h"
#include "megalith/loop/rules.h"
#include "megalith/loop/stages.h"
#include "megalith/loop/text.h"
#include "megalith/loop/transform/random_schedule.h"
#include "megalith/loop/transform/transform.h"

namespace megalith::jit {

namespace {

struct Case {
  uint64_t seed;
  loop::RandomCase random;
  std::vector<loop::Kernel> stages;
  std::vector<std::vector<codegen::LoopSource>> sources;  // of each target: a function for each stage
};

loop::Arrays random_inputs(const loop::Kernel& kernel, const loop::Binding& binding, uint64_t seed) {
  std::mt19937_64 random(seed);
  loop::Arrays arrays;
  const loop::Kernel bound = loop::bind_sizes(kernel, binding);
  for (const loop::TensorArgument& tensor : bound.tensors) {
    if (tensor.role != loop::Role::input && tensor.role != loop::Role::inout) continue;
    std::vector<int64_t> shape;
    for (const loop::Expr& size : tensor.shape) shape.push_back(*loop::constant_value(size));
    loop::Array& array = arrays[tensor.name] = loop::Array::zeros(shape);
    for (double& value : array.values) value = static_cast<float>(static_cast<double>(random() % 2001) / 1000 - 1);
  }
  return arrays;
}

// Each begins at a multiple of 16 bytes, as memory of the system's does.
std::set<std::string> all_tensors(const loop::Kernel& kernel) {
  std::set<std::string> names;
  for (const loop::TensorArgument& tensor : kernel.tensors) names.insert(tensor.name);
  return names;
}

// What the kernel, and the consumer that may have been fused with it, give by the interpreter.
loop::Arrays wanted_of(const loop::RandomCase& random, const loop::Arrays& inputs) {
  loop::Arrays wanted = inputs, consumed;
  loop::interpret(random.schedule.origin(), random.binding, wanted);
  consumed["p"] = wanted.at("y");
  loop::interpret(random.consumer, random.binding, consumed);
  wanted["z"] = consumed.at("z");
  return wanted;
}

// "" if all that the kernel writes is as wanted.
std::string difference(const loop::Kernel& kernel, const loop::Arrays& wanted, const loop::Arrays& found) {
  for (const loop::TensorArgument& tensor : kernel.tensors) {
    if (tensor.role != loop::Role::output && tensor.role != loop::Role::inout) continue;
    const std::string& name = tensor.name;
    const loop::Array& want = wanted.at(name.starts_with("z") ? "z" : "y");  // fused twice, it writes two of them
    const loop::Array& have = found.at(name);
    if (have.values.size() != want.values.size()) return name + " has another size";
    for (size_t i = 0; i < want.values.size(); ++i)
      if (!(std::abs(have.values[i] - want.values[i]) <= 1e-4 * (1 + std::abs(want.values[i]))))
        return fmt::format("{} at {} is {}, wanted {}", name, i, have.values[i], want.values[i]);
  }
  return "";
}

}  // namespace

RandomLoops check_random_loops(uint64_t first, int count, int num_steps, const std::vector<std::string>& flags) {
  RandomLoops report;
  std::vector<Case> cases;
  std::vector<codegen::LoopSource> all;
  for (int i = 0; i < count; ++i) {
    const uint64_t seed = first + static_cast<uint64_t>(i);
    Case next{seed, loop::random_case(seed, num_steps), {}, {}};
    report.num_kernels += 1;
    report.num_steps += static_cast<int>(next.random.schedule.steps().size());
    for (const std::string& step : next.random.schedule.steps()) ++report.accepted[step.substr(0, step.find(' '))];
    report.num_refused += static_cast<int>(next.random.refused.size());
    for (const auto& [target, suffix] :
         {std::pair(codegen::LoopTarget::cpu, "c"), {codegen::LoopTarget::emulated, "g"}})
      try {
        next.sources.push_back(codegen::emit_stages(next.random.schedule.kernel(), target,
                                                    fmt::format("random_{}_{}", seed, suffix),
                                                    all_tensors(next.random.schedule.kernel())));
      } catch (const UserError&) { ++report.num_without; }
    for (const loop::TensorArgument& tensor : next.random.schedule.kernel().tensors)
      report.sources_with["lanes"] += tensor.space == loop::Space::warp;
    next.stages = loop::split_stages(loop::realise_dealt_out(loop::without_rules(next.random.schedule.kernel())));
    report.num_cut += next.stages.size() > 1 ? 1 : 0;
    for (const std::vector<codegen::LoopSource>& parts : next.sources) {
      for (const codegen::LoopSource& part : parts) {
        report.num_barriers += part.num_barriers;
        for (const char* what : {"_pack<", "store_vector<", "stream_vector<", "transpose_pack<"})
          report.sources_with[what] += part.text.find(what) != std::string::npos;
      }
      all.insert(all.end(), parts.begin(), parts.end());
    }
    cases.push_back(std::move(next));
  }
  if (all.empty()) return report;
  const CompiledLoops compiled = CompiledLoops::compile(all, flags);
  for (const Case& one : cases) {
    const loop::Schedule& schedule = one.random.schedule;
    const loop::Arrays inputs = random_inputs(schedule.origin(), one.random.binding, one.seed);
    const loop::Arrays wanted = wanted_of(one.random, inputs);
    std::string wrong;
    loop::Arrays again = inputs;
    loop::interpret(schedule.kernel(), one.random.binding, again);
    if (const std::string text = difference(schedule.kernel(), wanted, again); !text.empty())
      wrong = "interpreted: " + text;
    for (const std::vector<codegen::LoopSource>& parts : one.sources) {
      loop::Arrays found = inputs;
      try {
        for (size_t stage = 0; stage < parts.size(); ++stage)
          compiled.run(parts[stage], one.stages[stage], one.random.binding, found);
      } catch (const UserError& error) {
        wrong = fmt::format("{}: {}", parts[0].name, error.what());
        break;
      }
      if (const std::string text = difference(schedule.kernel(), wanted, found); !text.empty() && wrong.empty())
        wrong = fmt::format("{}: {}", parts[0].name, text);
    }
    if (!wrong.empty())
      report.wrong.push_back(fmt::format("seed {}: {}\n{}{}", one.seed, wrong, loop::print(schedule.origin()),
                                         schedule.text() + loop::print(one.random.consumer)));
  }
  return report;
}

}  // namespace megalith::jit
