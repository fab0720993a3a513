#include "megalith/runtime/cuda/sides.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <thread>

#include "megalith/base/log.h"
#include "megalith/kernels/l2_layout.h"
#include "megalith/runtime/cuda/memory.h"

namespace megalith::runtime {

using jit::CudaDriver;

namespace {

constexpr size_t kPieces = stream::kPageBytes / stream::kPieceBytes;
constexpr u32 kDynamicSharedAttribute = 8;  // attribute of a function

u8 parity(u64 bits) { return static_cast<u8>(std::popcount(bits) & 1); }

// What is left of a multiprocessor's latencies without what it has everywhere, and what a piece has for all.
std::vector<std::vector<double>> centred(std::span<const u32> cycles, size_t rows) {
  std::vector<std::vector<double>> left(rows, std::vector<double>(kPieces));
  std::vector<double> of_piece(kPieces, 0);
  for (size_t row = 0; row < rows; ++row)
    for (size_t i = 0; i < kPieces; ++i) of_piece[i] += cycles[row * kPieces + i] / static_cast<double>(rows);
  for (size_t row = 0; row < rows; ++row) {
    double mean = 0;
    for (size_t i = 0; i < kPieces; ++i) {
      left[row][i] = cycles[row * kPieces + i] - of_piece[i];
      mean += left[row][i] / static_cast<double>(kPieces);
    }
    for (double& one : left[row]) one -= mean;
  }
  return left;
}

double correlation(const std::vector<double>& a, const std::vector<double>& b) {
  double both = 0, of_a = 0, of_b = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    both += a[i] * b[i];
    of_a += a[i] * a[i];
    of_b += b[i] * b[i];
  }
  return of_a > 0 && of_b > 0 ? both / std::sqrt(of_a * of_b) : 0;
}

// Launches a kernel of one thread on every multiprocessor: so much shared memory keeps others away.
void run_on_all(const jit::CudaDeviceInfo& device, jit::CudaModule module, const char* name, void** parameters) {
  constexpr unsigned kSharedBytes = 120 << 10;
  const CudaDriver& driver = CudaDriver::get();
  jit::CudaFunction function = nullptr;
  driver.check(driver.module_function(&function, module, name), name);
  driver.check(driver.function_set_attribute(function, kDynamicSharedAttribute, kSharedBytes), name);
  const jit::CudaLaunchConfig config{
      static_cast<unsigned>(device.num_multiprocessors), 1, 1, 32, 1, 1, kSharedBytes, nullptr, nullptr, 0};
  driver.check(driver.launch(&config, function, parameters, nullptr), name);
  driver.check(driver.stream_synchronize(nullptr), name);
}

// One attempt of find_sides().
std::optional<SideMap> look_for_sides(const jit::CudaDeviceInfo& device, jit::CudaModule module,
                                      jit::CudaAddress memory, int64_t bytes) {
  const auto page = static_cast<int64_t>(stream::kPageBytes);
  const auto count = static_cast<size_t>(device.num_multiprocessors);
  std::vector<u32> cycles(count * kPieces);
  const DeviceMemory cycles_there(static_cast<int64_t>(cycles.size() * sizeof(u32)), "latencies");
  jit::CudaAddress to = cycles_there.address();
  void* of_pieces[] = {&memory, &to};
  run_on_all(device, module, "megalith_probe_pieces", of_pieces);
  cycles_there.download(cycles.data(), static_cast<int64_t>(cycles.size() * sizeof(u32)));
  std::optional<SideMap> sides = sides_of_multiprocessors(cycles, count);
  if (!sides) {
    log_debug("[cuda] multiprocessors of {} are not seen to belong to two L2 partitions", device.name);
    return std::nullopt;
  }
  // The last page may not be whole; what is probed of it would be another's.
  auto num_pages = static_cast<u32>(bytes / page);
  std::vector<PageProbe> probes(num_pages);
  const DeviceMemory probes_there(static_cast<int64_t>(probes.size() * sizeof(PageProbe)), "latencies");
  to = probes_there.address();
  void* of_pages[] = {&memory, &num_pages, &sides->mask, &to};
  run_on_all(device, module, "megalith_probe_pages", of_pages);
  probes_there.download(probes.data(), static_cast<int64_t>(probes.size() * sizeof(PageProbe)));
  if (!add_sides_of_pages(*sides, probes)) {
    log_debug("[cuda] pages of {} are not seen to belong to two L2 partitions", device.name);
    return std::nullopt;
  }
  if (bytes % page != 0) sides->of_page.push_back(0);
  return sides;
}

}  // namespace

u8 SideMap::of_block(u64 at) const { return of_page[at / stream::kPageBytes] ^ parity(at % stream::kPageBytes & mask); }

std::vector<u32> SideMap::worker_of_sm() const {
  const auto count = static_cast<u32>(of_multiprocessor.size());
  std::vector<u32> result(count);
  u32 next[2] = {0, 1};
  std::vector<size_t> left;
  for (size_t m = 0; m < count; ++m) {
    u32& mine = next[of_multiprocessor[m]];
    if (mine >= count) {
      left.push_back(m);
      continue;
    }
    result[m] = mine;
    mine += 2;
  }
  u32& other = next[next[0] < count ? 0 : 1];
  for (const size_t m : left) {
    result[m] = other;
    other += 2;
  }
  return result;
}

std::optional<SideMap> sides_of_multiprocessors(std::span<const u32> cycles, size_t num_multiprocessors) {
  // On an H200 correlations are 0.99, and a far piece takes 224 cycles more than a near one.
  constexpr double kClear = 0.8, kLeastCycles = 30;
  SideMap sides;
  const std::vector<std::vector<double>> left = centred(cycles, num_multiprocessors);
  size_t of_side[2] = {0, 0};
  for (const std::vector<double>& row : left) {
    const double likeness = correlation(row, left[0]);
    if (std::abs(likeness) < kClear) return std::nullopt;
    sides.of_multiprocessor.push_back(likeness < 0);
    ++of_side[likeness < 0];
  }
  if (of_side[0] == 0 || of_side[1] == 0) return std::nullopt;
  // How much farther a piece is from side 0 than from side 1.
  std::vector<double> farther(kPieces, 0);
  for (size_t m = 0; m < num_multiprocessors; ++m) {
    const u8 side = sides.of_multiprocessor[m];
    for (size_t i = 0; i < kPieces; ++i)
      farther[i] += (side == 0 ? left[m][i] : -left[m][i]) / static_cast<double>(of_side[side]);
  }
  const auto side_of = [&](size_t piece) -> u8 { return farther[piece] > 0; };
  for (size_t bit = 1; bit < kPieces; bit *= 2)
    if (side_of(bit) != side_of(0)) sides.mask |= static_cast<u32>(bit * stream::kPieceBytes);
  for (size_t i = 0; i < kPieces; ++i)
    if (std::abs(farther[i]) < kLeastCycles ||
        (side_of(i) ^ side_of(0)) != parity(i * stream::kPieceBytes & sides.mask))
      return std::nullopt;
  // All pieces of a half are of one side.
  for (int half = 0; half < 2; ++half)
    for (int index = 0; index < stream::kChunkPieces; ++index) {
      const auto at = static_cast<u64>(stream::half_piece(half, index)) * stream::kPieceBytes;
      if (parity(at & sides.mask) != half) return std::nullopt;
    }
  return sides;
}

bool add_sides_of_pages(SideMap& sides, std::span<const PageProbe> probes) {
  constexpr i32 kLeastCycles = 15;
  constexpr size_t kMaxUnclear = 20;  // one of so many
  size_t unclear = 0;
  for (const PageProbe& probe : probes) {
    const auto who = static_cast<size_t>(probe.multiprocessor);
    if (who >= sides.of_multiprocessor.size()) return false;
    unclear += std::abs(probe.difference) < kLeastCycles;
    // The first piece has parity 0, and it is near to who finds the others farther.
    sides.of_page.push_back(sides.of_multiprocessor[who] ^ (probe.difference > 0 ? 0 : 1));
  }
  return unclear * kMaxUnclear <= probes.size();
}

std::optional<SideMap> find_sides(const jit::CudaDeviceInfo& device, jit::CudaModule module, jit::CudaAddress memory,
                                  int64_t bytes) {
  // One launch of eight did not see them at once, and Qwen3-0.6B took 0.415 ms a token in it, 0.388 in the others.
  constexpr int kAttempts = 5;
  constexpr std::chrono::milliseconds kPause(20);
  if (memory % stream::kPageBytes != 0 || bytes < static_cast<int64_t>(stream::kPageBytes)) return std::nullopt;
  for (int attempt = 1; attempt <= kAttempts; ++attempt) {
    const std::optional<SideMap> sides = look_for_sides(device, module, memory, bytes);
    if (!sides) {
      std::this_thread::sleep_for(kPause);
      continue;
    }
    const auto of_one = std::ranges::count(sides->of_multiprocessor, 1),
               pages_of_one = std::ranges::count(sides->of_page, 1);
    log_debug("[cuda] L2 partitions of {}: {} and {} multiprocessors, {} and {} pages, address bits {:#x}, attempt {}",
              device.name, std::ssize(sides->of_multiprocessor) - of_one, of_one,
              std::ssize(sides->of_page) - pages_of_one, pages_of_one, sides->mask, attempt);
    return sides;
  }
  return std::nullopt;
}

std::vector<u8> maps_of_chunks(jit::CudaAddress memory, u64 num_blocks) {
  // Eight bytes an element, of which a box has at most 256 in a row: two rows a piece, two pieces, two pairs.
  constexpr int kFloat64 = 8, kDimensions = 5, kElementBytes = 8;
  static_assert(stream::kChunkPieces == 4 && stream::kPieceBytes <= 2 * 256 * kElementBytes);
  constexpr size_t kMapBytes = 128;
  struct alignas(64) Map {
    u8 bytes[kMapBytes];
  };
  std::vector<u8> maps;
  const CudaDriver& driver = CudaDriver::get();
  for (int chunk_size = 0; chunk_size < stream::kNumChunkSizes; ++chunk_size)
    for (int half = 0; half < 2; ++half) {
      const auto piece = [&](int index) {
        return static_cast<u64>(stream::half_piece(half, index)) * stream::kPieceBytes;
      };
      const u64 row_bytes = static_cast<u64>(stream::piece_bytes(chunk_size)) / 2;
      const auto row = static_cast<unsigned>(row_bytes / kElementBytes);
      Map map;
      const u64 sizes[] = {row, 2, 2, 2, num_blocks};
      const u64 strides[] = {row_bytes, piece(1) - piece(0), piece(2) - piece(0), stream::kBlockBytes};
      const unsigned box[] = {row, 2, 2, 2, 1}, steps[] = {1, 1, 1, 1, 1};
      if (driver.tensor_map(&map, kFloat64, kDimensions, memory + piece(0), sizes, strides, box, steps, 0, 0, 0, 0) !=
          0) {
        log_debug("[cuda] the driver does not take a description of streams in the two L2 partitions");
        return {};
      }
      maps.insert(maps.end(), map.bytes, map.bytes + kMapBytes);
    }
  return maps;
}

}  // namespace megalith::runtime
