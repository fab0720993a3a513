// The event protocol: the data that a persistent kernel runs from, who writes which word, in which memory order, and
// why that is enough. Written once, here; runtime/cpu/worker.h and every other worker cite it step by step. This header
// is compiled into each generated kernel as well as into the host, so it includes nothing and holds plain data only.
//
// Words and their writers
//   W1  EventCounter::word      high half `arrived`: grows by one per signal; written by the workers that signal, read
//                               by those that wait. Low half `sleepers`: waiters asleep or about to sleep; theirs to
//                               change.
//   W2  Control::abort          set by the host (cancel, watchdog) or by a worker whose body found a fault in its
//                               data; read by all workers, relaxed.
//   W3  WorkerStatus            written by its worker only; read by the host, relaxed: a report, never a decision. The
//                               fault in it is read after the worker has ended. Of `flag` each thread that waits for W5
//                               writes its own, whole, and the last one stays.
//   W4  *Launch::stop           written by one task, which precedes the gate; read by every worker that passed the
//                               gate. So is *Launch::sizes, by the same task (GPU; graph::Graph::lasting_sizes()).
//   W5  a word of an exchange   (GPU) low half a payload of 4 bytes, high half the epoch, the iteration's number plus
//                               1; 0 before a launch. Written once an iteration, by the task that makes the value;
//                               read by the tasks that want it, again and again, until the epoch is theirs. Stored and
//                               loaded whole, relaxed: it carries its payload and orders nothing else.
//
// One iteration of a worker
//   P0  gate     if there is one, until its arrivals of all earlier iterations are in (as P2), then read W4 (plain
//                load): set means that the iteration does not happen, for any worker.
//   and for each task of its list:
//   P1  fetch    the next task; constant data, no ordering needed.
//   P2  wait     until arrived - needed >= 0 (as a signed 32-bit difference, so that counters may wrap) by an acquire
//                load that pairs with P5: whatever the signallers wrote before P5 is visible to this task.
//   P3  run      the task's body: plain loads and stores on the regions it declared, and W5 where one is an exchange.
//                If W2 is set a CPU's worker leaves instead; a GPU's runs the body all the same, on whatever is there,
//                and leaves at P0. A body checks subscripts that data decide, uses none that is outside, and notes the
//                first one as a fault. Then its worker sets W2; a CPU's leaves without P5, so nobody takes what the
//                body made.
//                Two tasks that are partners (GPU; task/task_graph.h) meet in the middle of theirs, at barriers of their two
//                blocks: what they hand each other is theirs alone, and orders nothing else. If W2 is set they do not.
//   P4  -        (nothing is reset, nothing is freed: counters only grow)
//   P5  signal   each of the task's events by a fetch-add with release order, after all stores of P3.
//
// Why it is enough: the verifier has proved that of two conflicting accesses one happens before the other along list
// order (same thread) and P5 -> P2 edges (release -> acquire, and an RMW chain continues a release sequence, so a
// waiter that sees the n-th arrival synchronises with all n signallers). So no body needs an atomic on its regions, but
// for W5, whose readers wait by themselves: who reads W5 of this iteration needs no edge to its writer, and who writes
// that of the next is proved to come behind all readers of this one. (Atomics on what only one task touches, such as
// the scratch of sampling, are that body's business; the mailbox has its own rules, runtime/mailbox.h.) There is no
// order beyond these edges either (a signal acquires nothing), so ThreadSanitizer sees each edge that a graph lacks.
// The 32-bit difference is right while no signaller is 2^31 arrivals ahead of a waiter; the gate, or any wait of lag 1
// for a reader of what the signaller writes, keeps it within two iterations.
//
// W4 needs no atomic either: every worker has a task that precedes the one that writes W4, so it has read W4 in P0 of
// iteration i before that is written in iteration i. runtime/image.cpp checks it. A worker without tasks returns at
// once.
//
// Sleeping (CPU): a waiter that has spun long enough adds itself to W1's sleepers by a fetch-add that tells it
// `arrived`, and if that is too few sleeps on it (futex). P5 is a fetch-add on the same word and tells the signaller
// `sleepers`. One of the two comes first in the word's modification order: either the signaller sees a sleeper and
// wakes it, or the waiter sees the signal. So only signals that somebody sleeps for pay a system call, and no order
// beyond acquire and release is asked for. A sleep is bounded (kSleepNanoseconds), so an abort is seen even though
// nobody wakes the sleeper.
#pragma once

namespace megalith::runtime {

using u8 = unsigned char;
using i32 = int;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;

constexpr u32 kNone = 0xffffffffu;
/// Most inames that a partition may tile; a launch grid has three axes and a chunk of the KV cache is the fourth.
constexpr u32 kMaxAxes = 4;

/// Holds when arrived >= needed = arrivals * (iteration - lag) + count, modulo 2^32. For the first `lag` iterations
/// that is at once without a special case: 0 < count <= arrivals and lag <= 1 make `needed` no more than what counters
/// start with.
struct WaitRecord {
  u32 event;
  u32 arrivals;
  u32 count;
  u32 lag;
};

struct TaskRecord {
  u32 body;           // case of the generated switch
  u32 first_operand;  // into Launch::operands
  u32 num_operands;
  u32 first_chunk;  // of its worker's stream in an iteration, where the body takes weights from one
  u32 first_wait, num_waits;
  u32 first_signal, num_signals;
  i32 begin[kMaxAxes], end[kMaxAxes];  // the tile's ranges, in the order of the operator's task axes
};

/// On a cache line of its own, so that signals to one event do not slow those to another.
struct alignas(64) EventCounter {
  u64 word;  // W1; a carry out of `arrived` is lost, as it should be
};
constexpr u64 kOneArrival = u64{1} << 32;
constexpr u32 word_arrived(u64 word) { return static_cast<u32>(word >> 32); }
constexpr u32 word_sleepers(u64 word) { return static_cast<u32>(word); }

enum class WorkerState : u32 { starting, waiting, running, finished, aborted };

/// What a body found wrong with the data that it was given: `value` should be at least 0 and below `extent`.
struct Fault {
  u32 found;  // 0: nothing
  u32 task;
  u32 check;   // which of the body's checks it is; the kernel's info has their texts
  i64 value;   // of a subscript
  i64 extent;  // of what it is a subscript of; kDivides: the value is no subscript but a divisor, and is 0
};
constexpr i64 kDivides = -1;

struct alignas(64) WorkerStatus {
  u32 state;  // WorkerState
  u32 iteration;
  u32 task;        // kNone: at the gate
  u32 event;       // what it waits for, in state waiting
  u32 wanted;      // the counter value it waits for
  u32 tasks_done;  // grows; the watchdog's sign of life
  u64 flag;        // (GPU) flag_wanted() of a word that some thread has waited at for long; 0: of none so far
  Fault fault;     // the first one
};
/// The word at `address` is wanted with the epoch `epoch`: that, and which of 2^32 words it is.
constexpr u64 flag_wanted(u64 address, u32 epoch) { return u64{epoch} << 32 | static_cast<u32>(address >> 3); }
constexpr u32 flag_epoch(u64 flag) { return static_cast<u32>(flag >> 32); }

/// Why a run ends early.
enum AbortReason : u32 { kNoAbort, kAbortCancel, kAbortWatchdog, kAbortFault };

struct alignas(64) Control {
  u32 abort;  // AbortReason
};

/// A GPU's worker fetches tasks ahead into frames of fixed size: the most that a task may have there.
[[maybe_unused]] constexpr u32 kFrameWaits = 8, kFrameSignals = 8, kFrameOperands = 24;

/// Of the dynamic sizes those that a GPU's worker looks up once an iteration: the first ones of their tensor.
[[maybe_unused]] constexpr u32 kIterationSizes = 4;

/// The stream of a worker: the chunks of weights that its tasks take, in the order of its list, iteration after
/// iteration (GPU; kernels/stream_layout.h). They lie one behind the other; but where several workers take the same weights,
/// for more rows of activations than a task multiplies, in runs.
struct Stream {
  u64 first;  // chunk, counted from Launch::streams; on sides its first block of two chunks
  u64 num_chunks;
  u64 first_bits;  // on sides: word of Sides::chunks
  u64 first_run;   // of Launch::stream_runs
};
/// Chunk n of a stream, up to `end`, is chunk `base` + n (modulo 2^64) of all.
struct StreamRun {
  u64 base, end;
};

/// How chunks are dealt to the two sides of a GPU's L2, and workers to its multiprocessors (runtime/cuda/sides.h).
struct Sides {
  const void* maps;  // for the copy engine, by kind of chunk: of the halves of every block; nullptr: there are no sides
  const u32* chunks;        // of each worker the kind of each chunk (kernels/l2_layout.h)
  const u32* worker_of_sm;  // which worker is for a multiprocessor
  u32* taken;               // per worker: the last launch in which it was somebody
  u32 num_sms;
  u32 launch;  // counted from 1
};

/// What the copy engine of a GPU wants to know of KV caches, wherever they lie, to copy halves of heads of 128 values of 16 bits:
/// rows are positions, or where heads lie in pairs heads of them, in units of a row from `begin` on, and columns their runs of 128
/// bytes (cuTensorMapEncodeTiled()).
struct alignas(64) CacheMap {
  static constexpr int kBytes = 128, kBoxRows = 16;  // that are copied at a time
  u8 map[kBytes];
  const u8* begin;
  u32 row_bytes;
};

struct ProfileRecord;  // runtime/profile.h
/// One moment on a worker's own clock and on one that all workers share (GPU).
struct ProfileClock {
  u64 ticks, ns;
};

struct Launch {
  const TaskRecord* tasks;
  const WaitRecord* waits;
  const u32* signals;
  const u32* list;        // task indices of all workers, one after the other
  const u32* list_begin;  // num_workers + 1 offsets into list
  void* const* operands;
  EventCounter* events;
  WorkerStatus* status;  // per worker
  Control* control;
  u8* scratch;  // scratch_bytes per worker, 64-byte aligned
  u64 scratch_bytes;
  u32 num_workers;
  u32 num_iterations;  // 0: until *stop is set
  u32 gate;            // event, or kNone
  u32 gate_arrivals;
  const i32* stop;       // nullptr without a token loop
  const i32* sizes;      // kIterationSizes of them, or nullptr: they may change within an iteration
  u32 first_iteration;   // iterations are numbered from here; every counter starts at its arrivals * first_iteration
  const u8* streams;     // chunks of all workers; nullptr if there are none
  const Stream* stream;  // per worker
  const StreamRun* stream_runs;
  Sides sides;
  const CacheMap* cache_map;     // nullptr: there is none (GPU)
  u32 spin_rounds;               // looks at a counter before a waiter sleeps; few while workers share cores (relaxed)
  ProfileRecord* profile;        // profile_capacity per worker; nullptr: nothing is recorded
  u32 profile_capacity;          // a power of two
  ProfileClock* profile_clocks;  // profile_clock_capacity() per worker (GPU)
  const u8* scales;              // of the streams' chunks, whose weights are int8 (GPU)
};

/// What a generated kernel exports, and what the host starts one thread per worker with.
using WorkerEntry = void (*)(const Launch* launch, u32 worker);

}  // namespace megalith::runtime
