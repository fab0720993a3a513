// A multiprocessor out of threads of the host, on which the worker of a GPU runs (runtime/cuda/worker.cuh): each of its
// threads is one here, and what PTX has for them to meet is made of atomics with the orders that the PTX ISA gives it
// (section 8, the memory consistency model), none stronger: ThreadSanitizer then sees every order that the worker
// forgot.
//
//   bar.sync, bar.warp.sync      orders what all that take part did before and do after
//   mbarrier.arrive              release; arrivals of one barrier continue each other's release sequence
//   mbarrier.try_wait            acquire
//   cp.async.bulk, cp.async      another thread, the copy engine, which takes up copies in any order; what it wrote is
//                                released by its complete_tx or its arrival on the barrier
//   ld/st/red of words           as their names say; relaxed ones order nothing
//
// What this file keeps for itself is relaxed or belongs to one thread, so that it orders nothing either.
//
// A fault can be planted: `weakened` names an operation that loses its order, or that no longer waits.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <vector>

namespace host {

// Small, so that a few blocks are a few dozen threads; two lanes are enough for one to be ahead of the other.
constexpr int kLanes = 2, kConsumerWarps = 2, kConsumers = kConsumerWarps * kLanes, kThreads = kConsumers + 4 * kLanes;

// ---- faults ------------------------------------------------------------------------------------

/// The operation that is weakened: "arrive frame_full", "block_sync compute_warps_run:1"; "" for none. Set between runs.
inline std::string weakened;
/// Not only its order is gone: a wait for it ends at once.
inline bool dropped = false;
/// Collects the names of all operations that there were; only for a run of its own, for the set orders much.
inline std::set<std::string>* found_operations = nullptr;
inline std::atomic_flag found_lock;

inline bool is_weakened(const char* operation, const char* where) {
  if (found_operations != nullptr) {
    while (found_lock.test_and_set(std::memory_order_acquire)) {}
    found_operations->insert(std::string(operation) + " " + where);
    found_lock.clear(std::memory_order_release);
  }
  if (weakened.empty()) return false;
  const size_t length = std::strlen(operation);
  return weakened.compare(0, length, operation) == 0 && weakened.size() > length && weakened[length] == ' ' &&
         weakened.compare(length + 1, std::string::npos, where) == 0;
}

// ---- sleep -------------------------------------------------------------------------------------

// Where a GPU's threads look again and again, these sleep, for there are more of them than cores. A sleeper that missed
// its wake-up looks again soon; futexes order nothing that ThreadSanitizer would see.
constexpr long kSleepNanoseconds = 2'000'000;
inline std::array<std::atomic<int>, 1024> sleepers;

inline std::atomic<int>& sleepers_at(const void* word) {
  return sleepers[(reinterpret_cast<uintptr_t>(word) >> 2) % sleepers.size()];
}
/// While *word is `seen`, for a moment at most.
inline void sleep_on(const void* word, uint32_t seen, long nanoseconds = kSleepNanoseconds) {
  const timespec timeout{0, nanoseconds};
  sleepers_at(word).fetch_add(1, std::memory_order_relaxed);
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, &timeout, nullptr, 0);
  sleepers_at(word).fetch_sub(1, std::memory_order_relaxed);
}
inline void wake(const void* word) {
  if (sleepers_at(word).load(std::memory_order_relaxed) != 0)
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
}
/// The half of a word of 64 bits that changes when others should look: arrivals of an event, the epoch of a value, the
/// phase of a barrier.
inline const void* high_half(const void* word) { return static_cast<const uint32_t*>(word) + 1; }

// ---- barriers ----------------------------------------------------------------------------------

/// A named barrier or a warp's: each waits until all others have come as often as itself, or have left for good.
class Meeting {
 public:
  void reset(int num_threads) {
    num_threads_ = num_threads;
    for (std::atomic<uint32_t>& count : counts_) count.store(0, std::memory_order_relaxed);
  }
  void sync(int thread, bool is_ordered) {
    const uint32_t mine = counts_[thread].load(std::memory_order_relaxed) + 1;
    counts_[thread].store(mine, is_ordered ? std::memory_order_release : std::memory_order_relaxed);
    wake(&counts_[thread]);
    for (int other = 0; other < num_threads_; ++other)
      for (;;) {
        const uint32_t count = counts_[other].load(is_ordered ? std::memory_order_acquire : std::memory_order_relaxed);
        if (count >= mine) break;
        sleep_on(&counts_[other], count);
      }
  }
  void leave(int thread) {
    counts_[thread].store(UINT32_MAX, std::memory_order_relaxed);
    wake(&counts_[thread]);
  }

 private:
  int num_threads_ = 0;
  std::array<std::atomic<uint32_t>, kThreads> counts_{};
};

/// mbarrier, in its 64 bits: 32 of bytes to come, 15 arrivals to come, 15 of a whole phase, and the phase's parity.
struct PhaseBarrier {
  static constexpr uint64_t kParity = uint64_t{1} << 63;

  static uint64_t fresh(uint32_t arrivals) { return uint64_t{arrivals} << 47 | uint64_t{arrivals} << 32; }
  static bool passed(uint64_t word, uint32_t parity) { return (word >> 63) != parity; }
  /// An arrival or none, and a change of the bytes to come.
  static void change(uint64_t* barrier, int arrivals, int64_t bytes, std::memory_order order) {
    uint64_t old = __atomic_load_n(barrier, __ATOMIC_RELAXED), changed;
    do {
      const uint32_t to_come = static_cast<uint32_t>(old) + static_cast<uint32_t>(bytes);
      const uint64_t pending = (old >> 32 & 0x7fff) - static_cast<uint64_t>(arrivals), whole = old >> 47 & 0x7fff;
      changed = (old & kParity) | whole << 47 | (pending & 0x7fff) << 32 | to_come;
      if (pending == 0 && to_come == 0) changed = (~old & kParity) | whole << 47 | whole << 32;
    } while (!__atomic_compare_exchange_n(barrier, &old, changed, false,
                                          order == std::memory_order_release ? __ATOMIC_RELEASE : __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    wake(high_half(barrier));
  }
};

// ---- the copy engine ---------------------------------------------------------------------------

class CopyEngine {
 public:
  void reset() {
    for (Request& request : requests_) request.state.store(kFree, std::memory_order_relaxed);
    is_over_.store(false, std::memory_order_relaxed);
  }
  /// Pieces of 16 bytes that lie `stride` apart, or all if that is 0. Then the bytes have come, or a lane has arrived.
  void begin(void* to, const void* from, uint32_t bytes, uint32_t stride, uint64_t* barrier) {
    for (size_t i = 0;; i = (i + 1) % requests_.size()) {
      Request& request = requests_[i];
      int state = kFree;
      if (!request.state.compare_exchange_strong(state, kClaimed, std::memory_order_relaxed)) continue;
      request.to.store(to, std::memory_order_relaxed);
      request.from.store(from, std::memory_order_relaxed);
      request.bytes.store(bytes, std::memory_order_relaxed);
      request.stride.store(stride, std::memory_order_relaxed);
      request.barrier.store(barrier, std::memory_order_relaxed);
      request.state.store(kWaiting, std::memory_order_release);  // what came before the copy in its thread
      news_.fetch_add(1, std::memory_order_relaxed);
      wake(&news_);
      return;
    }
  }
  /// A thread of its own, until stop(). Returns how many copies were under way then: they would have written into the
  /// shared memory of the next block.
  int run(uint64_t seed, bool is_ordered) {
    for (uint64_t random = seed | 1; !is_over_.load(std::memory_order_relaxed);) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      Request& request = requests_[(random >> 40) % requests_.size()];
      const uint32_t news = news_.load(std::memory_order_relaxed);
      if ((random >> 33) % 4 == 0 || request.state.load(std::memory_order_acquire) != kWaiting) {
        const bool is_idle = std::ranges::none_of(
            requests_, [](const Request& r) { return r.state.load(std::memory_order_relaxed) == kWaiting; });
        if (is_idle) sleep_on(&news_, news);
        continue;
      }
      const uint32_t bytes = request.bytes.load(std::memory_order_relaxed);
      const uint32_t stride = request.stride.load(std::memory_order_relaxed);
      auto* const to = static_cast<char*>(request.to.load(std::memory_order_relaxed));
      const auto* const from = static_cast<const char*>(request.from.load(std::memory_order_relaxed));
      for (uint32_t at = 0; at < bytes; at += stride == 0 ? bytes : stride)
        std::memcpy(to + at, from + at, stride == 0 ? bytes : 16);
      uint64_t* const barrier = request.barrier.load(std::memory_order_relaxed);
      request.state.store(kFree, std::memory_order_relaxed);
      PhaseBarrier::change(barrier, stride == 0 ? 0 : 1, stride == 0 ? -int64_t{bytes} : 0,
                           is_ordered ? std::memory_order_release : std::memory_order_relaxed);
    }
    int under_way = 0;
    for (const Request& request : requests_) under_way += request.state.load(std::memory_order_relaxed) != kFree;
    return under_way;
  }
  void stop() {
    is_over_.store(true, std::memory_order_relaxed);
    news_.fetch_add(1, std::memory_order_relaxed);
    wake(&news_);
  }

 private:
  enum State : int { kFree, kClaimed, kWaiting };
  struct Request {
    std::atomic<int> state{kFree};
    std::atomic<void*> to{};
    std::atomic<const void*> from{};
    std::atomic<uint32_t> bytes{}, stride{};
    std::atomic<uint64_t*> barrier{};
  };
  std::array<Request, 16> requests_;
  std::atomic<uint32_t> news_{0};
  std::atomic<bool> is_over_{false};
};

/// What a tensor map says to the copy engine: where the pieces of one half of each block are, and what is taken of each.
struct ChunkMap {
  const unsigned char* memory;
  int piece_bytes, pieces[4];
};

// ---- a block and its threads -------------------------------------------------------------------

struct Block {
  /// Of variables in shared memory, for the names of operations on them.
  struct Name {
    const char* name;
    const void* begin;
    const void* end;
  };
  std::vector<Name> names;
  unsigned multiprocessor = 0;  // that it is on
  Meeting whole, consumers;
  std::array<Meeting, kThreads / kLanes> warps;
  CopyEngine copies;
  struct Votes {
    Meeting meeting;
    std::array<std::atomic<bool>, kLanes> of_lane{};
  };
  std::array<Votes, kThreads / kLanes> votes;  // of each warp

  bool any_of_lanes(bool value);
  void reset() {
    for (Votes& of_warp : votes) of_warp.meeting.reset(kLanes);
    whole.reset(kThreads);
    consumers.reset(kConsumers);
    for (Meeting& warp : warps) warp.reset(kLanes);
    copies.reset();
  }
  const char* name_of(const void* at) const {
    for (const Name& name : names)
      if (at >= name.begin && at < name.end) return name.name;
    return "?";
  }
};

/// Who this thread is, and what it looked at last.
struct Thread {
  Block* block = nullptr;
  int index = 0;
  uint64_t random = 1;
  const void* looked_at = nullptr;
  uint32_t seen = 0;
};
inline thread_local Thread self;

/// Before each operation: now and then all others get ahead.
inline void dawdle() {
  self.random = self.random * 6364136223846793005u + 1442695040888963407u;
  static const uint32_t kNever = 0;
  if (const auto chance = static_cast<uint32_t>(self.random >> 40); chance % 128 == 0)
    sleep_on(&kNever, 0, 1000 * (chance >> 7) % 100'000);
}

/// A look at 32 bits that others change. Who sees the same again sleeps.
inline void look(const void* word, uint32_t value) {
  if (self.looked_at == word && self.seen == value) sleep_on(word, value);
  self.looked_at = word;
  self.seen = value;
}

/// A vote orders nothing but itself.
inline bool Block::any_of_lanes(bool value) {
  const int lane = self.index % kLanes;
  bool any = false;
  Votes& of_warp = votes[static_cast<size_t>(self.index / kLanes)];
  of_warp.of_lane[static_cast<size_t>(lane)].store(value, std::memory_order_relaxed);
  of_warp.meeting.sync(lane, false);
  for (const std::atomic<bool>& one : of_warp.of_lane) any = any || one.load(std::memory_order_relaxed);
  of_warp.meeting.sync(lane, false);
  return any;
}

/// "function:line", of a barrier's caller, the same in all blocks.
inline std::string place(const char* function, int line) {
  const std::string name = function;
  return name.substr(0, name.find('<')) + ":" + std::to_string(line);
}

inline void meet(Meeting& meeting, int index, const char* operation, const char* function, int line) {
  dawdle();
  bool is_ordered = true;
  if (!weakened.empty() || found_operations != nullptr)
    is_ordered = !is_weakened(operation, place(function, line).c_str());
  if (is_ordered || !dropped) meeting.sync(index, is_ordered);
}

// ---- what a body of the tests has to do --------------------------------------------------------

struct Element {
  std::byte* at;
  int64_t bytes;
  bool is_word;  // of the exchange
};
/// The task: elements that it reads and finds `expected[iteration]` in, elements that it writes its stamp into, and
/// chunks that it takes from its worker's stream.
struct TaskBody {
  std::vector<Element> reads, writes;
  std::vector<std::vector<uint64_t>> expected;
  uint32_t first_iteration = 0, num_tasks = 0, index = 0;
  uint32_t num_chunks = 0, first_chunk = 0, stream_seed = 0;
  std::vector<void*> operands;  // of its record, which the prefetch warp must have copied
  std::atomic<int>*wrong = nullptr, *runs = nullptr;
  int* stop = nullptr;  // set in its iteration number `stop_in`
  uint32_t stop_in = 0;
  int* sizes = nullptr;            // of each iteration others, written by the body that has `stop`
  uint32_t fault_in = UINT32_MAX;  // the iteration in which every thread finds a fault: its own number
  void* mail = nullptr;            // a mailbox: gets the number of each iteration as a token
  bool on_sides = false;           // its chunks, of which some are short then
  const void* lost = nullptr;      // a word that it does not write in its iteration number `lost_in`
  uint32_t lost_in = 0;

  uint64_t stamp(uint32_t i) const { return uint64_t{i} * num_tasks + index + 1; }
  static int size(uint32_t i, uint32_t number) { return static_cast<int>(10 * i + number); }
};
inline uint32_t chunk_word(uint32_t stream_seed, uint32_t chunk, uint32_t at) {
  return (stream_seed * 0x9e3779b9u ^ chunk) * 0x85ebca6bu + at;
}
inline int chunk_size(uint32_t stream_seed, uint32_t chunk) {
  return static_cast<int>((chunk_word(stream_seed, chunk, 0) >> 16) % 2);  // stream::kNumChunkSizes
}

using U16 = uint16_t __attribute__((may_alias));
using U32 = uint32_t __attribute__((may_alias));
using U64 = uint64_t __attribute__((may_alias));

/// Plain accesses: their order is the protocol's to make.
inline uint64_t load(const Element& element) {
  if (element.bytes == 2) return *reinterpret_cast<const U16*>(element.at);
  if (element.bytes == 4) return *reinterpret_cast<const U32*>(element.at);
  return *reinterpret_cast<const U64*>(element.at);
}
inline void store(const Element& element, uint64_t value) {
  if (element.bytes == 2)
    *reinterpret_cast<U16*>(element.at) = static_cast<uint16_t>(value);
  else if (element.bytes == 4)
    *reinterpret_cast<U32*>(element.at) = static_cast<uint32_t>(value);
  else
    *reinterpret_cast<U64*>(element.at) = value;
}

/// One block's code, compiled for it alone, for its shared memory are variables of its own.
struct BlockCode {
  void (*prepare)(Block* block);
  void (*thread)(const void* launch, unsigned worker);  // one of its threads, with `self` set
};
constexpr int kBlocks = 4;
const BlockCode& block_code(int block);

}  // namespace host
