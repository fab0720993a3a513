// split_stages, add_barrier, remove_barrier, leave_unordered
#include "megalith/loop/stages.h"

#include <algorithm>

#include "megalith/loop/access.h"
#include "megalith/loop/instance.h"
#include "megalith/loop/rules.h"
#include "megalith/loop/tag.h"
#include "megalith/loop/transform/rewrite.h"
#include "megalith/loop/transform/transform.h"

namespace megalith::loop {

namespace {

struct Touched {
  std::set<std::string> read, written;
};

Touched touched_by(const std::vector<Instruction>& instructions) {
  Touched touched;
  for (const Instruction& instruction : instructions)
    visit_expressions(instruction, [&](const Expr& expr, const Place& place) {
      if (expr.kind == Expr::Kind::subscript) (place.is_target ? touched.written : touched.read).insert(expr.name);
    });
  return touched;
}

// What the tensor is to a part; `before` and `elsewhere`: whether a part before it writes it, another one touches it.
TensorArgument in_stage(const Kernel& kernel, TensorArgument tensor, const Touched& here, bool before, bool elsewhere) {
  const bool is_written = here.written.contains(tensor.name);
  if (tensor.role == Role::temporary) {
    // What nothing wrote before is read by instructions that never run.
    if (!elsewhere || (!is_written && !before)) return tensor;
    if (tensor.space != Space::automatic && tensor.space != Space::global)
      refuse(kernel, "{} is {}, but is needed on both sides of a barrier over all blocks: make it global", tensor.name,
             space_name(tensor.space));
    if (!tensor.storage.empty())
      refuse(kernel, "{} shares its storage, but is needed on both sides of a barrier over all blocks", tensor.name);
    tensor.space = Space::automatic;
    tensor.role = Role::output;
  }
  if (!is_written)
    tensor.role = Role::input;
  else if (before)
    tensor.role = Role::inout;
  return tensor;
}

}  // namespace

bool has_stages(const Kernel& kernel) {
  return std::ranges::any_of(kernel.instructions, [](const Instruction& i) { return i.is_behind_barrier; });
}

std::vector<size_t> stage_of_instructions(const Kernel& kernel) {
  std::vector<size_t> stages;
  size_t stage = 0;
  for (const Instruction& instruction : kernel.instructions) {
    if (instruction.is_behind_barrier) ++stage;
    stages.push_back(stage);
  }
  return stages;
}

std::vector<Kernel> split_stages(const Kernel& with_rules) {
  const Kernel kernel = without_rules(with_rules);
  if (!has_stages(kernel)) return {kernel};
  const std::vector<size_t> stages = stage_of_instructions(kernel);
  std::vector<std::vector<Instruction>> parts(stages.back() + 1);
  for (size_t i = 0; i < stages.size(); ++i) parts[stages[i]].push_back(kernel.instructions[i]);
  std::vector<Touched> touched;
  for (const auto& part : parts) touched.push_back(touched_by(part));
  std::vector<Kernel> result;
  for (size_t stage = 0; stage < parts.size(); ++stage) {
    Kernel part = kernel;
    part.name = fmt::format("{}_{}", kernel.name.empty() ? "kernel" : kernel.name, stage);
    part.instructions = parts[stage];
    std::set<std::string> ids;
    for (Instruction& instruction : part.instructions) {
      instruction.is_behind_barrier = false;
      std::erase_if(instruction.depends_on, [&](const std::string& id) { return !ids.contains(id); });
      std::erase_if(instruction.unordered, [&](const std::string& id) { return !ids.contains(id); });
      ids.insert(instruction.id);
    }
    part.tensors.clear();
    for (const TensorArgument& tensor : kernel.tensors) {
      const auto touches = [&](size_t other) {
        return touched[other].read.contains(tensor.name) || touched[other].written.contains(tensor.name);
      };
      if (!touches(stage)) continue;
      bool before = false, elsewhere = false;
      for (size_t other = 0; other < parts.size(); ++other) {
        before |= other < stage && touched[other].written.contains(tensor.name);
        elsewhere |= other != stage && touches(other);
      }
      part.tensors.push_back(in_stage(kernel, tensor, touched[stage], before, elsewhere));
    }
    result.push_back(finished(std::move(part)));
  }
  return result;
}

Kernel add_barrier(const Kernel& kernel, const std::string& id) {
  Kernel result = kernel;
  const auto found = std::ranges::find(result.instructions, id, &Instruction::id);
  if (found == result.instructions.end()) refuse(kernel, "there is no instruction \"{}\"", id);
  if (found == result.instructions.begin()) refuse(kernel, "nothing stands before \"{}\" that it could wait for", id);
  if (found->is_behind_barrier) refuse(kernel, "there is a barrier before \"{}\" already", id);
  found->is_behind_barrier = true;
  check_order_kept(kernel, result, {}, "duplicate its loops first, so that all before it is done");
  return result;
}

Kernel leave_unordered(const Kernel& kernel, const std::string& a, const std::string& b) {
  Kernel result = kernel;
  for (const std::string& id : {a, b})
    if (std::ranges::find(result.instructions, id, &Instruction::id) == result.instructions.end())
      refuse(kernel, "there is no instruction \"{}\"", id);
  std::vector<std::string>& unordered = std::ranges::find(result.instructions, b, &Instruction::id)->unordered;
  if (!is_among(unordered, a)) unordered.push_back(a);
  return result;
}

Kernel remove_barrier(const Kernel& kernel, const std::string& id) {
  Kernel result = kernel;
  const auto found = std::ranges::find(result.instructions, id, &Instruction::id);
  if (found == result.instructions.end()) refuse(kernel, "there is no instruction \"{}\"", id);
  if (!found->is_behind_barrier) refuse(kernel, "there is no barrier before \"{}\"", id);
  found->is_behind_barrier = false;
  check_order_kept(kernel, result, {}, "duplicate its loops first");
  return result;
}

}  // namespace megalith::loop
