#include "megalith/codegen/place.h"

#include <algorithm>
#include <set>

#include "megalith/base/error.h"
#include "megalith/codegen/source_text.h"
#include "megalith/loop/linear_sum.h"

namespace megalith::codegen {

using loop::Expr;
using loop::Kernel;
using loop::NestNode;

namespace {

// Beyond these a temporary goes to scratch: a worker's stack is small, and 16 KB is half of an L1 cache.
constexpr int64_t kMaxStackBytes = 16 << 10;
constexpr int64_t kMaxStackBytesOfKernel = 64 << 10;
constexpr int64_t kScratchAlignment = 64;

struct Access {
  const Expr* subscript;
  int instruction;
};

void collect(const Expr& expr, int instruction, std::map<std::string, std::vector<Access>>& accesses) {
  if (expr.kind == Expr::Kind::subscript) accesses[expr.name].push_back({&expr, instruction});
  for (const Expr& arg : expr.args) collect(arg, instruction, accesses);
}

void collect_paths(const NestNode& node, std::vector<const NestNode*>& open,
                   std::map<int, std::vector<const NestNode*>>& paths) {
  if (node.instruction >= 0) paths[node.instruction] = open;
  if (node.iname.empty()) return;
  open.push_back(&node);
  for (const NestNode& child : node.body) collect_paths(child, open, paths);
  open.pop_back();
}

std::vector<const NestNode*> common_path(const std::vector<Access>& accesses,
                                         const std::map<int, std::vector<const NestNode*>>& paths) {
  std::vector<const NestNode*> common = paths.at(accesses.front().instruction);
  for (const Access& access : accesses) {
    const auto& path = paths.at(access.instruction);
    const auto differ = std::ranges::mismatch(common, path);
    common.erase(differ.in1, common.end());
  }
  return common;
}

// The loop around all accesses that indexes dimension `d` in each of them: its depth, counted from 1; 0 if there is
// none.
size_t shared_loop(const std::vector<Access>& accesses, size_t d, const std::vector<const NestNode*>& common) {
  for (size_t depth = 0; depth < common.size(); ++depth)
    if (std::ranges::all_of(accesses, [&](const Access& access) {
          const Expr& index = access.subscript->args[d];
          return index.kind == Expr::Kind::name && index.name == common[depth]->iname;
        }))
      return depth + 1;
  return 0;
}

Place plan_temporary(const Kernel& kernel, Place place, const std::vector<int64_t>& shape,
                     const std::vector<Access>& accesses, const std::map<int, std::vector<const NestNode*>>& paths) {
  const std::vector<const NestNode*> common = common_path(accesses, paths);
  size_t depth = 0;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (const size_t loop = shared_loop(accesses, d, common)) {
      depth = std::max(depth, loop);
      place.vanished.insert(d);
    } else {
      place.num_elements *= shape[d];
    }
  }
  place.depth = static_cast<int>(depth);
  const bool scalar = place.vanished.size() == shape.size();
  place.where = scalar ? Place::Where::scalar : Place::Where::stack;

  std::vector<int> writers;
  for (const Access& access : accesses)
    if (access.subscript == &kernel.instructions[static_cast<size_t>(access.instruction)].target)
      writers.push_back(access.instruction);
  place.defined_by_write = scalar && writers.size() == 1 && paths.at(writers[0]).size() == depth &&
                           !kernel.instructions[static_cast<size_t>(writers[0])].condition;
  return place;
}

}  // namespace

bool is_taken_name(const std::string& name) {
  static const std::set<std::string> taken = {
      // of the prelude
      "bf16",         "f16",          "f32",          "f64",         "i8",         "i32",      "i64",
      "u8",           "u16",          "u32",          "u64",         "to_f32",     "to_bf16",  "to_f16",
      "floord",       "mod",          "min",          "max",         "clamp",      "abs",      "fma",
      "floor",        "sqrt",         "rsqrt",        "exp",         "log",        "tanh",     "sin",
      "cos",          "pow",          "kInfinity",    "kLanes",      "kColumns",   "fold",     "argmax",
      "sum_in_lanes", "max_in_lanes", "min_in_lanes", "sum_columns", "kLowest",    "kHighest", "args",
      "acc",          "total",        "batch",        "runtime",     "thread",     "warp",     "block_sum",
      "block_max",    "block_min",    "block_argmax", "block_store", "block_sync", "warp_sum", "warp_max",
      "warp_min",     "warp_argmax",  "warp_store",   "warp_sync",   "kThreads",   "kWarps",   "inside",
      "is_inside",    "nonzero",      "is_nonzero",   "to_i8",       "to_i32",     "to_i64",   "FaultNote",
      "note_fault",   "Places",       "places",       "finish",      "ask"};
  return taken.contains(name) || is_word_of_cpp(name);
}

Places plan_places(const Kernel& kernel, const std::map<std::string, int64_t>& sizes, const std::vector<NestNode>& nest,
                   bool use_stack) {
  std::map<std::string, std::vector<Access>> accesses;
  for (size_t i = 0; i < kernel.instructions.size(); ++i) {
    const loop::Instruction& instruction = kernel.instructions[i];
    collect(instruction.target, static_cast<int>(i), accesses);
    collect(instruction.value, static_cast<int>(i), accesses);
    if (instruction.condition) collect(*instruction.condition, static_cast<int>(i), accesses);
  }
  std::map<int, std::vector<const NestNode*>> paths;
  std::vector<const NestNode*> open;
  for (const NestNode& node : nest) collect_paths(node, open, paths);

  const std::vector<std::string> inames = kernel.inames();
  auto is_used = [&](const std::string& name) {
    return is_taken_name(name) || std::ranges::find(inames, name) != inames.end() || kernel.is_parameter(name) ||
           kernel.is_attribute(name);
  };

  Places result;
  int64_t stack_bytes = 0;
  for (const loop::TensorArgument& tensor : kernel.tensors) {
    MEGALITH_ASSERT(tensor.dtype && tensor.shape_known, "[{}] dtype or shape of {} is not known", kernel.name,
                    tensor.name);
    Place place;
    place.text = is_used(tensor.name) ? tensor.name + "_" : tensor.name;
    place.dtype = *tensor.dtype;
    std::vector<int64_t> shape;
    for (const Expr& extent : tensor.shape) {
      shape.push_back(loop::integer_value(extent, sizes));
      place.sizes.push_back(loop::make_integer(shape.back()));
    }
    if (tensor.role == loop::Role::temporary && accesses.contains(tensor.name)) {
      place = plan_temporary(kernel, place, shape, accesses.at(tensor.name), paths);
    } else {
      for (const int64_t size : shape) place.num_elements *= size;
    }
    if (place.where == Place::Where::stack) {
      const int64_t bytes = place.num_elements * dtype_bytes(place.dtype);
      if (!use_stack || bytes > kMaxStackBytes || stack_bytes + bytes > kMaxStackBytesOfKernel) {
        place.where = Place::Where::scratch;
        place.scratch_offset = result.scratch_bytes;
        result.scratch_bytes += (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
      } else {
        stack_bytes += bytes;
      }
    }
    result.of[tensor.name] = std::move(place);
  }
  return result;
}

}  // namespace megalith::codegen
