// The GPU worker: what each block of a persistent kernel runs. The steps P0-P5 and the words W1-W4 are those of
// runtime/protocol.h. The warps of a block have these roles:
//
//   compute    16 warps: run the bodies, in step. Thread 0 speaks the protocol for the block, barriers pass on to the
//              others what it saw: P2 is a load with acquire, then a barrier.
//   loader     1 warp: copies the worker's stream of weights into the ring (pipeline/weight_ring.cuh). It waits for a
//              free slot and for nothing else, so weights keep coming over task, layer and iteration borders.
//   prefetch   1 warp: P1. Fetches the next tasks into frames in shared memory, a chain of reads that nobody has to
//              wait for then.
//   copy       1 warp, with more than 128 tokens: copies what tasks multiply, and keys and values (pipeline/copy_warp.cuh).
//   signal     1 warp: P5. A release takes as long as everything before it takes to reach the L2; the compute warps
//              are in the next task by then. It writes down which one that is, and tells the host of new mail.
//
// Between two tasks the compute warps do as little as can be: in a small model each instruction of thread 0 there is
// waited for by all workers, 168 times a token. To write down the task and to ask whether there is a profile took 2 % of
// one of Qwen3-0.6B on an H200.
//
// On an abort nobody leaves in the middle: waits end at once, the iteration's tasks run on whatever they find, and the
// gate is where all leave. What was made of it nobody takes: `advance` posts nothing then (single_thread.cuh).
// So every subscript that data decides is checked, and none that is outside is used (kernels/cuda/common/check.cuh).
//
// Values that carry their flag (pipeline/ll_buffer.cuh) need none of P2 and P5: bodies wait for them where they load.
//
// Nobody sleeps; `sleepers` stays zero. Status and abort word lie in device memory and the host copies them
// (runtime/cuda/launcher.h), so the path between two tasks never waits for the host's link.
#pragma once

#include "megalith/kernels/cuda/common/check.cuh"
#include "megalith/kernels/cuda/pipeline/copy_warp.cuh"
#include "megalith/kernels/cuda/pipeline/ll_buffer.cuh"
#include "megalith/kernels/cuda/pipeline/partner.cuh"
#include "megalith/kernels/cuda/scheduler/mail.cuh"
#include "megalith/kernels/cuda/scheduler/position_table.cuh"
#include "megalith/kernels/cuda/scheduler/step_sizes.cuh"
#include "megalith/kernels/shared_budget.h"
#include "megalith/kernels/stream_limits.h"
#include "megalith/runtime/cuda/sm_to_worker.cuh"
#include "megalith/runtime/cuda/stream_source.cuh"
#include "megalith/runtime/cuda/sync.cuh"
#include "megalith/runtime/mailbox.h"
#include "megalith/runtime/profile.h"

namespace megalith::runtime {

using kernels::Barrier;
using kernels::shared_variable;
namespace place = kernels::place;

/// What a task needs to run, in shared memory: threads that each had it on a stack of their own would drive everything
/// else out of the cache. The limits are checked when a program is made (runtime/cuda/program.cpp).
struct Frame : TaskRecord {
  /// What each thread looks at before the body, in one look.
  struct alignas(16) Head {
    u32 index;     // of the task
    u32 body;      // as in its record
    u32 occasion;  // what there is to do before: any of these
    u32 next;      // task of its worker's list; behind the last one kNone
  } head;
  static constexpr u32 kIsFirst = 1, kWaits = 2,
                       kIsProfiled = 4;  // of the list; for events; its times are written down
  u32 iteration;
  kernels::RingPlace ring;       // where the task's weights begin
  kernels::TaskTimes* times;     // own_times, or nullptr
  kernels::TaskTimes own_times;  // if profiled
  u8* scratch;
  // What a body leaves for the signal warp: where there is mail for the host now, or nullptr; and up to which record.
  mutable Mailbox* mail;
  mutable u32 mail_head;
  WaitRecord waits[kFrameWaits];
  u32 signals[kFrameSignals];
  void* operands[kFrameOperands];
};

static_assert(sizeof(Frame) == 512, "of another size NVRTC spills 44 bytes in small models");

constexpr u32 kFrames = place::kNumFrames;
using Frames = Frame[kFrames];
struct FrameBarriers {
  Barrier full[kFrames], done[kFrames], empty[kFrames];
};
/// Which frame is next, and the parity of its barriers' phase. Counted in one word: who runs bodies has no register for two.
class FrameTurn {
 public:
  u32 slot() const { return turn_ % kParity; }
  u32 parity() const { return turn_ / kParity; }
  void next() {
    ++turn_;
    if (slot() == kFrames) turn_ = ~turn_ & kParity;
  }

 private:
  static constexpr u32 kParity = 8;  // the slot below it
  static_assert(kFrames < kParity);
  u32 turn_ = 0;
};
inline Frames& frames() { return shared_variable<Frames, place::kFrames, place::kFrameBarriers>(); }
inline FrameBarriers& frame_barriers() {
  return shared_variable<FrameBarriers, place::kFrameBarriers, place::kRingBarriers>();
}
/// What thread 0 tells the others: the iteration happens, or why not.
enum class Go : u32 { run, stop, abort };
inline Go& gate_says() { return shared_variable<Go, place::kGate, place::kStreamIdle>(); }
/// The compute warps have left: loader warp and prefetch warp follow.
inline Barrier& ended() { return shared_variable<Barrier, place::kEnded, place::kStopped>(); }

inline bool has_ended() { return kernels::barrier_is_past(&ended(), 0); }
inline bool has_stopped() { return kernels::flag_is_set(&kernels::stopped()); }

/// Whether `needed` arrivals are in. Acquire; pairs with P5.
inline bool event_has(const EventCounter& event, u32 needed) {
  return static_cast<i32>(word_arrived(load_acquire(&event.word)) - needed) >= 0;
}

/// P2, by thread 0: true once `needed` arrivals are in, false if the run is aborted. It waits as long as the host has
/// it wait: a host that was stopped, or does not read its mail, is late, and whether a graph is wrong its watchdog
/// says. What it waits for is written down only after a while, for whoever asks why nothing moves.
inline bool event_wait(const Launch& launch, WorkerStatus& status, u32 event, u32 needed) {
  constexpr u32 kRoundsBeforeReport = 1 << 12;
  bool is_reported = false;
  for (u32 round = 1; !event_has(launch.events[event], needed); ++round) {
    if (has_stopped()) return false;
    if (round == kRoundsBeforeReport) {
      store_relaxed(&status.event, event);
      store_relaxed(&status.wanted, needed);
      store_relaxed(&status.state, static_cast<u32>(WorkerState::waiting));
      is_reported = true;
    }
    if (round % 64 == 0 && load_relaxed(&launch.control->abort) != 0) return false;
  }
  if (is_reported) store_relaxed(&status.state, static_cast<u32>(WorkerState::running));
  return true;
}

/// P1, by the prefetch warp: each look into device memory is under way before the one before it is used. Then it has
/// time to bring near what a task reads besides its stream; some of it a task later, when the next one has its frame.
template <class LookAhead, class LookAheadLate>
inline void prefetch_warp_run(const Launch& launch, u32 worker, LookAhead look_ahead, LookAheadLate look_ahead_late) {
  // Where it fits there it is the shared area, and the launch names none.
  u8* const scratch =
      launch.scratch == nullptr ? kernels::shared_area() : launch.scratch + worker * launch.scratch_bytes;
  constexpr u32 kRecordWords = sizeof(TaskRecord) / sizeof(u32), kLanes = kernels::kWarpLanes,
                kEach = (kRecordWords + kLanes - 1) / kLanes;
  const u32 lane = static_cast<u32>(kernels::lane());
  u32 iteration = launch.first_iteration;
  kernels::RingPlace ring = {0, 0};  // of the iteration's first chunk
  const u32* const list = launch.list + launch.list_begin[worker];
  const u32 count = launch.list_begin[worker + 1] - launch.list_begin[worker];
  // A lane has its words of the next task's record, and knows which one comes after that.
  u32 record[kEach] = {};
  const auto fetch = [&](u32 index) {
    const u32* const from = reinterpret_cast<const u32*>(launch.tasks + index);
#pragma unroll
    for (u32 i = 0; i < kEach; ++i)
      if (lane + i * kLanes < kRecordWords) record[i] = from[lane + i * kLanes];
  };
  u32 index = list[0], next = list[count > 1 ? 1 : 0];
  fetch(index);
  u32 slot = 0, parity = 1;
  bool is_first = true;
#pragma unroll 1
  for (u32 at = 0;;) {
    // All lanes or none: each has a share of the record.
    while (!kernels::all_of_warp(kernels::barrier_passed(&frame_barriers().empty[slot], parity)))
      if (kernels::any_of_warp(has_ended())) return;
    Frame& frame = frames()[slot];
#pragma unroll
    for (u32 i = 0; i < kEach; ++i)
      if (lane + i * kLanes < kRecordWords)
        reinterpret_cast<u32*>(static_cast<TaskRecord*>(&frame))[lane + i * kLanes] = record[i];
    kernels::warp_sync();
    // Asked anew below, where a task has more of them than a lane each.
    const auto waits = [&] { return reinterpret_cast<const u32*>(launch.waits + frame.first_wait); };
    const auto signals = [&] { return launch.signals + frame.first_signal; };
    const auto operands = [&] { return reinterpret_cast<const u32*>(launch.operands + frame.first_operand); };
    const auto wait_words = [&] { return frame.num_waits * static_cast<u32>(sizeof(WaitRecord) / sizeof(u32)); };
    const auto signal_words = [&] { return frame.num_signals; };
    const auto operand_words = [&] { return frame.num_operands * 2; };
    const u32 wait = lane < wait_words() ? waits()[lane] : 0, signal = lane < signal_words() ? signals()[lane] : 0,
              operand = lane < operand_words() ? operands()[lane] : 0;
    fetch(next);
    const u32 after_next = list[at + 2 < count ? at + 2 : (at + 2) % count];
    if (lane == 0) {
      frame.head = {index, frame.body,
                    (at == 0 ? Frame::kIsFirst : 0) | (frame.num_waits > 0 ? Frame::kWaits : 0) |
                        (launch.profile != nullptr ? Frame::kIsProfiled : 0),
                    at + 1 < count ? next : kNone};
      frame.iteration = iteration;
      frame.times = launch.profile != nullptr ? &frame.own_times : nullptr;
      frame.ring = ring.any_further(frame.first_chunk);
      frame.scratch = scratch;
      frame.mail = nullptr;
    }
    const auto put_words = [&](void* to, auto from, u32 first_word, auto num_words) {
      u32* const words = static_cast<u32*>(to);
      if (lane < num_words()) words[lane] = first_word;
#pragma unroll 1
      for (u32 i = lane + kLanes; i < num_words(); i += kLanes) words[i] = from()[i];
    };
    put_words(frame.waits, waits, wait, wait_words);
    put_words(frame.signals, signals, signal, signal_words);
    put_words(frame.operands, operands, operand, operand_words);
    kernels::warp_sync();
    kernels::warp_arrive(&frame_barriers().full[slot]);
    if (const u32 before = slot == 0 ? kFrames - 1 : slot - 1; !is_first) look_ahead_late(frames()[before]);
    is_first = false;
    look_ahead(frame);
    index = next;
    next = after_next;
    if (++at == count) {
      at = 0;
      ++iteration;
      if (launch.streams != nullptr) ring = ring.any_further(static_cast<u32>(launch.stream[worker].num_chunks));
    }
    if (++slot == kFrames) {
      slot = 0;
      parity ^= 1;
    }
  }
}

/// What the loader warp does besides copying: chunks that will be copied later are brought into the L2, at the rate at
/// which memory could deliver them. It begins when the ring has been full for a while; not before the copies under way
/// are in, or what others still wait for would come later. In cycles; on an H200 a chunk takes 0.47 us. With a delay
/// of 4000 instead of 8000 Qwen3-8B takes 3.56 ms instead of 3.60, Llama-3.2-1B 0.658 instead of 0.652. Not where tasks are
/// short: while attention reads keys and values memory has more to do than behind it (Qwen3-0.6B behind 32,000 tokens 1.285 ms
/// instead of 1.364, behind 512 the same).
constexpr u64 kPrefetchDelay = 4000, kPrefetchInterval = 900;
constexpr u32 kMaxAhead = kernels::kWorkerConfig.prefetch;

class ChunksAhead {
 public:
  explicit ChunksAhead(u64 num_chunks)
      : num_chunks_(num_chunks),
        most_(kernels::waits_for_words() != 0
                  ? 0
                  : static_cast<u32>(kernels::min(static_cast<i64>(num_chunks), i64{kMaxAhead}))) {}

  /// While the loader warp waits to copy chunk `chunk` of the stream.
  void look(const StreamSource& source, u64 chunk, u64 now) {
    if (next_ == 0 || now < next_ || count_ >= most_) return;
    const u64 later = chunk + count_;
    source.prefetch(later < num_chunks_ ? later : later - num_chunks_);
    ++count_;
    next_ += kPrefetchInterval;
  }
  void ring_is_full(u64 now) {
    if (next_ == 0) next_ = now + kPrefetchDelay;
  }
  void copy_begins() {
    if (count_ > 0) --count_;
    next_ = 0;
  }
  bool asks() const { return count_ > 0 && count_ < most_; }

 private:
  const u64 num_chunks_;
  const u32 most_;
  u32 count_ = 0;  // chunks on their way, from the next one to be copied on
  u64 next_ = 0;   // when another one is asked for; 0: not at all
};

/// Copies that are under way at a time: as many as memory needs to be busy, and fewer once a worker has enough chunks
/// to go on with. More of them only wait there, and before what others ask the L2 for. With all that the ring has room
/// for, 6, 4 and 3 of them Llama-3.2-1B takes 0.719, 0.707, 0.677 and 0.668 ms a token, with 4 and then 2 0.652
/// (Qwen3-8B 3.73, 3.69, 3.63, 3.66 and 3.60; of six layers of it, with 64 rows, 1.28 instead of 1.30).
///
/// Where activations are copied, too, they do not stand behind copies of weights: so as many as there may be.
constexpr u32 kMaxCopies = kernels::kWorkerConfig.copies,
              kRingCopies = stream::ring_copies(kernels::kRingBarriers, kernels::kWorkerConfig.stream_rows),
              kCopies = kRingCopies < kMaxCopies ? kRingCopies : kMaxCopies;
static_assert(kMaxCopies <= stream::kMaxCopies);
constexpr u32 kFewCopies = kCopies < 4 || kernels::kHasActivationRing ? kCopies : 2;
constexpr u32 kEnough = kernels::kRingBarriers < 8 ? kernels::kRingBarriers : 6;
/// Whether a worker's tasks take less than that each.
inline bool has_short_tasks(const Launch& launch, u32 worker) {
  const u32 num_tasks = launch.list_begin[worker + 1] - launch.list_begin[worker];
  return kernels::kWorkerConfig.stream_rows <= stream::kMaxRowsOfWords && launch.streams != nullptr &&
         launch.stream[worker].num_chunks < u64{kEnough} * num_tasks;
}
/// Where tasks are short words come sooner with one copy (Qwen3-0.6B 0.450 ms instead of 0.467).
inline u32 few_copies() { return kernels::waits_for_words() != 0 && kFewCopies < kCopies ? 1 : kFewCopies; }

/// Whether a phase is over. Where nothing else is to be done meanwhile the warp may sleep a little.
inline bool loader_looks(Barrier* barrier, u32 parity) {
  return kMaxAhead > 0 ? kernels::barrier_is_past(barrier, parity) : kernels::barrier_passed(barrier, parity);
}

/// By the loader warp. Copies under way write to shared memory, so the block may not end before they have.
inline void loader_warp_run(const Launch& launch, u32 worker) {
  if (launch.streams == nullptr || kernels::kRingSlots == 0) return;
  const Stream mine = launch.stream[worker];
  if (mine.num_chunks == 0 || kernels::lane() >= static_cast<int>(kernels::kCopyLanes)) return;
  StreamSource source(launch, mine);
  const u32 few = few_copies();
  u32 slot = 0, parity = 1;
  u64 round = 0;  // times that the ring went round
  u32 idle = 0;   // as stream_idle has it
  ChunksAhead ahead(mine.num_chunks);
  for (u64 chunk = 0;; chunk = chunk + 1 == mine.num_chunks ? 0 : chunk + 1) {
    // The copy that was begun `count` ago is in; the slot `count` further on is free.
    const auto is_in = [&](u32 count) {
      const bool is_of_round = slot >= count;
      if (!is_of_round && round == 0) return true;
      return kernels::barrier_is_past(
          &kernels::ring_barriers().full[is_of_round ? slot - count : slot + kernels::kRingBarriers - count],
          static_cast<u32>(is_of_round ? round : round - 1) & 1);
    };
    const auto is_free = [&](u32 count) {
      const bool is_of_round = slot + count < kernels::kRingBarriers;
      return kernels::barrier_is_past(
          &kernels::ring_barriers().empty[is_of_round ? slot + count : slot + count - kernels::kRingBarriers],
          is_of_round ? parity : parity ^ 1);
    };
    bool is_over = false;
    u64 looked = 0;  // the last time that nothing was under way
    while (!loader_looks(&kernels::ring_barriers().empty[slot], parity) && !is_over) {
      is_over = has_ended();
      const u64 now = kernels::profile_clock();
      ahead.ring_is_full(now);
      if (launch.profile != nullptr) {
        const bool is_idle = !ahead.asks() && is_in(1);
        if (is_idle && looked != 0) kernels::flag_put(&kernels::stream_idle(), idle += static_cast<u32>(now - looked));
        looked = is_idle ? now : 0;
      }
      ahead.look(source, chunk, now);
    }
    // In order: of those before the last kCopies none is left behind (stream::ring_slots()).
    while (!is_over && !(is_in(kCopies) && (is_in(few) || is_free(kernels::kRingBarriers - kEnough)))) {}
    ahead.copy_begins();
    // Together: a copy that only some lanes had begun would never be complete.
    if (kernels::any_of_copy_lanes(is_over)) {
      for (u32 s = 0; s < kernels::kRingBarriers; ++s) {
        const u64 copies = round + (s < slot ? 1 : 0);
        if (copies > 0) kernels::barrier_wait(&kernels::ring_barriers().full[s], static_cast<u32>(copies - 1) & 1);
      }
      return;
    }
    source.copy_begin(kernels::ring_slot(slot), kernels::ring_scales(slot), chunk,
                      &kernels::ring_barriers().full[slot]);
    if (++slot == kernels::kRingBarriers) {
      slot = 0;
      parity ^= 1;
      ++round;
    }
  }
}

/// P5, by the signal warp: once the compute warps are done with a task, its signals; and what is written down of it.
/// Release; pairs with event_has().
inline void signal_warp_run(const Launch& launch, u32 worker) {
  if (kernels::lane() != 0) return;
  FrameTurn turn;
  for (u32 done = 0;; ++done, turn.next()) {
    const u32 slot = turn.slot();
    kernels::barrier_wait(&frame_barriers().done[slot], turn.parity());
    const Frame& frame = frames()[slot];
    const auto write_clock = [&](u32 index) {
      if (launch.profile != nullptr)
        *profile_clock_pair(launch, worker, index) = {kernels::profile_clock(), monotonic_ns()};
    };
    if (frame.head.index == kNone) return write_clock(profile_clocks_before(done));
    // What the compute warps are at now; of the first one of the list thread 0 says so, behind the gate.
    if (frame.head.next != kNone) store_relaxed(&launch.status[worker].task, frame.head.next);
    for (u32 s = 0; s < frame.num_signals; ++s) add_release(&launch.events[frame.signals[s]].word, kOneArrival);
    if (launch.profile != nullptr) {
      const kernels::TaskTimes& times = frame.own_times;
      const u64 end = kernels::profile_clock();
      *profile_record(launch, worker, done) = {frame.head.index,
                                               frame.iteration,
                                               times.begin,
                                               times.ready,
                                               end,
                                               times.idle_at_ready - times.idle_at_begin,
                                               kernels::flag_value(&kernels::stream_idle()) - times.idle_at_ready};
      if (done % kTasksOfClock == 0) write_clock(done / kTasksOfClock);
    }
    // Behind the signals: the way to the host's memory is long.
    if (frame.mail != nullptr) mailbox_publish(frame.mail, frame.mail_head);
    store_relaxed(&launch.status[worker].tasks_done, done + 1);
    kernels::barrier_arrive(&frame_barriers().empty[slot]);
  }
}

/// P0, by thread 0 of the compute warps: whether the iteration happens.
inline Go gate_pass(const Launch& launch, WorkerStatus& status, u32 iteration) {
  if (launch.num_iterations != 0 && iteration - launch.first_iteration == launch.num_iterations) return Go::stop;
  store_relaxed(&status.iteration, iteration);
  store_relaxed(&status.task, kNone);
  store_relaxed(&status.state, static_cast<u32>(WorkerState::running));
  if (has_stopped() || load_relaxed(&launch.control->abort) != 0) return Go::abort;
  if (launch.gate != kNone && !event_wait(launch, status, launch.gate, launch.gate_arrivals * iteration))
    return Go::abort;
  const i32 stop = launch.stop != nullptr ? *static_cast<const volatile i32*>(launch.stop) : 0;
  kernels::look_up_sizes(launch.sizes);
  return stop != 0 ? Go::stop : Go::run;
}

/// P0, P2 and P3, by the compute warps, until num_iterations are done, W4 stops the loop, or W2 aborts the run. All that
/// a thread keeps while a body runs is whose turn it is: registers are the bodies'.
template <class RunTask>
MEGALITH_INLINE inline WorkerState compute_warps_run(const Launch& launch, RunTask run_task) {
  const bool speaks = kernels::thread() == 0;
#pragma unroll 1
  for (FrameTurn turn;; turn.next()) {
    Frame& frame = frames()[turn.slot()];
    kernels::barrier_wait(&frame_barriers().full[turn.slot()], turn.parity());

    const Frame::Head head = frame.head;
    if (head.occasion != 0) {
      // P0 gate
      if (head.occasion & Frame::kIsFirst) {
        if (speaks) gate_says() = gate_pass(launch, launch.status[worker_number()], frame.iteration);
        kernels::block_sync();
        if (gate_says() != Go::run) {
          // The signal warp leaves with this frame, so behind all signals.
          if (speaks) frame.head.index = kNone;
          kernels::block_arrive(&frame_barriers().done[turn.slot()]);
          return gate_says() == Go::stop ? WorkerState::finished : WorkerState::aborted;
        }
        if (speaks) store_relaxed(&launch.status[worker_number()].task, head.index);
      }
      const bool is_timed = speaks && (head.occasion & Frame::kIsProfiled);
      if (is_timed) frame.own_times.begin_now();

      // P2 wait
      if (head.occasion & Frame::kWaits) {
        if (speaks)
#pragma unroll 1
          for (u32 w = 0; w < frame.num_waits; ++w) {
            const WaitRecord& wait = frame.waits[w];
            if (event_wait(launch, launch.status[worker_number()], wait.event,
                           wait.arrivals * (frame.iteration - wait.lag) + wait.count))
              continue;
            kernels::flag_set(&kernels::stopped());
            break;
          }
        kernels::block_sync();
      }
      if (is_timed) frame.own_times.ready_now();
    }

    // P3 run
    run_task(head.body, frame);
    kernels::block_sync();
    // Who is thread 0 is asked anew: kept over the body it would spill.
    kernels::block_arrive(&frame_barriers().done[turn.slot()]);
    if (kernels::kEveryThreadArrives) kernels::block_arrive(&frame_barriers().empty[turn.slot()]);
  }
}

/// All threads of block number `block` call it. `run_task(body, frame)` chooses the body and runs it, `look_ahead(frame)`
/// is what they can fetch before their turn, `look_ahead_late(frame)` what they had better fetch a task later.
template <class RunTask, class LookAhead, class LookAheadLate>
MEGALITH_INLINE inline void worker_run(const Launch& launch, u32 block, RunTask run_task, LookAhead look_ahead,
                                       LookAheadLate look_ahead_late) {
  // A cluster may have a block more than there are workers.
  if (kernels::kHasPartners && block >= launch.num_workers) return;
  if (kernels::thread() == 0) {
    take_worker(launch, block);
    for (u32 i = 0; i < kFrames; ++i) {
      kernels::barrier_init(&frame_barriers().full[i], kernels::kArrivalsOfWarp);
      kernels::barrier_init(&frame_barriers().done[i], kernels::kArrivalsOfBlock);
      kernels::barrier_init(&frame_barriers().empty[i],
                            kernels::kEveryThreadArrives ? kernels::kArrivalsOfBlock + 1 : 1);
    }
    for (u32 i = 0; i < kernels::kRingBarriers; ++i) {
      kernels::barrier_init(&kernels::ring_barriers().full[i],
                            kernels::kCopyLanes * (kernels::kScaleBytes > 0 ? 2 : 1));
      kernels::barrier_init(&kernels::ring_barriers().empty[i], kernels::kWarps * kernels::kArrivalsOfWarp);
    }
    if (kernels::kHasCopyWarp) kernels::make_copied_rings();
    if (kernels::kHasPartners) kernels::make_partner_state();
    kernels::barrier_init(&ended(), 1);
    kernels::barriers_are_made();
    kernels::stopped() = kernels::stream_idle() = 0;
    kernels::next_mail().is_known = 0;
    kernels::row_table().epoch = 0;
    kernels::iteration_sizes().at = nullptr;
    kernels::abort_word() = &launch.control->abort;
    kernels::flag_note() = &launch.status[worker_number()].flag;
    kernels::worker_fault() = &launch.status[worker_number()].fault;
    kernels::waits_for_words() = has_short_tasks(launch, worker_number());
  }
  kernels::whole_block_sync();
  if (kernels::kHasPartners) kernels::cluster_sync();
  const u32 worker = worker_number();
  if (launch.list_begin[worker] == launch.list_begin[worker + 1]) {
    if (kernels::thread() == 0) store_relaxed(&launch.status[worker].state, static_cast<u32>(WorkerState::finished));
    return;
  }
  const int warp = kernels::warp();
  if (warp >= kernels::kWarps) {
    kernels::registers_give();
    // The loader looks all the time. So it does not take turns with warp 0, which the others wait for where there are few rows.
    constexpr int kLoader = kernels::kHasCopyWarp ? kernels::kWarps : kernels::kWarps + 3;
    if (warp == kernels::kWarps + 1) return prefetch_warp_run(launch, worker, look_ahead, look_ahead_late);
    if (warp == kernels::kWarps + 2) return signal_warp_run(launch, worker);
    if (warp == kLoader) return loader_warp_run(launch, worker);
    if constexpr (kernels::kHasCopyWarp) kernels::copy_warp_run(has_ended, launch.cache_map);
    return;
  }
  kernels::registers_take();
  const WorkerState end = compute_warps_run(launch, run_task);
  if (kernels::thread() == 0) kernels::barrier_arrive(&ended());
  kernels::warp_sync();
  // On an abort one of two partners may still be in a task of both's, and write here.
  if (kernels::kHasPartners) kernels::cluster_sync();
  if (kernels::thread() != 0) return;
  store_relaxed(&launch.status[worker_number()].state, static_cast<u32>(end));
}

/// Task number `index` by a block that is no worker, in a launch of its own, before the program's: `run(frame)`.
template <class Run>
inline void task_run_alone(const Launch& launch, u32 index, Run run) {
  if (kernels::warp() >= kernels::kWarps) return;
  Frame& frame = frames()[0];
  if (kernels::thread() == 0) {
    static_cast<TaskRecord&>(frame) = launch.tasks[index];
    frame.head = {index, frame.body, Frame::kIsFirst, kNone};
    frame.iteration = launch.first_iteration;
    frame.times = nullptr;
    frame.scratch = launch.scratch == nullptr ? kernels::shared_area() : launch.scratch;
    frame.mail = nullptr;
    for (u32 i = 0; i < frame.num_operands; ++i) frame.operands[i] = launch.operands[frame.first_operand + i];
    kernels::iteration_sizes().at = nullptr;
    kernels::abort_word() = &launch.control->abort;
    kernels::worker_fault() = &launch.status[0].fault;
  }
  kernels::block_sync();
  run(frame);
}

}  // namespace megalith::runtime
