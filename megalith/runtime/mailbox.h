// The mailbox: how a kernel that is still running hands tokens to the host. A ring with one writer, the kernel's last
// task of an iteration, and one reader, a host thread. Freestanding plain data: the task's body and the host share this
// header.
//
// Words and their writers
//   M1  head     records posted so far, modulo 2^32. Written by the kernel after the record (release); the reader's
//   acquire
//                load of it makes the record visible.
//   M2  tail     records taken so far. Written by the host after it copied the record out (release); the writer's
//   acquire
//                load of it makes the slot free.
//   M3  reader_sleeps, writer_sleeps   set before a last look at M1 or M2 and a sleep on it, sequentially consistent
//   with
//                the other side's store of that word and its look at the flag: of a missed sleeper and a missed record
//                at least one is impossible (the same argument as W1 and W3 of runtime/protocol.h).
// The writer may change from worker to worker between iterations: the task graph orders the two tasks that post.
#pragma once

#include "megalith/runtime/cpu/sync.h"

namespace megalith::runtime {

enum class MailKind : u32 { token, finished };

struct MailRecord {
  u32 request;
  i32 token;
  u32 kind;    // MailKind
  u32 reason;  // of `finished`; the engine's numbers
};

struct Mailbox {
  alignas(64) u32 head;  // M1
  u32 writer_sleeps;     // M3: the kernel waits for the host; the watchdog does not count that time
  alignas(64) u32 tail;  // M2
  u32 reader_sleeps;     // M3
  alignas(64) MailRecord* records;
  u32 capacity;  // power of two
};

/// Longest sleep of a full mailbox's writer, so that it sees an abort.
constexpr u64 kMailboxSleepNanoseconds = 20'000'000;

/// Before a run, with nobody on either side.
inline void mailbox_init(Mailbox* mailbox, MailRecord* records, u32 capacity) {
  *mailbox = Mailbox{};
  mailbox->records = records;
  mailbox->capacity = capacity;
}

/// Kernel side: appends a record, waiting for a free slot if the ring is full. False: the run was aborted meanwhile.
inline bool mailbox_post(Mailbox* mailbox, MailRecord record, const u32* abort) {
  const u32 head = load_relaxed(&mailbox->head);
  for (;;) {
    u32 tail = load_acquire(&mailbox->tail);  // acquire; pairs with the store of tail in mailbox_take()
    if (head - tail < mailbox->capacity) break;
    if (load_relaxed(abort) != 0) return false;
    store_ordered(&mailbox->writer_sleeps, 1);  // with the load of tail: the other half is in mailbox_take()
    tail = load_ordered(&mailbox->tail);
    if (head - tail >= mailbox->capacity) word_sleep(&mailbox->tail, tail, kMailboxSleepNanoseconds);
    store_ordered(&mailbox->writer_sleeps, 0);
  }
  mailbox->records[head & (mailbox->capacity - 1)] = record;
  store_ordered(&mailbox->head, head + 1);  // release; pairs with the load of head in mailbox_take()
  if (load_ordered(&mailbox->reader_sleeps) != 0) word_wake(&mailbox->head);
  return true;
}

/// Host side: takes the oldest record. If there is none it sleeps once, for at most `timeout_ns`, and looks again.
/// False means no record yet: after a timeout, a signal (Ctrl-C) or mailbox_interrupt(). The caller loops:
///   while (!mailbox_take(&mailbox, &record, 100'000'000)) if (launcher.finished()) break;
inline bool mailbox_take(Mailbox* mailbox, MailRecord* record, u64 timeout_ns) {
  const u32 tail = load_relaxed(&mailbox->tail);
  u32 head = load_acquire(&mailbox->head);  // acquire; pairs with the store of head in mailbox_post()
  if (head == tail && timeout_ns != 0) {
    store_ordered(&mailbox->reader_sleeps, 1);  // with the load of head: the other half is in mailbox_post()
    head = load_ordered(&mailbox->head);
    if (head == tail) word_sleep(&mailbox->head, head, timeout_ns);
    store_ordered(&mailbox->reader_sleeps, 0);
    head = load_acquire(&mailbox->head);  // acquire; as above
  }
  if (head == tail) return false;
  *record = mailbox->records[tail & (mailbox->capacity - 1)];
  store_ordered(&mailbox->tail, tail + 1);  // release; pairs with the load of tail in mailbox_post()
  if (load_ordered(&mailbox->writer_sleeps) != 0) word_wake(&mailbox->tail);
  return true;
}

/// Makes a sleeping mailbox_take() return; any thread. One that is about to sleep may miss it and then sleeps its
/// timeout.
inline void mailbox_interrupt(Mailbox* mailbox) { word_wake(&mailbox->head); }

}  // namespace megalith::runtime
