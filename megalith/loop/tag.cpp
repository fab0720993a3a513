#include "megalith/loop/tag.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace megalith::loop {

namespace {

struct TagName {
  InameTag tag;
  std::string_view name;
};

// The first of a tag is printed; the others are read.
constexpr TagName kTags[] = {
    {InameTag::loop, "loop"},
    {InameTag::task, "task"},
    {InameTag::block_0, "g.0"},
    {InameTag::block_1, "g.1"},
    {InameTag::block_2, "g.2"},
    {InameTag::thread_0, "l.0"},
    {InameTag::thread_1, "l.1"},
    {InameTag::thread_2, "l.2"},
    {InameTag::unroll, "unr"},
    {InameTag::vector, "vec"},
    {InameTag::interleave, "ilp"},
    {InameTag::lane, "lane"},
    {InameTag::warp, "w"},
    {InameTag::loop, "for"},
    {InameTag::loop, "ord"},
    {InameTag::unroll, "unroll"},
    {InameTag::block_0, "blockIdx.x"},
    {InameTag::block_1, "blockIdx.y"},
    {InameTag::block_2, "blockIdx.z"},
    {InameTag::thread_0, "threadIdx.x"},
    {InameTag::thread_1, "threadIdx.y"},
    {InameTag::thread_2, "threadIdx.z"},
    {InameTag::block_0, "CUDABlockIndexTag.0"},
    {InameTag::block_1, "CUDABlockIndexTag.1"},
    {InameTag::block_2, "CUDABlockIndexTag.2"},
    {InameTag::thread_0, "CUDAThreadIndexTag.0"},
    {InameTag::thread_1, "CUDAThreadIndexTag.1"},
    {InameTag::thread_2, "CUDAThreadIndexTag.2"},
};

constexpr std::string_view kSpaces[] = {"", "private", "lanes", "shared", "global"};

}  // namespace

std::string_view tag_name(InameTag tag) { return std::ranges::find(kTags, tag, &TagName::tag)->name; }

std::optional<InameTag> tag_of_name(std::string_view name) {
  const TagName* found = std::ranges::find(kTags, name, &TagName::name);
  return found == std::end(kTags) ? std::nullopt : std::optional(found->tag);
}

std::string tag_names() { return "loop, task, g.0 to g.2, l.0 to l.2, w, lane, unr, vec or ilp"; }

std::string_view space_name(Space space) { return kSpaces[static_cast<size_t>(space)]; }

std::optional<Space> space_of_name(std::string_view name) {
  for (size_t i = 1; i < std::size(kSpaces); ++i)
    if (kSpaces[i] == name) return static_cast<Space>(i);
  return std::nullopt;
}

std::optional<int> axis_of(InameTag tag) {
  if (tag == InameTag::lane) return 3;
  if (tag == InameTag::warp) return 4;
  if (tag < InameTag::block_0 || tag > InameTag::thread_2) return std::nullopt;
  return static_cast<int>(tag) - static_cast<int>(InameTag::block_0);
}

InameTag tag_of(const Kernel& kernel, const std::string& iname) {
  const auto tag = kernel.tags.find(iname);
  return tag == kernel.tags.end() ? InameTag::loop : tag->second;
}

InameTag tag_of(const Kernel& kernel, const Instruction& instruction, const std::string& iname) {
  const auto own = instruction.tags.find(iname);
  return own == instruction.tags.end() ? tag_of(kernel, iname) : own->second;
}

std::optional<int> axis_of(const Kernel& kernel, const std::string& iname) { return axis_of(tag_of(kernel, iname)); }

}  // namespace megalith::loop
