#include "megalith/codegen/loop_storage.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "megalith/base/capacity_error.h"
#include "megalith/base/error.h"
#include "megalith/codegen/expression.h"
#include "megalith/loop/access.h"
#include "megalith/loop/lex.h"
#include "megalith/loop/text.h"

namespace megalith::codegen {

using loop::Expr;
using loop::Kernel;
using loop::Space;
using loop::TensorArgument;

namespace {

// What a function on a CPU may keep in its frame, and a thread or a block on a GPU; more is the caller's.
constexpr int64_t kMaxFrame = 64 << 10, kMaxThread = 4 << 10, kMaxShared = 48 << 10;

int64_t element_bytes(const TensorArgument& tensor) { return dtype_bytes(*tensor.dtype); }

}  // namespace

// An axis of a thread's or a block's temporary whose subscript is everywhere the same expression of the thread's indices, or of
// its block's, holds one element for each.
LoopStorage::LoopStorage(const Kernel& kernel, const loop::Parallel& parallel, bool is_gpu, bool is_emulated)
    : kernel_(kernel), parallel_(parallel), is_gpu_(is_gpu), is_emulated_(is_emulated) {
  for (const auto& [name, space] : parallel_.spaces) {
    if (space == Space::global) continue;
    std::set<size_t> axes = is_gpu_ ? own_axes(name, space == Space::warp ? Space::thread : space) : std::set<size_t>();
    if (is_gpu_ && space == Space::warp) axes.insert(parallel_.lane_axes.at(name));
    if (has_size(name, axes)) contracted_[name] = std::move(axes);
  }
}

std::set<size_t> LoopStorage::axes_of_threads(const std::string& name) const {
  const auto contracted = contracted_.find(name);
  return contracted == contracted_.end() ? std::set<size_t>() : contracted->second;
}

std::set<size_t> LoopStorage::own_axes(const std::string& name, Space space) const {
  std::set<size_t> axes;
  for (size_t d = 0; d < tensor(name).shape.size(); ++d) axes.insert(d);
  for (size_t i = 0; i < kernel_.instructions.size(); ++i)
    loop::visit_expressions(kernel_.instructions[i], [&](const Expr& expr, const loop::Place&) {
      if (expr.kind != Expr::Kind::subscript || expr.name != name) return;
      for (size_t d = 0; d < expr.args.size(); ++d)
        if (const std::string own = own_index(i, expr.args[d], space);
            own.empty() || own != first_index(name, d, space))
          axes.erase(d);
    });
  return axes;
}

// The subscript with the axes in place of the inames that are tagged with them; "" if anything else has a name in it.
std::string LoopStorage::own_index(size_t instruction, const Expr& index, Space space) const {
  Expr of_axes = index;
  return name_axes(instruction, of_axes, space) ? loop::print(of_axes) : "";
}

bool LoopStorage::name_axes(size_t instruction, Expr& index, Space space) const {
  if (index.kind == Expr::Kind::name) {
    for (int axis = 0; axis < (space == Space::thread ? loop::kNumAxes : 3); ++axis)
      if (parallel_.iname(instruction, axis) == index.name) {
        index.name = fmt::format("axis_{}", axis);
        return true;
      }
    return false;
  }
  return index.kind != Expr::Kind::subscript &&
         std::ranges::all_of(index.args, [&](Expr& part) { return name_axes(instruction, part, space); });
}

std::string LoopStorage::first_index(const std::string& name, size_t d, Space space) const {
  for (size_t i = 0; i < kernel_.instructions.size(); ++i)
    if (kernel_.instructions[i].target.name == name) return own_index(i, kernel_.instructions[i].target.args[d], space);
  return "";
}

// Whether the temporary can stand in the function: its size is a number, and small.
bool LoopStorage::has_size(const std::string& name, const std::set<size_t>& without) const {
  const int64_t bytes = bytes_of(name, without);
  if (bytes < 0) return false;
  return is_gpu_ || bytes <= kMaxFrame;
}

int64_t LoopStorage::bytes_of(const std::string& name, const std::set<size_t>& without) const {
  int64_t bytes = element_bytes(tensor(name));
  for (size_t d = 0; d < tensor(name).shape.size(); ++d) {
    if (without.contains(d)) continue;
    const auto size = loop::constant_value(tensor(name).shape[d]);
    if (!size || __builtin_mul_overflow(bytes, std::max<int64_t>(*size, 0), &bytes)) return -1;
  }
  return bytes;
}

void LoopStorage::check_may_be_callers(const TensorArgument& tensor) const {
  const bool is_alone = std::ranges::none_of(parallel_.has_axis, std::identity());  // of one thread
  MEGALITH_CHECK(!is_gpu_ || is_alone || parallel_.spaces.at(tensor.name) == Space::global,
                 "{} {} is {}, and its size is no number: fix what it depends on", loop::message_prefix(kernel_.name),
                 tensor.name, space_name(parallel_.spaces.at(tensor.name)));
}

// Memory that temporaries of a block, or on a CPU all, have in common: as much as the largest of them takes.
std::map<std::string, int64_t> LoopStorage::pool_bytes() const {
  std::map<std::string, int64_t> pools;
  for (const auto& [name, axes] : contracted_) {
    if (tensor(name).storage.empty() || (is_gpu_ && parallel_.spaces.at(name) != Space::block)) continue;
    int64_t& bytes = pools[tensor(name).storage];
    bytes = std::max(bytes, bytes_of(name, axes));
  }
  return pools;
}

std::string LoopStorage::declarations(const std::set<std::string>& packed) const {
  std::string lines;
  int64_t shared = 0;
  const std::map<std::string, int64_t> pools = pool_bytes();
  for (const auto& [pool, bytes] : pools) {
    const TensorArgument& first = *std::ranges::find(kernel_.tensors, pool, &TensorArgument::storage);
    const bool is_packed =
        std::ranges::any_of(packed, [&](const std::string& name) { return tensor(name).storage == pool; });
    lines += fmt::format("  {}{}{} {}[{}];\n", is_gpu_ && !is_emulated_ ? "__shared__ " : "",
                         is_packed ? "alignas(16) " : "", element_type(*first.dtype), pool,
                         std::max<int64_t>(1, bytes / element_bytes(first)));
    if (is_gpu_) shared += bytes;
  }
  for (const auto& [name, axes] : contracted_) {
    if (pools.contains(tensor(name).storage)) {
      lines += fmt::format("  {}* const {} = {};\n", element_type(*tensor(name).dtype), name, tensor(name).storage);
      continue;
    }
    const bool is_shared = is_gpu_ && parallel_.spaces.at(name) == Space::block;
    const int64_t bytes = bytes_of(name, axes);
    if (is_shared) shared += bytes;
    if (is_gpu_ && !is_emulated_ && !is_shared && bytes > kMaxThread)
      throw CapacityError(
          fmt::format("{} {} would take {} bytes of each thread, at most {}: subscript it by the inames of threads, "
                      "or make it shared",
                      loop::message_prefix(kernel_.name), name, bytes, kMaxThread));
    const bool is_everyones = is_shared || !is_gpu_;
    const char* before = is_emulated_ ? "" : is_shared ? "__shared__ " : "";
    lines += fmt::format("  {}{}{} {}{}[{}];\n", before, packed.contains(name) ? "alignas(16) " : "",
                         element_type(*tensor(name).dtype), name, is_emulated_ && !is_everyones ? "[kThreads]" : "",
                         std::max<int64_t>(1, bytes / element_bytes(tensor(name))));
  }
  if (shared > kMaxShared)
    throw CapacityError(fmt::format("{} a block would take {} bytes of shared memory, at most {}",
                                    loop::message_prefix(kernel_.name), shared, kMaxShared));
  return lines;
}

}  // namespace megalith::codegen
