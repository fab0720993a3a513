// Loops tagged vec: what moves at once, and what a CPU computes at once.
#include <fmt/format.h>
#include <isl/set.h>

#include <algorithm>
#include <functional>

#include "megalith/base/error.h"
#include "megalith/codegen/columns.h"
#include "megalith/codegen/loop_emitter.h"
#include "megalith/loop/tag.h"

namespace megalith::codegen {

using loop::InameTag;
using loop::NestNode;
using loop::Space;

std::optional<int64_t> LoopEmitter::whole_count(const std::string& iname, const LoopHeader& header,
                                                std::vector<std::string>& ends) const {
  const isl::val most = isl::manage(isl_set_dim_max_val(domains_.over({iname}).release(), 0));
  if (!most.is_int() || header.lower != std::vector<std::string>{"0"}) return {};
  const int64_t count = isl_val_get_num_si(most.get()) + 1;
  std::vector<std::string> upper = header.upper;
  if (count < 2 || std::erase(upper, fmt::format("{}", count)) != 1) return {};
  ends.insert(ends.end(), upper.begin(), upper.end());
  return count;
}

bool LoopEmitter::emit_packs(const NestNode& node, const LoopHeader& header, const Bounds& bounds,
                             const Inames& inames) {
  if (node.body.size() != 1 || node.body[0].instruction < 0) return false;
  const auto index = static_cast<size_t>(node.body[0].instruction);
  const loop::Instruction& instruction = kernel_.instructions[index];
  const isl::set wanted = loop::project_dimensions(domains_.over(instruction.within), instruction.within);
  if (!headers_.conditions_of(static_cast<int>(index)).empty() || !loop::guards(wanted, header.inside).empty() ||
      !tests_of_axes(index).empty())
    return false;
  std::vector<std::string> ends;
  const std::optional<int64_t> whole = whole_count(node.iname, header, ends);
  if (!whole) return false;
  const int64_t count = *whole;
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
    open(fmt::format("if ({} >= {})", join_bounds(ends, "min"), count));
  else if (is_gpu_)
    open("");
  if (is_gpu_)
    emit_whole_packs(node, accesses, inames, header.inside, count);
  else
    emit_whole_vector(instruction, accesses, count, {});
  if (!is_whole || is_gpu_) close();
  if (is_whole) return true;
  open_else();
  write_loop(node, bounds, [&] { emit(node.body, inames, header.inside); });
  close();
  return true;
}

void LoopEmitter::emit_whole_packs(const NestNode& node, const std::vector<PackAccess>& accesses, const Inames& inames,
                                   const isl::set& inside, int64_t count) {
  std::map<std::string, std::string> packs;
  std::string store;
  for (const PackAccess& access : accesses) {
    const std::string text = writer_.element(access.subscript);
    if (!access.is_write && packs.contains(text)) continue;
    const std::string& tensor_name = access.subscript.name;
    packed_tensors_.insert(tensor_name);
    const std::string name = fmt::format("pack_of_{}_{}", tensor_name, num_packs_++),
                      type = element_type(*tensor(tensor_name).dtype), first = writer_.element(access.first);
    if (access.is_write) {
      line(fmt::format("Pack<{}, {}> {};", type, count, name));
      target_pack_ = fmt::format("{}.at[{}]", name, node.iname);
      store = fmt::format("store_pack(&{}, {});", first, name);
    } else {
      line(fmt::format("const Pack<{0}, {1}> {2} = load_pack<{1}>(&{3});", type, count, name, first));
      packs[text] = fmt::format("{}.at[{}]", name, node.iname);
    }
  }
  context_.held = std::move(packs);
  write_loop(node, {"0", fmt::format("{}", count)}, [&] { emit(node.body, inames, inside); });
  context_.held.clear();
  target_pack_.clear();
  if (!store.empty()) line(store);
}

bool LoopEmitter::emit_square(const NestNode& node, const LoopHeader& header, const Bounds& bounds,
                              const Inames& inames) {
  if (is_gpu_ || node.body.size() != 1 || node.body[0].iname.empty()) return false;
  const NestNode& inner = node.body[0];
  if (loop::tag_of(kernel_, inner.iname) != InameTag::vector || inner.body.size() != 1 || inner.body[0].instruction < 0)
    return false;
  const loop::Instruction& instruction = kernel_.instructions[static_cast<size_t>(inner.body[0].instruction)];
  const LoopHeader of_inner = headers_.enter(inner, inames, header.inside, form_of(inner));
  const isl::set wanted = loop::project_dimensions(domains_.over(instruction.within), instruction.within);
  if (!headers_.conditions_of(inner.body[0].instruction).empty() || !loop::guards(wanted, of_inner.inside).empty())
    return false;
  std::vector<std::string> ends;
  const std::optional<int64_t> count = whole_count(node.iname, header, ends);
  if (!count || count != whole_count(inner.iname, of_inner, ends) || (*count != 4 && *count != 8 && *count != 16) ||
      std::ranges::any_of(ends, [&](const std::string& end) { return has_word(end, node.iname); }))
    return false;

  const auto packs_along = [&](const std::string& iname) {
    constexpr int64_t kMaxBytes = 64;  // AVX-512's vectors
    return find_packs(kernel_, instruction, iname, *count, kMaxBytes, wanted, nullptr,
                      [this](const std::string& name, size_t axis) { return storage_.is_contracted(name, axis); });
  };
  std::vector<PackAccess> accesses = packs_along(inner.iname), columns;
  for (PackAccess& along : packs_along(node.iname))
    if (!along.is_write && loop::mentions(along.first, inner.iname) &&
        std::ranges::none_of(accesses, [&](const PackAccess& access) {
          return !access.is_write && loop::same_expression(access.subscript, along.subscript);
        }))
      columns.push_back(std::move(along));
  std::vector<PackAccess> all = accesses;
  all.insert(all.end(), columns.begin(), columns.end());
  if (columns.empty() || !is_of_vectors(kernel_, instruction, inner.iname, all)) return false;

  if (!ends.empty())
    open(fmt::format("if ({} >= {})", join_bounds(ends, "min"), *count));
  else
    open("");
  const auto unrolled = [&](const std::string& iname) {
    line("#pragma GCC unroll 64");
    open(fmt::format("for (i64 {0} = 0; {0} < {1}; ++{0})", iname, *count));
  };
  std::map<std::string, std::string> vectors;
  for (const PackAccess& column : columns) {
    const std::string text = writer_.element(column.subscript);
    if (vectors.contains(text)) continue;
    const std::string name = fmt::format("pack_of_{}_{}", column.subscript.name, num_packs_++);
    line(fmt::format("f32 {}[{}] __attribute__((aligned(64)));", name, *count * *count));
    unrolled(inner.iname);
    line(fmt::format("store_vector<{0}>(&{1}[{0} * {2}], load_vector<{0}>(&{3}));", *count, name, inner.iname,
                     writer_.element(column.first)));
    close();
    line(fmt::format("transpose_pack<{}>({});", *count, name));
    vectors[text] = fmt::format("load_vector<{0}>(&{1}[{0} * {2}])", *count, name, node.iname);
  }
  unrolled(node.iname);
  emit_whole_vector(instruction, accesses, *count, std::move(vectors));
  close();
  close();
  if (ends.empty()) return true;
  open_else();
  write_loop(node, bounds, [&] { emit(node.body, inames, header.inside); });
  close();
  return true;
}

void LoopEmitter::emit_whole_vector(const loop::Instruction& instruction, const std::vector<PackAccess>& accesses,
                                    int64_t count, std::map<std::string, std::string> vectors) {
  std::string to;
  for (const PackAccess& access : accesses) {
    const std::string first = writer_.element(access.first);
    if (access.is_write)
      to = first;
    else
      vectors[writer_.element(access.subscript)] = fmt::format("load_vector<{}>(&{})", count, first);
  }
  context_.held = std::move(vectors);
  std::string value = writer_.write(instruction.value, Type::f32);
  if (value.find("load_vector<") == std::string::npos) value = fmt::format("broadcast<{}>({})", count, value);
  context_.held.clear();
  const bool is_streamed = tensor(instruction.target.name).is_streamed;
  are_streamed_ |= is_streamed;
  line(fmt::format("{}_vector<{}>(&{}, {});", is_streamed ? "stream" : "store", count, to, value));
}

int64_t LoopEmitter::bytes_aligned(const std::string& name) const {
  if (tensor(name).role != loop::Role::temporary) return aligned_.contains(name) ? 16 : 0;
  return storage_.is_own(name) && parallel_.spaces.at(name) == Space::block ? 16 : 0;
}

}  // namespace megalith::codegen
