#include "driver/fake/fake_cuda.h"

#include "megalith/jit/cuda/driver.h"
#include "megalith/runtime/protocol.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <set>
#include <utility>
#include <vector>

namespace {

using megalith::test::FakeCuda;
using Code = int;
using Address = unsigned long long;

constexpr Code kInvalidValue = 1, kOutOfMemory = 2, kInvalidContext = 201, kNotReady = 600;

FakeCuda state;
// What a dead context leaves to the driver is its until the process ends: never destroyed, so no leak.
auto& device_memory = *new std::map<Address, size_t>;
auto& host_memory = *new std::map<char*, size_t>;
thread_local std::vector<void*> contexts;  // the last one is current

struct Work {
  long ticket;
  const char* from;  // page-locked memory that it reads, or nullptr
  std::function<void()> action;
};
struct Stream {
  std::deque<Work> work;
  long next_ticket = 1, done = 0;
};
struct Event {
  Stream* stream = nullptr;
  long ticket = 0;
};
auto& streams = *new std::set<Stream*>;
auto& events = *new std::set<Event*>;
constexpr long kNever = -1;              // a ticket
char worker, probe_pieces, probe_pages;  // the functions of those names
constexpr int kMultiprocessors = 4;

void run_until(Stream& stream, long ticket) {
  while (!stream.work.empty() && stream.work.front().ticket <= ticket && stream.work.front().ticket != kNever) {
    stream.work.front().action();
    stream.done = stream.work.front().ticket;
    stream.work.pop_front();
  }
}

void enqueue(Stream& stream, const char* from, std::function<void()> action) {
  stream.work.push_back({stream.next_ticket++, from, std::move(action)});
}

// What frees something waits for all that runs.
void wait_for_all() {
  for (const Stream* stream : streams)
    if (!stream->work.empty() && stream->work.front().ticket == kNever) ++state.waits_for_ever;
}

bool has_context() { return !contexts.empty() && contexts.back() == &state && state.retained > 0; }

// Every function begins with this: counts the call and says whether it fails.
Code begin(const char* name, bool needs_context = true) {
  if (state.sticky != 0) return state.sticky;
  const int count = ++state.calls[name];
  const auto failure = state.failures.find(name);
  if (failure != state.failures.end() && count > state.fails_after[name]) {
    if (failure->second >= 700) state.sticky = failure->second;
    return failure->second;
  }
  return needs_context && !has_context() ? kInvalidContext : 0;
}

// What frees something needs a context as well, but is not counted, and does not fail.
Code begin_free() { return has_context() ? 0 : kInvalidContext; }

}  // namespace

#define FAKE(name, ...)                          \
  const std::lock_guard fake_guard(state.mutex); \
  if (const Code code = begin(name, ##__VA_ARGS__)) return code

extern "C" {

FakeCuda* fake_cuda() { return &state; }

Code cuInit(unsigned) {
  FAKE("cuInit", false);
  return 0;
}
Code cuDriverGetVersion(int* version) { return *version = state.version, 0; }
Code cuGetErrorName(Code code, const char** name) {
  static const std::map<Code, const char*> names = {{kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY"},
                                                    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE"},
                                                    {100, "CUDA_ERROR_NO_DEVICE"},
                                                    {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT"},
                                                    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
                                                    {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
                                                    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
                                                    {999, "CUDA_ERROR_UNKNOWN"}};
  const auto found = names.find(code);
  return *name = found == names.end() ? nullptr : found->second, found == names.end() ? kInvalidValue : 0;
}
Code cuGetErrorString(Code, const char** words) { return *words = "words of the driver", 0; }

Code cuDeviceGetCount(int* count) {
  FAKE("cuDeviceGetCount", false);
  return *count = state.num_devices, 0;
}
Code cuDeviceGet(int* device, int ordinal) {
  FAKE("cuDeviceGet", false);
  return *device = ordinal, 0;
}
Code cuDeviceGetName(char* name, int bytes, int) { return std::strncpy(name, "Fake GPU", bytes), 0; }
Code cuDeviceGetAttribute(int* value, int which, int) {
  switch (which) {
    case 16: return *value = kMultiprocessors, 0;
    case 75: return *value = 9, 0;  // compute capability 9.0
    case 95: return *value = state.launches_cooperatively, 0;
    case 97: return *value = 227 << 10, 0;  // shared memory of a block
    case 111: return *value = state.reserved_bytes, 0;
    default: return *value = 0, 0;
  }
}
Code cuDeviceTotalMem_v2(size_t* bytes, int) { return *bytes = state.total_bytes, 0; }
Code cuDevicePrimaryCtxRetain(void** context, int) {
  FAKE("cuDevicePrimaryCtxRetain", false);
  return ++state.retained, *context = &state, 0;
}
Code cuDevicePrimaryCtxRelease_v2(int) {
  const std::lock_guard guard(state.mutex);
  if (state.retained == 1) wait_for_all();
  return --state.retained, 0;
}
Code cuCtxPushCurrent_v2(void* context) {
  FAKE("cuCtxPushCurrent_v2", false);
  return contexts.push_back(context), 0;
}
Code cuCtxPopCurrent_v2(void** context) {
  if (contexts.empty()) return kInvalidContext;
  *context = contexts.back();
  return contexts.pop_back(), 0;
}
Code cuCtxGetDevice(int* device) {
  FAKE("cuCtxGetDevice");
  return *device = 0, 0;
}

Code cuMemGetInfo_v2(size_t* free, size_t* total) {
  FAKE("cuMemGetInfo_v2");
  return *free = state.total_bytes - state.used_bytes, *total = state.total_bytes, 0;
}
Code cuMemAlloc_v2(Address* address, size_t bytes) {
  FAKE("cuMemAlloc_v2");
  if (bytes > state.total_bytes - state.used_bytes) return kOutOfMemory;
  // As a card has it, in pages of 2 MB.
  constexpr size_t kPage = 2 << 20;
  *address = reinterpret_cast<Address>(bytes < kPage ? std::malloc(bytes)
                                                     : std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage));
  device_memory[*address] = bytes;
  state.used_bytes += bytes;
  return 0;
}
Code cuMemFree_v2(Address address) {
  const std::lock_guard guard(state.mutex);
  if (const Code code = begin_free()) return code;
  wait_for_all();
  if (!device_memory.contains(address)) return kInvalidValue;
  state.used_bytes -= device_memory[address];
  device_memory.erase(address);
  return std::free(reinterpret_cast<void*>(address)), 0;
}
Code cuMemsetD8_v2(Address address, unsigned char value, size_t bytes) {
  FAKE("cuMemsetD8_v2");
  return std::memset(reinterpret_cast<void*>(address), value, bytes), 0;
}
Code cuMemsetD8Async(Address address, unsigned char value, size_t bytes, void* stream) {
  FAKE("cuMemsetD8Async");
  if (stream == nullptr) return std::memset(reinterpret_cast<void*>(address), value, bytes), 0;
  enqueue(*static_cast<Stream*>(stream), nullptr, [=] { std::memset(reinterpret_cast<void*>(address), value, bytes); });
  return 0;
}
Code cuPointerGetAttribute(void* value, int, Address address) {
  FAKE("cuPointerGetAttribute");
  constexpr unsigned kOfDevice = 2;
  for (const auto& [begin, bytes] : device_memory)
    if (address >= begin && address < begin + bytes) return *static_cast<unsigned*>(value) = kOfDevice, 0;
  return kInvalidValue;
}
Code cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  FAKE("cuMemHostAlloc");
  *memory = std::malloc(bytes);
  host_memory[static_cast<char*>(*memory)] = bytes;
  ++state.num_owned;
  return 0;
}
Code cuMemFreeHost(void* memory) {
  const std::lock_guard guard(state.mutex);
  if (const Code code = begin_free()) return code;
  wait_for_all();
  auto* begin = static_cast<char*>(memory);
  if (!host_memory.contains(begin)) return kInvalidValue;
  --state.num_owned;
  for (Stream* stream : streams)
    std::erase_if(stream->work, [&](const Work& work) {
      const bool used = work.from >= begin && work.from < begin + host_memory[begin];
      state.freed_while_used += used;
      return used;
    });
  host_memory.erase(begin);
  return std::free(memory), 0;
}
Code cuMemcpyHtoD_v2(Address to, const void* from, size_t bytes) {
  FAKE("cuMemcpyHtoD_v2");
  return std::memcpy(reinterpret_cast<void*>(to), from, bytes), 0;
}
Code cuMemcpyDtoH_v2(void* to, Address from, size_t bytes) {
  FAKE("cuMemcpyDtoH_v2");
  return std::memcpy(to, reinterpret_cast<void*>(from), bytes), 0;
}
Code cuMemcpyDtoD_v2(Address to, Address from, size_t bytes) {
  FAKE("cuMemcpyDtoD_v2");
  std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  return 0;
}
Code cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t bytes, void* stream) {
  FAKE("cuMemcpyHtoDAsync_v2");
  enqueue(*static_cast<Stream*>(stream), static_cast<const char*>(from),
          [=] { std::memcpy(reinterpret_cast<void*>(to), from, bytes); });
  return 0;
}
Code cuMemcpyDtoHAsync_v2(void* to, Address from, size_t bytes, void* stream) {
  FAKE("cuMemcpyDtoHAsync_v2");
  enqueue(*static_cast<Stream*>(stream), nullptr, [=] { std::memcpy(to, reinterpret_cast<const void*>(from), bytes); });
  return 0;
}

Code cuStreamCreate(void** stream, unsigned) {
  FAKE("cuStreamCreate");
  ++state.num_owned;
  return streams.insert(static_cast<Stream*>(*stream = new Stream)), 0;
}
Code cuStreamDestroy_v2(void* stream) {
  const std::lock_guard guard(state.mutex);
  if (streams.erase(static_cast<Stream*>(stream)) == 0) return kInvalidValue;
  --state.num_owned;
  return delete static_cast<Stream*>(stream), 0;
}
Code cuStreamSynchronize(void* stream) {
  FAKE("cuStreamSynchronize");
  if (stream == nullptr) return 0;  // the default stream: whatever it does is done at once
  auto& work = *static_cast<Stream*>(stream);
  return run_until(work, work.next_ticket), 0;
}

Code cuEventCreate(void** event, unsigned) {
  FAKE("cuEventCreate");
  ++state.num_owned;
  return events.insert(static_cast<Event*>(*event = new Event)), 0;
}
Code cuEventDestroy_v2(void* event) {
  const std::lock_guard guard(state.mutex);
  if (const Code code = begin_free()) return code;
  events.erase(static_cast<Event*>(event));
  return --state.num_owned, delete static_cast<Event*>(event), 0;
}
Code cuEventRecord(void* event, void* stream) {
  FAKE("cuEventRecord");
  if (stream == nullptr)
    return *static_cast<Event*>(event) = {}, 0;  // whatever the default stream does is done at once
  auto& on = *static_cast<Stream*>(stream);
  *static_cast<Event*>(event) = {&on, on.next_ticket};
  enqueue(on, nullptr, [] {});
  return 0;
}
Code cuEventQuery(void* event) {
  FAKE("cuEventQuery");
  const Event& one = *static_cast<Event*>(event);
  if (one.stream == nullptr || !streams.contains(one.stream)) return 0;
  if (one.stream->work.empty() || one.stream->work.front().ticket > one.ticket) return 0;
  run_until(*one.stream, one.stream->work.front().ticket);  // a step on for whoever asks
  return kNotReady;
}
Code cuStreamWaitEvent(void*, void* event, unsigned) {
  FAKE("cuStreamWaitEvent");
  const Event& one = *static_cast<Event*>(event);
  if (one.stream != nullptr && streams.contains(one.stream)) run_until(*one.stream, one.ticket);
  return 0;
}
Code cuEventSynchronize(void* event) {
  FAKE("cuEventSynchronize");
  const Event& one = *static_cast<Event*>(event);
  if (one.stream != nullptr && streams.contains(one.stream)) run_until(*one.stream, one.ticket);
  return 0;
}
Code cuEventElapsedTime(float* ms, void*, void*) { return *ms = 1, 0; }

Code cuModuleLoadData(void** module, const void*) {
  FAKE("cuModuleLoadData");
  ++state.num_owned;
  return *module = &state, 0;
}
Code cuModuleUnload(void*) {
  const std::lock_guard guard(state.mutex);
  if (const Code code = begin_free()) return code;
  return --state.num_owned, wait_for_all(), 0;
}
Code cuModuleGetFunction(void** function, void*, const char* name) {
  static const std::map<std::string, void*> functions = {
      {"megalith_worker", &worker}, {"megalith_probe_pieces", &probe_pieces}, {"megalith_probe_pages", &probe_pages}};
  const auto found = functions.find(name);
  return *function = found == functions.end() ? static_cast<void*>(&state) : found->second, 0;
}
Code cuFuncGetAttribute(int* value, int which, void*) { return *value = which == 0 ? state.max_threads : 0, 0; }
Code cuFuncSetAttribute(void*, int, int) { return 0; }
Code cuTensorMapEncodeTiled(void* map, int, unsigned, Address, const unsigned long long*, const unsigned long long*,
                            const unsigned*, const unsigned*, int, int, int, int) {
  FAKE("cuTensorMapEncodeTiled", false);
  return std::memset(map, 0, 128), 0;
}
Code cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void*, int, size_t) { return *blocks = 1, 0; }

#ifndef FAKE_CUDA_IS_OLD  // came with CUDA 11.8
// What probes of a card with sides find: a piece is near to the multiprocessors that its address has the parity of.
static Code measure(void* function, void** parameters) {
  constexpr Address kPage = 2 << 20, kMask = 0xab000 | 5 * kPage;
  const auto is_far = [](Address at, int multiprocessor) {
    return (__builtin_popcountll(at & kMask) + multiprocessor) % 2 != 0;
  };
  const Address memory = *static_cast<Address*>(parameters[0]);
  if (function == &probe_pieces) {
    auto* const cycles = *static_cast<unsigned**>(parameters[1]);
    for (int m = 0; m < kMultiprocessors; ++m)
      for (unsigned i = 0; i < 512; ++i) cycles[m * 512 + i] = 300 + 7 * (i % 5) + 220 * is_far(memory + i * 4096, m);
  } else {
    const unsigned num_pages = *static_cast<unsigned*>(parameters[1]);
    auto* const found = *static_cast<int**>(parameters[3]);
    for (unsigned page = 0; page < num_pages; ++page) {
      const int who = static_cast<int>(page) % kMultiprocessors;
      found[2 * page] = is_far(memory + page * kPage, who) ? -220 : 220;  // by how much others are farther
      found[2 * page + 1] = who;
    }
  }
  return 0;
}
Code cuLaunchKernelEx(const void* config, void* function, void** parameters, void**) {
  FAKE("cuLaunchKernelEx");
  const auto& shape = *static_cast<const megalith::jit::CudaLaunchConfig*>(config);
  for (const auto& [to, from] : {std::pair(state.grid, &shape.grid_x), {state.block, &shape.block_x}})
    std::copy(from, from + 3, to);
  if (function == &probe_pieces && state.unclear_probes > 0) return --state.unclear_probes, 0;
  if (state.has_sides && (function == &probe_pieces || function == &probe_pages)) return measure(function, parameters);
  if (function != &worker || !state.worker_never_ends) return 0;
  Stream& stream = *static_cast<Stream*>(static_cast<const megalith::jit::CudaLaunchConfig*>(config)->stream);
  using namespace megalith::runtime;
  const Launch& launch = *static_cast<const Launch*>(parameters[0]);
  enqueue(stream, nullptr, [&launch] {
    for (u32 w = 0; state.worker_begins && w < launch.num_workers; ++w)
      launch.status[w].state = static_cast<u32>(WorkerState::running);
    state.launch = &launch;  // what is written into it from here on stays
  });
  stream.work.push_back({kNever, nullptr, [] {}});
  return 0;
}
#endif

}  // extern "C"
