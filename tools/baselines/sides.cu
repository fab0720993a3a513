// The two sides of a Hopper GPU's L2: each multiprocessor is next to one half of it, and what lies in the other half
// comes through a link between them. Which half a physical address belongs to is a parity of some of its bits, the
// lowest of which is 12 on an H100: pieces of 4 KB. This finds out, by the latency of atomics, which side each
// multiprocessor is on, which bits count within a page of 2 MB, and the parity of each page; then it streams memory
// through a ring in shared memory, as megalith/runtime/cuda/worker.cuh does, with chunks of 16 KB that lie in one
// piece, or in four pieces that are all near, or all far, beside loads of activations from the L2 or none, and prints
// the rate, the power and the clock of each. For Hopper:
//   nvcc -O3 -std=c++17 -gencode arch=compute_90a,code=sm_90a -o sides sides.cu -ldl && ./sides
// The idea and its first measurements: Arun Demeure, cuda-side-boost (2025).
#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr int kChunk = 16 << 10, kPiece = 4 << 10, kPieces = kChunk / kPiece, kSlots = 8, kUnderWay = 4;
constexpr int kReaders = 512, kThreads = kReaders + 32, kWarps = kReaders / 32;
constexpr uint64_t kPage = 2 << 20, kPagesOfPair = 62, kPairBytes = kPagesOfPair * kPage;
constexpr uint32_t kChunks = kPairBytes / (2 * kChunk);
constexpr int kActivations = 512 << 10;  // bytes, read round and round
constexpr int kProbes = 512;             // pieces of a page
constexpr unsigned kGiveUp = 1u << 24;   // looks before a stuck wait ends the kernel

void check(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  std::fprintf(stderr, "sides: %s: %s\n", what, cudaGetErrorString(code));
  std::exit(1);
}

__device__ uint32_t multiprocessor() {
  uint32_t id;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
  return id;
}
__device__ uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
__device__ void barrier_init(uint64_t* barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" : : "r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
__device__ void barrier_arrive(uint64_t* barrier) {
  asm volatile("{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [%0]; }" : : "r"(shared_address(barrier)) : "memory");
}
__device__ void barrier_wait(uint64_t* barrier, uint32_t parity) {
  for (unsigned looks = 0; looks < kGiveUp; ++looks) {
    uint32_t passed;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(passed)
                 : "r"(shared_address(barrier)), "r"(parity)
                 : "memory");
    if (passed) return;
  }
  __trap();
}
__device__ void copy(void* to, const void* from, int bytes, uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}

/// Cycles of an atomic on a line that is in the L2; adding nothing leaves the data as it is. Each waits for the one
/// before it, since its address follows from what that brought.
__device__ uint32_t latency(uint32_t* at) {
  constexpr int kTimes = 7;
  uint32_t value = atomicAdd(at, 0), best = ~0u;
  for (int chain = 0; chain < 2; ++chain) {
    const long long begin = clock64();
#pragma unroll 1
    for (int i = 0; i <= kTimes; ++i) value = atomicAdd(at + (value & 1), 0);
    best = min(best, static_cast<uint32_t>(clock64() - begin) / kTimes);
  }
  return best;
}

/// Of each piece of a page, as each multiprocessor sees it: four lines each, other ones than its neighbours'.
__global__ void probe_pieces(uint8_t* page, float* cycles) {
  if (threadIdx.x != 0) return;
  const uint32_t sm = multiprocessor();
  for (int i = 0; i < kProbes; ++i) {
    const int piece = (i + sm * 37) % kProbes;
    uint32_t sum = 0;
    for (int line = 0; line < 4; ++line)
      sum += latency(reinterpret_cast<uint32_t*>(page + piece * kPiece + (line * 8 + sm % 8) * 128));
    cycles[sm * kProbes + piece] = sum / 4.f;
  }
}
/// Of each line of the first pieces, by one multiprocessor.
__global__ void probe_lines(uint8_t* page, float* cycles, int lines) {
  for (int i = 0; i < lines; ++i) cycles[i] = latency(reinterpret_cast<uint32_t*>(page + i * 128));
}
/// Of each page the difference between a piece of one parity and the next, by whoever comes to it.
__global__ void probe_pages(uint8_t* data, uint32_t mask, int num_pages, const uint8_t* side_of, float* differences) {
  if (threadIdx.x != 0) return;
  const uint32_t sm = multiprocessor();
  for (int page = sm; page < num_pages; page += gridDim.x) {
    int difference = 0;
    for (int piece = 0; piece < 8; ++piece) {
      const int parity = __popc(piece * kPiece & mask) & 1;
      const int cycles = latency(reinterpret_cast<uint32_t*>(data + page * kPage + piece * kPiece + piece * 128));
      difference += parity ? cycles : -cycles;
    }
    differences[page] = side_of[sm] ? -difference / 4.f : difference / 4.f;
  }
}

/// How a chunk comes: in one copy of what lies side by side; in one of a tensor map, of four pieces; in a copy for each
/// piece, by a lane each; or for each run of pieces that lie side by side.
enum class Copies { one, mapped, lanes, runs };
/// Which pieces: those side by side, or all of a side.
enum class Where { any, near, far };

struct Given {
  const uint8_t* data;
  const uint8_t* parity_of_page;
  const uint8_t *side_of, *pair_of, *member_of;  // by multiprocessor
  const uint8_t* activations;
  uint32_t mask, under_way;
  Copies copies;
  Where where;
  int activations_where;  // 0 none, 1 as they come, 2 near, 3 far
  uint32_t* sink;
};

__device__ const uint8_t* activation(const Given& given, uint32_t sm, uint32_t offset) {
  if (given.activations_where == 1) return given.activations + offset;
  const uint32_t at = offset / kPiece * (2 * kPiece);
  const uint32_t parity = __popc(at & given.mask) & 1;
  const uint32_t side = given.side_of[sm] ^ (given.activations_where == 3 ? 1 : 0);
  return given.activations + at + (parity ^ side) * kPiece + offset % kPiece;
}

__device__ void copy_mapped(void* to, const CUtensorMap* map, uint32_t block, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %2, %2, %2, %3}], [%4];"
      :
      : "r"(shared_address(to)), "l"(map), "r"(0), "r"(block), "r"(shared_address(barrier))
      : "memory");
}

template <bool kActs>
__global__ void __launch_bounds__(kThreads, 1)
    stream(const __grid_constant__ CUtensorMap even, const __grid_constant__ CUtensorMap odd,
           const __grid_constant__ CUtensorMap plain, Given given) {
  extern __shared__ __align__(1024) uint8_t ring[];
  __shared__ uint64_t full[kSlots], empty[kSlots];
  __shared__ uint32_t odds[(kChunks + 31) / 32];  // whether chunk c of the wanted side begins with the second piece
  const uint32_t sm = multiprocessor(), member = given.member_of[sm], pair = given.pair_of[sm];
  for (uint32_t i = threadIdx.x; i < (kChunks + 31) / 32; i += kThreads) {
    uint32_t word = 0;
    for (uint32_t c = i * 32; c < i * 32 + 32 && c < kChunks; ++c) {
      const uint64_t at = c * uint64_t{2 * kChunk};
      const uint32_t parity = (__popc(static_cast<uint32_t>(at % kPage) & given.mask) & 1) ^
                              given.parity_of_page[pair * kPagesOfPair + at / kPage];
      word |= (parity ^ member ^ (given.where == Where::far ? 1 : 0)) << c % 32;
    }
    odds[i] = word;
  }
  if (threadIdx.x == 0)
    for (int i = 0; i < kSlots; ++i) barrier_init(&full[i], 1), barrier_init(&empty[i], kWarps);
  __syncthreads();
  const uint8_t* const region = given.data + pair * kPairBytes;
  if (threadIdx.x >= kReaders) {
    const int lane = threadIdx.x - kReaders;
    const bool is_any = given.where == Where::any;
    if (lane >= (given.copies == Copies::lanes ? kPieces : 1)) return;
    for (uint32_t c = 0; c < kChunks; ++c) {
      const uint32_t slot = c % kSlots, lap = c / kSlots;
      const uint32_t odd_one = odds[c / 32] >> c % 32 & 1;
      uint8_t* const to = ring + slot * kChunk;
      const uint8_t* const block = region + c * uint64_t{2 * kChunk};
      const uint8_t* const line = region + (member * uint64_t{kChunks} + c) * kChunk;
      const auto piece = [&](int i) {
        const uint32_t parity = __popc(i * 2 * kPiece & given.mask) & 1;
        return is_any ? line + i * kPiece : block + i * 2 * kPiece + (parity ^ odd_one) * kPiece;
      };
      if (lap > 0) barrier_wait(&empty[slot], (lap - 1) & 1);
      if (c >= given.under_way) {
        const uint32_t before = c - given.under_way;
        barrier_wait(&full[before % kSlots], before / kSlots & 1);
      }
      if (lane == 0)
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(&full[slot])), "r"(kChunk)
                     : "memory");
      if (given.copies == Copies::one) {
        copy(to, line, kChunk, &full[slot]);
      } else if (given.copies == Copies::mapped) {
        if (is_any)
          copy_mapped(to, &plain, 2 * (pair * (kPairBytes / (2 * kChunk))) + member * kChunks + c, &full[slot]);
        else
          copy_mapped(to, odd_one ? &odd : &even, pair * (kPairBytes / (2 * kChunk)) + c, &full[slot]);
      } else if (given.copies == Copies::lanes) {
        __syncwarp((1u << kPieces) - 1);
        copy(to + lane * kPiece, piece(lane), kPiece, &full[slot]);
      } else if (is_any || odd_one) {
        copy(to, piece(0), 2 * kPiece, &full[slot]);
        copy(to + 2 * kPiece, piece(2), 2 * kPiece, &full[slot]);
      } else {
        copy(to, piece(0), kPiece, &full[slot]);
        copy(to + kPiece, piece(1), 2 * kPiece, &full[slot]);
        copy(to + 3 * kPiece, piece(3), kPiece, &full[slot]);
      }
    }
    return;
  }
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  uint32_t all = 0;
  uint4 held[2][4];
  const auto ask = [&](uint32_t c, uint4(&to)[4]) {
    if (!kActs) return;
    const uint32_t offset = (c * (2 * kChunk) + warp * 2048) % kActivations;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint8_t* const from = activation(given, sm, offset + i * 512 + lane * 16);
      asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(to[i].x), "=r"(to[i].y), "=r"(to[i].z), "=r"(to[i].w)
                   : "l"(from));
    }
  };
  const auto take = [&](const uint4& v) { all ^= v.x ^ v.y ^ v.z ^ v.w; };
  uint32_t acts = 0;
  const auto use = [&](uint32_t c, uint4(&mine)[4]) {
    const uint32_t slot = c % kSlots;
    barrier_wait(&full[slot], c / kSlots & 1);
    const uint4* words = reinterpret_cast<const uint4*>(ring + slot * kChunk);
#pragma unroll
    for (int k = 0; k < kChunk / 16 / kReaders; ++k) take(words[k * kReaders + threadIdx.x]);
    if (kActs)
#pragma unroll
      for (int i = 0; i < 4; ++i) acts += mine[i].x ^ mine[i].y ^ mine[i].z ^ mine[i].w;
    __syncwarp();
    if (lane == 0) barrier_arrive(&empty[slot]);
  };
  ask(0, held[0]);
  for (uint32_t c = 0; c < kChunks; c += 2) {
    ask(c + 1, held[1]);
    use(c, held[0]);
    ask(c + 2, held[0]);
    use(c + 1, held[1]);
  }
  if (acts == 0x12345678) all ^= 1;  // never told apart from a mistake, but never taken away
  for (int i = 16; i > 0; i /= 2) all ^= __shfl_xor_sync(~0u, all, i);
  if (lane == 0) atomicXor(given.sink, all);
}
static_assert(kChunks % 2 == 0);

__global__ void fill(uint32_t* words, uint64_t count) {
  for (uint64_t i = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; i < count; i += uint64_t{gridDim.x} * blockDim.x) {
    uint64_t x = (i + 1) * 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9ull;
    words[i] = static_cast<uint32_t>(x >> 32);
  }
}

/// Power and clocks by NVML, which every driver brings.
class Meter {
 public:
  Meter() {
    void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library) return;
    const auto init = reinterpret_cast<int (*)()>(dlsym(library, "nvmlInit_v2"));
    const auto get = reinterpret_cast<int (*)(unsigned, void**)>(dlsym(library, "nvmlDeviceGetHandleByIndex_v2"));
    energy_ =
        reinterpret_cast<int (*)(void*, unsigned long long*)>(dlsym(library, "nvmlDeviceGetTotalEnergyConsumption"));
    clock_ = reinterpret_cast<int (*)(void*, int, unsigned*)>(dlsym(library, "nvmlDeviceGetClockInfo"));
    if (!init || !get || !energy_ || !clock_ || init() != 0 || get(0, &device_) != 0) device_ = nullptr;
  }
  double joules() const {
    unsigned long long millijoules = 0;
    return device_ && energy_(device_, &millijoules) == 0 ? millijoules / 1e3 : 0;
  }
  unsigned megahertz() const {
    unsigned clock = 0;
    return device_ && clock_(device_, 1, &clock) == 0 ? clock : 0;  // 1: of the multiprocessors
  }

 private:
  void* device_ = nullptr;
  int (*energy_)(void*, unsigned long long*) = nullptr;
  int (*clock_)(void*, int, unsigned*) = nullptr;
};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

template <class T>
std::vector<T> fetch(const T* from, size_t count) {
  std::vector<T> host(count);
  check(cudaMemcpy(host.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost), "fetching");
  return host;
}
template <class T>
T* put(const std::vector<T>& host) {
  T* there = nullptr;
  check(cudaMalloc(&there, host.size() * sizeof(T)), "allocating a table");
  check(cudaMemcpy(there, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice), "putting a table");
  return there;
}

}  // namespace

int main(int count, char** arguments) {
  const double seconds = count > 1 ? std::atof(arguments[1]) : 1;
  cudaDeviceProp device;
  check(cudaGetDeviceProperties(&device, 0), "asking for the GPU");
  const int sms = device.multiProcessorCount, pairs = (sms + 1) / 2;
  const uint64_t bytes = pairs * kPairBytes;
  uint8_t *data = nullptr, *activations = nullptr;
  check(cudaMalloc(&data, bytes), "allocating what is read");
  check(cudaMalloc(&activations, kPage), "allocating activations");
  if (reinterpret_cast<uintptr_t>(data) % kPage != 0 || reinterpret_cast<uintptr_t>(activations) % kPage != 0) {
    std::fprintf(stderr, "sides: memory does not begin at a page\n");
    return 1;
  }
  fill<<<4 * sms, 1024>>>(reinterpret_cast<uint32_t*>(data), bytes / 4);
  fill<<<4 * sms, 1024>>>(reinterpret_cast<uint32_t*>(activations), kPage / 4);
  const int shared = kSlots * kChunk;
  check(cudaFuncSetAttribute(stream<false>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared), "shared memory");
  check(cudaFuncSetAttribute(stream<true>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared), "shared memory");
  for (const void* f : {reinterpret_cast<const void*>(probe_pieces), reinterpret_cast<const void*>(probe_pages)})
    check(cudaFuncSetAttribute(f, cudaFuncAttributeMaxDynamicSharedMemorySize, shared), "shared memory");

  // Sides of multiprocessors: by whose latencies go with those of the first one, over the pieces of a page.
  float* cycles = nullptr;
  check(cudaMalloc(&cycles, sms * kProbes * sizeof(float)), "allocating latencies");
  check(cudaDeviceSynchronize(), "filling");
  double begin = now();
  probe_pieces<<<sms, 32, shared>>>(data, cycles);
  check(cudaDeviceSynchronize(), "probing pieces");
  std::printf("probing pieces took %.2f ms\n", (now() - begin) * 1e3);
  std::vector<float> seen = fetch(cycles, sms * kProbes);
  if (FILE* file = count > 2 ? std::fopen(arguments[2], "wb") : nullptr) {
    std::fwrite(seen.data(), sizeof(float), seen.size(), file);
    std::fclose(file);
  }
  std::vector<double> of_piece(kProbes, 0);
  for (int sm = 0; sm < sms; ++sm)
    for (int i = 0; i < kProbes; ++i) of_piece[i] += seen[sm * kProbes + i] / sms;
  std::vector<uint8_t> side(sms), pair(sms), member(sms);
  const auto against = [&](int sm, int other) {
    double sum = 0, a = 0, b = 0, mean = 0, mean_other = 0;
    for (int i = 0; i < kProbes; ++i) {
      mean += (seen[sm * kProbes + i] - of_piece[i]) / kProbes;
      mean_other += (seen[other * kProbes + i] - of_piece[i]) / kProbes;
    }
    for (int i = 0; i < kProbes; ++i) {
      const double x = seen[sm * kProbes + i] - of_piece[i] - mean;
      const double y = seen[other * kProbes + i] - of_piece[i] - mean_other;
      sum += x * y, a += x * x, b += y * y;
    }
    return sum / std::sqrt(a * b);
  };
  double weakest = 1;
  int counts[2] = {0, 0};
  for (int sm = 0; sm < sms; ++sm) {
    const double r = against(sm, 0);
    weakest = std::min(weakest, std::abs(r));
    side[sm] = r < 0;
    ++counts[side[sm]];
  }
  std::printf("multiprocessors: %d on side 0, %d on side 1; weakest correlation %.2f\n", counts[0], counts[1], weakest);
  std::printf("sides: ");
  for (int sm = 0; sm < sms; ++sm) std::printf("%d", side[sm]);
  std::printf("\n");

  // Sides of pieces, near to those of side 0 or not, and the bits that say so.
  std::vector<int> far(kProbes);
  double gap = 0, least_gap = 1e9;
  for (int i = 0; i < kProbes; ++i) {
    double mean[2] = {0, 0};
    for (int sm = 0; sm < sms; ++sm) mean[side[sm]] += seen[sm * kProbes + i] / counts[side[sm]];
    far[i] = mean[0] > mean[1];
    gap += std::abs(mean[0] - mean[1]) / kProbes;
    least_gap = std::min(least_gap, std::abs(mean[0] - mean[1]));
  }
  uint32_t mask = 0;
  for (int bit = 0; bit < 9; ++bit)
    if (far[1 << bit] != far[0]) mask |= kPiece << bit;
  int wrong = 0;
  for (int i = 0; i < kProbes; ++i) wrong += (far[i] ^ far[0]) != (__builtin_popcount(i * kPiece & mask) & 1);
  std::printf("far takes %.0f cycles more (at least %.0f); mask 0x%x, wrong for %d of %d pieces\n", gap, least_gap,
              mask, wrong, kProbes);
  probe_lines<<<1, 1>>>(data, cycles, 256);
  seen = fetch(cycles, 256);
  std::printf("lines of the first eight pieces, by one multiprocessor:");
  for (int i = 0; i < 256; ++i) std::printf("%s%.0f", i % 32 == 0 ? "\n  " : " ", seen[i]);
  std::printf("\n");

  // Multiprocessors in pairs of one of each side, as far as there are.
  std::vector<int> order;
  for (int sm = 0; sm < sms; ++sm)
    if (side[sm] == 0) order.push_back(sm);
  std::vector<int> others;
  for (int sm = 0; sm < sms; ++sm)
    if (side[sm] == 1) others.push_back(sm);
  std::vector<int> first, second;
  while (!order.empty() || !others.empty()) {
    auto& a = order.size() > others.size() ? order : others;
    auto& b = &a == &order ? others : order;
    if (a.size() > b.size() + 1) {  // two of the same side
      first.push_back(a.back()), a.pop_back();
      second.push_back(a.back()), a.pop_back();
      continue;
    }
    if (!order.empty()) first.push_back(order.back()), order.pop_back();
    if (!others.empty()) second.push_back(others.back()), others.pop_back();
  }
  for (size_t i = 0; i < first.size(); ++i) pair[first[i]] = i, member[first[i]] = 0;
  for (size_t i = 0; i < second.size(); ++i) pair[second[i]] = i, member[second[i]] = 1;

  const int pages = static_cast<int>(bytes / kPage);
  uint8_t* const sides = put(side);
  float* differences = nullptr;
  check(cudaMalloc(&differences, (pages + 1) * sizeof(float)), "allocating differences");
  begin = now();
  probe_pages<<<sms, 32, shared>>>(data, mask, pages, sides, differences);
  check(cudaDeviceSynchronize(), "probing pages");
  std::printf("probing %d pages took %.2f ms\n", pages, (now() - begin) * 1e3);
  const std::vector<float> difference = fetch(differences, pages);
  // Positive: pieces of parity 1 are far from side 0, so the page's parity is 0.
  std::vector<uint8_t> parity(pages);
  float nearest = 1e9;
  int ones = 0;
  for (int i = 0; i < pages; ++i) {
    parity[i] = difference[i] < 0;
    ones += parity[i];
    nearest = std::min(nearest, std::abs(difference[i]));
  }
  std::printf("pages: %d of %d have parity 1; least difference %.0f cycles; first: ", ones, pages, nearest);
  for (int i = 0; i < 64; ++i) std::printf("%d", parity[i]);
  std::printf("\n");
  check(cudaMemset(differences, 0, sizeof(float)), "clearing");
  probe_pages<<<sms, 32, shared>>>(activations, mask, 1, sides, differences + pages);
  const int activations_parity = fetch(differences + pages, 1)[0] < 0;

  if ((mask & (7 * kPiece)) != 3 * kPiece) {
    std::fprintf(stderr, "sides: the copies of this program are for masks that begin with bits 12 and 13, not 14\n");
    return 1;
  }
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found;
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found),
        "the driver");
  const auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry);
  const auto map_of = [&](int first, uint64_t second, uint64_t block, uint64_t pair_of_pieces) {
    CUtensorMap map;
    const uint64_t sizes[] = {256, 2, 2, 2, bytes / block};
    const uint64_t strides[] = {2048, second, pair_of_pieces, block};
    const uint32_t box[] = {256, 2, 2, 2, 1}, steps[] = {1, 1, 1, 1, 1};
    const int code = encode(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT64, 5, data + first, sizes, strides, box, steps,
                            CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                            CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (code != 0) std::fprintf(stderr, "sides: a tensor map is refused: %d\n", code), std::exit(1);
    return map;
  };
  const CUtensorMap even = map_of(0, 3 * kPiece, 2 * kChunk, 4 * kPiece),
                    odd = map_of(kPiece, kPiece, 2 * kChunk, 4 * kPiece), plain = map_of(0, kPiece, kChunk, 2 * kPiece);

  Given given{data, put(parity), sides, put(pair), put(member), activations, mask, kUnderWay, {}, {}, 0, nullptr};
  check(cudaMalloc(&given.sink, 4), "allocating the sink");
  // The side of a multiprocessor takes in the parity of the activations' page.
  std::vector<uint8_t> turned = side;
  for (uint8_t& s : turned) s ^= activations_parity;
  given.side_of = put(turned);
  const Meter meter;
  struct Way {
    const char* name;
    Copies copies;
    Where where;
    int activations, under_way;
  };
  const Way ways[] = {{"one", Copies::one, Where::any, 0, 4},
                      {"mapped", Copies::mapped, Where::any, 0, 4},
                      {"mapped, near", Copies::mapped, Where::near, 0, 4},
                      {"mapped, far", Copies::mapped, Where::far, 0, 4},
                      {"mapped, near, 6", Copies::mapped, Where::near, 0, 6},
                      {"lanes", Copies::lanes, Where::any, 0, 4},
                      {"lanes, near", Copies::lanes, Where::near, 0, 4},
                      {"runs", Copies::runs, Where::any, 0, 4},
                      {"runs, near", Copies::runs, Where::near, 0, 4},
                      {"runs, near, 6", Copies::runs, Where::near, 0, 6},
                      {"one, L2", Copies::one, Where::any, 1, 4},
                      {"mapped, L2", Copies::mapped, Where::any, 1, 4},
                      {"mapped, near, L2", Copies::mapped, Where::near, 1, 4},
                      {"runs, near, L2", Copies::runs, Where::near, 1, 4},
                      {"mapped, near, L2 near", Copies::mapped, Where::near, 2, 4}};
  std::printf("%-24s %8s %8s %8s %8s  xor\n", "way", "GB/s", "W", "MHz", "J/TB");
  for (int round = 0; round < 2; ++round)
    for (const Way& way : ways) {
      given.copies = way.copies, given.where = way.where, given.activations_where = way.activations;
      given.under_way = way.under_way;
      const auto launch = [&] {
        if (way.activations)
          stream<true><<<sms, kThreads, shared>>>(even, odd, plain, given);
        else
          stream<false><<<sms, kThreads, shared>>>(even, odd, plain, given);
      };
      check(cudaMemset(given.sink, 0, 4), "clearing");
      launch();
      const uint32_t all = fetch(given.sink, 1)[0];
      const double warm = now();
      while (now() - warm < 0.4 * seconds) {
        for (int i = 0; i < 20; ++i) launch();
        check(cudaDeviceSynchronize(), "streaming");
      }
      const double joules = meter.joules(), start = now();
      int runs = 0, looks = 0;
      double clock = 0;
      while (now() - start < seconds) {
        for (int i = 0; i < 20; ++i) launch();
        clock += meter.megahertz();
        ++looks;
        check(cudaDeviceSynchronize(), "streaming");
        runs += 20;
      }
      const double took = now() - start, used = meter.joules() - joules;
      const double terabytes = runs * (sms * double{kChunks} * kChunk) / 1e12;
      std::printf("%-24s %8.0f %8.0f %8.0f %8.1f  %08x\n", way.name, terabytes * 1e3 / took, used / took, clock / looks,
                  used / terabytes, all);
      std::fflush(stdout);
    }
}
