// The mailbox: how a kernel that is still running hands tokens to the host, and how the host hands it requests. Two rings:
// of records with one writer, the kernel's last task of an iteration, and one reader, a host thread; of commands the
// other way round. Freestanding plain data: the task's body and the host share this header.
//
// Words and their writers
//   M1  head     records posted so far, modulo 2^32. Written by the kernel after the record (release); the reader's
//                acquire load of it makes the record visible.
//   M2  tail     records taken so far. Written by the host after it copied the record out (release); the writer's
//                acquire load of it makes the slot free.
//   M3  bell     grows after each record and when the run ends; what a reader without mail sleeps on (futex). It reads
//                the bell before it looks for mail, so what comes in between keeps it awake.
//   M4  reader_sleeps, writer_sleeps   set before a last look at M3 or M2 and a sleep on it, sequentially consistent
//                with the other side's change of that word and its look at the flag: of a missed sleeper and a missed
//                change at least one is impossible.
//   M5  closed   the run has ended, no more records will come. Written by the launcher.
//   M6  command_head   commands posted so far, modulo 2^32. Written by the host after the command, and after all that
//                it says is there (release); the kernel's acquire load of it makes them visible.
//   M7  command_tail   commands taken so far. Written by the kernel after it copied them (release); the host's acquire
//                load of it makes their places free.
//   M8  kernel_idles   set before a last look at M6 and a sleep on it, as M4; the watchdog does not count that time.
//   M9  masks_owed   masks that the host has yet to write for tokens that it has taken, plus one as long as sequences have
//                any. Written by the host; read by the watchdog.
// The writer may change from worker to worker between iterations: the task graph orders the two tasks that post.
#pragma once

#include "megalith/runtime/cpu/sync.h"

namespace megalith::runtime {

/// `top`: one of the most probable tokens in the place of the token whose record comes behind it. `prompt`: a token that was known,
/// with how likely it was.
enum class MailKind : u32 { token, finished, top, prompt };

/// Of a token that came in the same iteration as the one before it, since a draft was right.
[[maybe_unused]] constexpr u32 kAccepted = 0xffffffffu;

struct MailRecord {
  u32 request;
  i32 token;
  u32 kind;    // MailKind
  u32 reason;  // of `finished`; the engine's numbers. Of `token`: how many drafts stood behind its row, or kAccepted
  float logprob =
      0;  // of `top`, `prompt`, and of `token` if the request asked: log of its probability; NaN if it has none
  u64 posted_ns = 0;  // when it was posted, by CLOCK_MONOTONIC; mailbox_write() is told
};

/// `end`: no others will come, and the run ends when all that has begun has ended. Not every kernel knows it
/// (kernels/cpu/serve_batch.h).
enum class CommandKind : u32 { begin, cancel, extend, end };

/// What the host tells a running kernel about a place for a request. It begins one in a place that is empty, or whose last
/// request's end it has read: so records need not say which of the two they are of. A request may be begun in the middle:
/// the tokens behind its prompt are known then. One that has not ended is cancelled, or extended: it may become longer than it
/// was told. Both come too late where the request has ended by itself; the place's next one, begun behind them in the ring,
/// is another.
struct Command {
  static constexpr u32 kFields = 8;  // of a request, batch::kRequestFields
  u32 kind;                          // CommandKind
  u32 request;                       // the place
  i32 fields[kFields];               // of one that begins; of one that is extended its limit alone
};

/// What `fields` of one that begins a request are in a loop without a batch block (kernels/cpu/serve_batch.h). Its prompt stands in
/// the place's row of the inbox.
enum ServeField {
  kServeStep,    // tokens whose keys are there
  kServePrompt,  // tokens of its prompt
  kServeLimit,   // the length at which it ends
};

struct Mailbox {
  alignas(64) u32 head;  // M1
  u32 bell;              // M3
  u32 writer_sleeps;     // M4: the kernel waits for the host; the watchdog does not count that time
  u32 closed;            // M5
  u32 command_tail;      // M7
  u32 kernel_idles;      // M8
  alignas(64) u32 tail;  // M2
  u32 reader_sleeps;     // M4
  u32 command_head;      // M6
  u32 masks_owed;        // M9
  alignas(64) MailRecord* records;
  u32 capacity;  // power of two
  u32 serves;    // 1: with nothing to do the kernel waits for commands, and does not end; there are none otherwise
  Command* commands;
  u32 command_capacity;  // power of two
};

/// Longest sleep of a full mailbox's writer, and of a kernel without work, so that it sees an abort.
constexpr u64 kMailboxSleepNanoseconds = 20'000'000;

/// Before a run, with nobody on either side.
inline void mailbox_init(Mailbox* mailbox, MailRecord* records, u32 capacity) {
  *mailbox = Mailbox{};
  mailbox->records = records;
  mailbox->capacity = capacity;
}
/// Likewise, of a run that takes commands.
inline void mailbox_serve(Mailbox* mailbox, Command* commands, u32 capacity) {
  mailbox->serves = 1;
  mailbox->commands = commands;
  mailbox->command_capacity = capacity;
}
/// Whether the kernel waits for the host, so that it is no fault of its own that nothing moves.
inline bool mailbox_is_waited_for(const Mailbox* mailbox) {
  if ((load_relaxed(&mailbox->writer_sleeps) | load_relaxed(&mailbox->kernel_idles)) != 0) return true;
  // A mask that is late: one of those that the host works on, or that of a token which it has not looked at.
  const u32 masks = load_relaxed(&mailbox->masks_owed);
  return masks > 1 || (masks == 1 && load_relaxed(&mailbox->head) != load_relaxed(&mailbox->tail));
}

/// The change of M3 and the look at M4; the other half is in mailbox_take().
inline void mailbox_ring(Mailbox* mailbox) {
  if (!kWakesReaders) return;
  add_ordered(&mailbox->bell, 1);
  if (load_ordered(&mailbox->reader_sleeps) != 0) word_wake(&mailbox->bell);
}

/// What a writer knows of the mailbox without a look at it, which from a GPU is a trip to the host's memory.
struct MailWriter {
  MailRecord* records;
  u32 capacity;
  u32 head;  // where it goes on: M1, or further if others are yet to be published
  u32 tail;  // M2 as it was seen last, so there is room for as many records at least

  bool has_room(u32 count) const { return head - tail + count <= capacity; }
};
inline MailWriter mailbox_writer(Mailbox* mailbox) {
  // acquire; pairs with the store of tail in mailbox_take()
  return {mailbox->records, mailbox->capacity, load_relaxed(&mailbox->head), load_acquire(&mailbox->tail)};
}

/// Kernel side, in three steps, so that many records cost as few trips to the host's memory as one. First: waits until
/// there is room for `count` of them, at most the capacity. False: the run was aborted meanwhile.
inline bool mailbox_reserve(Mailbox* mailbox, MailWriter& writer, u32 count, const u32* abort) {
  while (!writer.has_room(count)) {
    writer.tail = load_acquire(&mailbox->tail);  // acquire; pairs with the store of tail in mailbox_take()
    if (writer.has_room(count)) break;
    if (load_relaxed(abort) != 0) return false;
    store_ordered(&mailbox->writer_sleeps, 1);  // with the load of tail: the other half is in mailbox_take()
    writer.tail = load_ordered(&mailbox->tail);
    if (!writer.has_room(count)) word_sleep(&mailbox->tail, writer.tail, kMailboxSleepNanoseconds);
    store_ordered(&mailbox->writer_sleeps, 0);
  }
  return true;
}
/// Then writes number `i` of them, by whoever has it. `now`: monotonic_ns(), asked for once for all of them.
inline void mailbox_write(const MailWriter& writer, u32 i, MailRecord record, u64 now) {
  record.posted_ns = now;
  writer.records[(writer.head + i) & (writer.capacity - 1)] = record;
}
/// Then all of them are there, up to `head`: by one thread, behind all who wrote.
inline void mailbox_publish(Mailbox* mailbox, u32 head) {
  store_release(&mailbox->head, head);  // release; pairs with the load of head in mailbox_take()
  mailbox_ring(mailbox);
}
/// The three steps for one record.
inline bool mailbox_post(Mailbox* mailbox, MailRecord record, const u32* abort) {
  MailWriter writer = mailbox_writer(mailbox);
  if (!mailbox_reserve(mailbox, writer, 1, abort)) return false;
  mailbox_write(writer, 0, record, monotonic_ns());
  mailbox_publish(mailbox, writer.head + 1);
  return true;
}

/// Host side: takes the oldest record. If there is none it sleeps once, for at most `timeout_ns`, and looks again.
/// False means no record yet: after a timeout, a signal (Ctrl-C), or because the run has ended. The caller loops:
///   while (!launcher.finished()) if (mailbox_take(&mailbox, &record, 100'000'000)) use(record);
///   while (mailbox_take(&mailbox, &record, 0)) use(record);
inline bool mailbox_take(Mailbox* mailbox, MailRecord* record, u64 timeout_ns) {
  const u32 tail = load_relaxed(&mailbox->tail);
  u32 head = load_acquire(&mailbox->head);  // acquire; pairs with the store of head in mailbox_publish()
  if (head == tail && timeout_ns != 0) {
    store_ordered(&mailbox->reader_sleeps, 1);      // with the load of bell: the other half is in mailbox_ring()
    const u32 bell = load_ordered(&mailbox->bell);  // before head and closed, which change before it
    if (load_acquire(&mailbox->head) == tail && load_acquire(&mailbox->closed) == 0)
      word_sleep(&mailbox->bell, bell, timeout_ns);
    store_ordered(&mailbox->reader_sleeps, 0);
    head = load_acquire(&mailbox->head);  // acquire; as above
  }
  if (head == tail) return false;
  *record = mailbox->records[tail & (mailbox->capacity - 1)];
  store_ordered(&mailbox->tail, tail + 1);  // release; pairs with the load of tail in mailbox_reserve()
  if (load_ordered(&mailbox->writer_sleeps) != 0) word_wake(&mailbox->tail);
  return true;
}

/// Host side: posts a command; by one thread at a time. False if there is no room before the kernel has taken some.
inline bool command_post(Mailbox* mailbox, const Command& command) {
  const u32 head = load_relaxed(&mailbox->command_head);
  // acquire; pairs with the store of command_tail in commands_take()
  if (head - load_acquire(&mailbox->command_tail) >= mailbox->command_capacity) return false;
  mailbox->commands[head & (mailbox->command_capacity - 1)] = command;
  store_ordered(&mailbox->command_head, head + 1);  // release; pairs with the load in commands_seen()
  if (load_ordered(&mailbox->kernel_idles) != 0) word_wake(&mailbox->command_head);
  return true;
}

/// Kernel side: the commands up to `end`, from M7 on.
struct CommandRange {
  u32 begin, end;
};
inline CommandRange commands_seen(const Mailbox* mailbox) {
  return {load_relaxed(&mailbox->command_tail), load_acquire(&mailbox->command_head)};
}
/// Takes them: `take(command)` for each.
template <class Take>
inline void commands_take(Mailbox* mailbox, CommandRange range, Take take) {
  if (range.begin == range.end) return;
  for (u32 at = range.begin; at != range.end; ++at) take(mailbox->commands[at & (mailbox->command_capacity - 1)]);
  store_release(&mailbox->command_tail, range.end);  // release; pairs with the load in command_post()
}
/// Sleeps until there are commands behind `begin`. False: the run was aborted meanwhile.
inline bool commands_wait(Mailbox* mailbox, u32 begin, const u32* abort) {
  store_ordered(&mailbox->kernel_idles, 1);  // with the load of command_head: the other half is in command_post()
  bool goes_on = true;
  while (load_ordered(&mailbox->command_head) == begin && goes_on) {
    word_sleep(&mailbox->command_head, begin, kMailboxSleepNanoseconds);
    goes_on = load_relaxed(abort) == 0;
  }
  store_ordered(&mailbox->kernel_idles, 0);
  return goes_on;
}

/// Kernel side: waits until the host has written the mask of a sequence for its token behind `length` others, by one thread. The
/// token before has been posted, so the host knows that it owes the mask, whatever this kernel does. False: the run was
/// aborted meanwhile.
inline bool mask_wait(const u32* mask_length, u32 length, const u32* abort) {
  constexpr int kSpins = 2000;  // tens of microseconds, as a mask takes that is late
  for (int spins = 0;; ++spins) {
    const u32 now = load_acquire(mask_length);  // acquire; pairs with the store in mask_publish()
    if (now == length) return true;
    if (spins % 64 == 63 && load_relaxed(abort) != 0) return false;
    if (spins < kSpins)
      spin_pause();
    else
      word_sleep(mask_length, now, kMailboxSleepNanoseconds);
  }
}
/// Host side: what it has written of the mask is the sequence's, behind `length` tokens.
inline void mask_publish(u32* mask_length, u32 length) {
  store_release(mask_length, length);  // release; pairs with the load in mask_wait()
  word_wake(mask_length);
}

/// The launcher's: at the end of a run, so that nobody sleeps for mail that does not come; undone by the next start.
inline void mailbox_close(Mailbox* mailbox) {
  store_release(&mailbox->closed, 1);  // release; pairs with the load in mailbox_take()
  mailbox_ring(mailbox);
}
inline void mailbox_open(Mailbox* mailbox) { store_release(&mailbox->closed, 0); }

}  // namespace megalith::runtime
