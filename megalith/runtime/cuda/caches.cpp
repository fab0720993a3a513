#include "megalith/runtime/cuda/caches.h"

#include <cstring>
#include <vector>

#include "megalith/kernels/l2_layout.h"

namespace megalith::runtime {

namespace {

constexpr int64_t kMemoryPage = stream::kPageBytes;
static_assert(head_pairs::kPairsOfMemoryPage * head_pairs::kPairBytes == stream::kPageBytes);

}  // namespace

void PairedCaches::add(const std::string& name, int64_t bytes, head_pairs::PageShape shape) {
  caches_[name] = {bytes, bytes_, shape, {}};
  const int64_t with_table = bytes + static_cast<int64_t>(sizeof(Table));
  bytes_ += (with_table + kMemoryPage - 1) / kMemoryPage * kMemoryPage;
}

void PairedCaches::allocate() {
  if (bytes_ > 0) memory_ = DeviceMemory(bytes_, "the KV cache");
}

void* PairedCaches::address(const std::string& name) const {
  return memory_.data<std::byte>() + caches_.at(name).offset;
}

std::array<u32, head_pairs::kTableWords> table_of_pairs(const SideMap& sides, int64_t begin, int64_t bytes) {
  std::array<u32, head_pairs::kTableWords> table = {};
  if ((sides.mask & head_pairs::kPieceBytes) == 0) return table;
  table[head_pairs::kMaskWord] = sides.mask / head_pairs::kPairBytes;
  for (int64_t page = 0; page * kMemoryPage < bytes; ++page)
    table[static_cast<size_t>(page / 32)] |=
        static_cast<u32>(sides.of_page[static_cast<size_t>(begin / kMemoryPage + page)]) << page % 32;
  return table;
}

void PairedCaches::find(const jit::CudaDeviceInfo& device, jit::CudaModule module) {
  if (caches_.empty()) return;
  const std::optional<SideMap> sides = find_sides(device, module, memory_.address(), memory_.bytes());
  if (!sides) return;
  const jit::CudaDriver& driver = jit::CudaDriver::get();
  for (auto& [name, cache] : caches_) {
    cache.table = table_of_pairs(*sides, cache.offset, cache.bytes);
    const auto at = static_cast<jit::CudaAddress>(cache.offset + cache.bytes);
    driver.check(driver.copy_to_device(memory_.address() + at, cache.table.data(), sizeof(Table)),
                 "copying the sides of a cache to the GPU");
  }
}

// visit(byte of the cache row by row, byte of the memory), for each row.
template <class Visit>
void PairedCaches::each_row(const Cache& cache, Visit visit) {
  const auto [positions, heads, row_bytes] = cache.shape;
  int64_t byte = 0;
  for (unsigned page = 0; byte < cache.bytes; ++page)
    for (unsigned position = 0; position < positions; ++position)
      for (unsigned head = 0; head < heads; ++head, byte += row_bytes) {
        const head_pairs::Place place = head_pairs::place_of(cache.shape, page, position, head);
        const unsigned first = head_pairs::side_of_first(place.pair, cache.table[head_pairs::kMaskWord],
                                                         cache.table[head_pairs::memory_page(place.pair) / 32]);
        visit(byte, int64_t{head_pairs::piece_of(head, place.pair, first)} * head_pairs::kPieceBytes + place.byte);
      }
}

void PairedCaches::upload(const std::string& name, const void* from) {
  const Cache& cache = caches_.at(name);
  std::vector<std::byte> laid_out(static_cast<size_t>(cache.bytes));
  each_row(cache, [&](int64_t byte, int64_t place) {
    std::memcpy(&laid_out[static_cast<size_t>(place)], static_cast<const std::byte*>(from) + byte,
                cache.shape.row_bytes);
  });
  const jit::CudaDriver& driver = jit::CudaDriver::get();
  driver.check(
      driver.copy_to_device(reinterpret_cast<jit::CudaAddress>(address(name)), laid_out.data(), laid_out.size()),
      "copying to the GPU");
}

void PairedCaches::download(const std::string& name, void* to) const {
  const Cache& cache = caches_.at(name);
  std::vector<std::byte> laid_out(static_cast<size_t>(cache.bytes));
  const jit::CudaDriver& driver = jit::CudaDriver::get();
  driver.check(driver.copy_to_host(laid_out.data(), reinterpret_cast<jit::CudaAddress>(address(name)), laid_out.size()),
               "copying from the GPU");
  each_row(cache, [&](int64_t byte, int64_t place) {
    std::memcpy(static_cast<std::byte*>(to) + byte, &laid_out[static_cast<size_t>(place)], cache.shape.row_bytes);
  });
}

}  // namespace megalith::runtime
