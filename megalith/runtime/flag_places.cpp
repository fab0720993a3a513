#include "megalith/runtime/flag_places.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "megalith/base/dtype.h"

namespace megalith::runtime {

namespace {

constexpr int64_t kWordBytes = 8, kPayloadBytes = 4;

bool has(const loop::Box& box, const loop::Corner& element) {
  for (size_t d = 0; d < element.size(); ++d)
    if (element[d] < box.lo[d] || element[d] >= box.hi[d]) return false;
  return true;
}

}  // namespace

FlagPlaces::FlagPlaces(const task::TaskGraph& graph, const std::vector<const void*>& addresses) {
  std::vector<int> number_of(graph.buffers.size(), -1);
  for (size_t b = 0; b < std::min(graph.buffers.size(), addresses.size()); ++b) {
    const task::Buffer& buffer = graph.buffers[b];
    if (buffer.memory != task::Memory::exchange || addresses[b] == nullptr) continue;
    number_of[b] = static_cast<int>(exchanges_.size());
    const int64_t elements_a_word = std::max<int64_t>(1, kPayloadBytes / dtype_bytes(buffer.dtype));
    exchanges_.push_back({.name = buffer.name,
                          .shape = buffer.shape,
                          .address = static_cast<const std::byte*>(addresses[b]),
                          .num_words = buffer.bytes / 2 / dtype_bytes(buffer.dtype) / elements_a_word,
                          .elements_a_word = elements_a_word});
  }
  for (size_t t = 0; t < graph.tasks.size(); ++t)
    for (bool writes : {false, true})
      for (const task::Region& region : writes ? graph.tasks[t].writes : graph.tasks[t].reads)
        if (const int number = number_of[static_cast<size_t>(region.buffer)]; number >= 0) {
          Exchange& exchange = exchanges_[static_cast<size_t>(number)];
          (writes ? exchange.writes : exchange.reads).push_back({static_cast<u32>(t), region.box});
        }
}

std::optional<FlagPlaces::Place> FlagPlaces::find(u64 flag, u32 task) const {
  for (const Exchange& exchange : exchanges_) {
    // The word's number within the exchange, by the low half of addresses in words.
    const auto first = static_cast<u32>(reinterpret_cast<uintptr_t>(exchange.address) / kWordBytes);
    const int64_t word = static_cast<u32>(flag) - first;
    if (word >= exchange.num_words) continue;
    loop::Corner element(exchange.shape.size(), 0);
    int64_t rest = word * exchange.elements_a_word;
    for (size_t d = element.size(); d-- > 0; rest /= exchange.shape[d]) element[d] = rest % exchange.shape[d];
    const auto reads = [&](const Part& part) { return part.task == task && has(part.box, element); };
    if (std::ranges::none_of(exchange.reads, reads)) continue;
    Place place{.address = exchange.address + word * kWordBytes, .range = exchange.name};
    for (size_t d = 0; d < element.size(); ++d) {
      const int64_t count = d + 1 == element.size() ? exchange.elements_a_word : 1;
      place.range += fmt::format("{}{}:{}", d == 0 ? "[" : ", ", element[d], element[d] + count);
    }
    if (!element.empty()) place.range += "]";
    for (const Part& part : exchange.writes)
      if (has(part.box, element)) place.writers.push_back(part.task);
    return place;
  }
  return {};
}

}  // namespace megalith::runtime
