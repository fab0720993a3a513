// Loops tagged vec: what moves at once, and what a CPU computes at once.
#include <fmt/format.h>
#include <isl/set.h>

#include <functional>

#include "megalith/base/error.h"
#include "megalith/codegen/loop_emitter.h"
#include "megalith/loop/tag.h"

namespace megalith::codegen {

using loop::InameTag;
using loop::NestNode;
using loop::Space;

bool LoopEmitter::emit_packs(const NestNode& node, const loop::LoopBounds& bounds,
                             const std::vector<std::string>& outer, const isl::set& inside) {
  if (loop::tag_of(kernel_, node.iname) != InameTag::vector) return false;
  if (node.body.size() != 1 || node.body[0].instruction < 0) return false;
  const auto index = static_cast<size_t>(node.body[0].instruction);
  const loop::Instruction& instruction = kernel_.instructions[index];
  const isl::set wanted = loop::project_dimensions(domains_.over(instruction.within), instruction.within);
  const isl::val most = isl::manage(isl_set_dim_max_val(domains_.over({node.iname}).release(), 0));
  if (instruction.condition || !most.is_int() || bounds.lower != std::vector<std::string>{"0"} ||
      !loop::guards(wanted, inside).empty() || !tests_of_axes(index).empty())
    return false;
  const int64_t count = isl_val_get_num_si(most.get()) + 1;
  std::vector<std::string> ends = bounds.upper;
  if (count < 2 || std::erase(ends, fmt::format("{}", count)) != 1) return false;
  constexpr int64_t kMaxGpuBytes = 16, kMaxCpuBytes = 32;  // ld.global.v4, and AVX's vectors
  const std::function<int64_t(const std::string&)> begins = [this](const std::string& name) {
    return bytes_aligned(name);
  };
  const std::vector<PackAccess> accesses =
      find_packs(kernel_, instruction, node.iname, count, is_gpu_ ? kMaxGpuBytes : kMaxCpuBytes, wanted,
                 is_gpu_ ? begins : nullptr,
                 [this](const std::string& name, size_t axis) { return storage_.is_contracted(name, axis); });
  if (!is_gpu_ && ((count & (count - 1)) != 0 || !is_of_vectors(kernel_, instruction, node.iname, accesses)))
    return false;
  if (accesses.empty()) return false;

  const bool is_whole = ends.empty();
  if (!is_whole)
    open(fmt::format("if ({} >= {})", folded(ends, "min"), count));
  else if (is_gpu_)
    line("{"), ++depth_;
  if (is_gpu_)
    emit_whole_packs(node, accesses, bounds, outer, inside, count);
  else
    emit_whole_vector(instruction, accesses, count);
  if (is_whole) return true;
  close();
  body_.pop_back();
  body_ += " else {\n";
  ++depth_;
  open_loop(node.iname, bounds);
  emit(node.body, outer, inside);
  return true;
}

void LoopEmitter::emit_whole_packs(const NestNode& node, const std::vector<PackAccess>& accesses,
                                   const loop::LoopBounds& bounds, const std::vector<std::string>& outer,
                                   const isl::set& inside, int64_t count) {
  std::map<std::string, std::string> packs;
  std::string store;
  for (const PackAccess& access : accesses) {
    const std::string text = expressions_.element(access.subscript);
    if (!access.is_write && packs.contains(text)) continue;
    const std::string& tensor_name = access.subscript.name;
    packed_tensors_.insert(tensor_name);
    const std::string name = fmt::format("pack_of_{}_{}", tensor_name, num_packs_++),
                      type = LoopExpressions::element_type(*tensor(tensor_name).dtype),
                      first = expressions_.element(access.first);
    if (access.is_write) {
      line(fmt::format("Pack<{}, {}> {};", type, count, name));
      target_pack_ = fmt::format("{}.at[{}]", name, node.iname);
      store = fmt::format("store_pack(&{}, {});", first, name);
    } else {
      line(fmt::format("const Pack<{0}, {1}> {2} = load_pack<{1}>(&{3});", type, count, name, first));
      packs[text] = fmt::format("{}.at[{}]", name, node.iname);
    }
  }
  packed_ = std::move(packs);
  open_loop(node.iname, {.lower = {"0"}, .upper = {fmt::format("{}", count)}, .implemented = bounds.implemented});
  emit(node.body, outer, inside);
  close();
  packed_.clear();
  target_pack_.clear();
  if (!store.empty()) line(store);
}

void LoopEmitter::emit_whole_vector(const loop::Instruction& instruction, const std::vector<PackAccess>& accesses,
                                    int64_t count) {
  std::map<std::string, std::string> vectors;
  std::string to;
  for (const PackAccess& access : accesses) {
    const std::string first = expressions_.element(access.first);
    if (access.is_write)
      to = first;
    else
      vectors[expressions_.element(access.subscript)] = fmt::format("load_vector<{}>(&{})", count, first);
  }
  packed_ = std::move(vectors);
  std::string value = expressions_.as_float(instruction.value);
  if (value.find("load_vector<") == std::string::npos) value = fmt::format("broadcast<{}>({})", count, value);
  packed_.clear();
  line(fmt::format("store_vector<{}>(&{}, {});", count, to, value));
}

int64_t LoopEmitter::bytes_aligned(const std::string& name) const {
  if (tensor(name).role != loop::Role::temporary) return aligned_.contains(name) ? 16 : 0;
  return storage_.is_own(name) && parallel_.spaces.at(name) == Space::block ? 16 : 0;
}

}  // namespace megalith::codegen
