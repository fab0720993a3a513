// The mailbox: order, wrap-around of ring and counters, back-pressure, and an end to every wait.
#include "megalith/runtime/mailbox.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

namespace megalith::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr u64 kSecond = 1'000'000'000;

double waited_ms(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

struct Ring {
  explicit Ring(u32 capacity, u32 first = 0) : records(capacity) {
    mailbox_init(&mailbox, records.data(), capacity);
    mailbox.head = mailbox.tail = first;
  }
  Mailbox mailbox;
  std::vector<MailRecord> records;
  u32 abort = 0;
};

MailRecord token(i32 value) { return {7, value, static_cast<u32>(MailKind::token), 0}; }

TEST(Mailbox, EmptyTakesNothingAndFullTakesTurns) {
  Ring ring(2);
  MailRecord record{};
  EXPECT_FALSE(mailbox_take(&ring.mailbox, &record, 0));
  EXPECT_TRUE(mailbox_post(&ring.mailbox, token(1), &ring.abort));
  EXPECT_TRUE(mailbox_post(&ring.mailbox, {7, 0, static_cast<u32>(MailKind::finished), 3}, &ring.abort));
  EXPECT_TRUE(mailbox_take(&ring.mailbox, &record, 0));
  EXPECT_EQ(record.token, 1);
  EXPECT_EQ(record.request, 7u);
  EXPECT_TRUE(mailbox_take(&ring.mailbox, &record, 0));
  EXPECT_EQ(record.kind, static_cast<u32>(MailKind::finished));
  EXPECT_EQ(record.reason, 3u);
  EXPECT_FALSE(mailbox_take(&ring.mailbox, &record, 0));
}

TEST(Mailbox, RecordsWrittenTogetherComeTogether) {
  Ring ring(4, 0xfffffffe);  // over the end of the ring and of the counter
  MailRecord record{};
  MailWriter writer = mailbox_writer(&ring.mailbox);
  ASSERT_TRUE(mailbox_reserve(&ring.mailbox, writer, 3, &ring.abort));
  for (u32 i = 3; i-- > 0;) mailbox_write(writer, i, token(static_cast<i32>(i)), monotonic_ns());
  EXPECT_FALSE(mailbox_take(&ring.mailbox, &record, 0)) << "nothing is there before it is published";
  mailbox_publish(&ring.mailbox, writer.head += 3);
  ring.abort = 1;
  EXPECT_FALSE(mailbox_reserve(&ring.mailbox, writer, 2, &ring.abort)) << "there is room for one";
  for (i32 i = 0; i < 3; ++i) {
    ASSERT_TRUE(mailbox_take(&ring.mailbox, &record, 0));
    EXPECT_EQ(record.token, i);
  }
  EXPECT_FALSE(mailbox_take(&ring.mailbox, &record, 0));
}

void stream(u32 capacity, u32 first, int count, int writer_pause_us, int reader_pause_us) {
  Ring ring(capacity, first);
  std::thread writer([&] {
    for (int i = 0; i < count; ++i) {
      if (writer_pause_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(writer_pause_us));
      ASSERT_TRUE(mailbox_post(&ring.mailbox, token(i), &ring.abort));
    }
  });
  for (int i = 0; i < count;) {
    MailRecord record{};
    if (!mailbox_take(&ring.mailbox, &record, kSecond)) continue;
    if (reader_pause_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(reader_pause_us));
    ASSERT_EQ(record.token, i);
    ++i;
  }
  writer.join();
}

TEST(Mailbox, KeepsOrderAtFullSpeed) { stream(8, 0, 100000, 0, 0); }
TEST(Mailbox, OneSlot) { stream(1, 0, 20000, 0, 0); }
TEST(Mailbox, CountersWrap) { stream(4, 0xfffffff0u, 1000, 0, 0); }
TEST(Mailbox, SlowWriterFindsASleepingReader) { stream(4, 0, 200, 100, 0); }
TEST(Mailbox, SlowReaderHoldsTheWriter) { stream(4, 0, 200, 0, 100); }

TEST(Mailbox, ReaderTimesOut) {
  Ring ring(4);
  MailRecord record{};
  const auto begin = Clock::now();
  EXPECT_FALSE(mailbox_take(&ring.mailbox, &record, kSecond / 50));
  EXPECT_GE(waited_ms(begin), 19);
  EXPECT_LT(waited_ms(begin), 5000);
}

TEST(Mailbox, CloseWakesTheReaderAndKeepsTheMail) {
  // With no pause, with a short and with a long one: before the reader looks, as it falls asleep, and asleep.
  for (int pause_us = 0; pause_us < 200; pause_us += 2) {
    Ring ring(4);
    const auto begin = Clock::now();
    std::thread kernel([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(pause_us));
      ASSERT_TRUE(mailbox_post(&ring.mailbox, token(5), &ring.abort));
      mailbox_close(&ring.mailbox);
    });
    MailRecord record{};
    while (!mailbox_take(&ring.mailbox, &record, 60 * kSecond)) {}
    EXPECT_EQ(record.token, 5);
    EXPECT_FALSE(mailbox_take(&ring.mailbox, &record, 60 * kSecond));
    EXPECT_LT(waited_ms(begin), 10000);
    kernel.join();
  }
}

TEST(Mailbox, AbortEndsTheWaitForAFreeSlot) {
  Ring ring(2);
  std::thread writer([&] {
    EXPECT_TRUE(mailbox_post(&ring.mailbox, token(0), &ring.abort));
    EXPECT_TRUE(mailbox_post(&ring.mailbox, token(1), &ring.abort));
    EXPECT_FALSE(mailbox_post(&ring.mailbox, token(2), &ring.abort));
  });
  while (load_relaxed(&ring.mailbox.writer_sleeps) == 0) std::this_thread::yield();
  const auto begin = Clock::now();
  store_relaxed(&ring.abort, 1);
  writer.join();
  EXPECT_LT(waited_ms(begin), 5000);
}

struct CommandRing : Ring {
  explicit CommandRing(u32 capacity, u32 first = 0) : Ring(4), commands(capacity) {
    mailbox_serve(&mailbox, commands.data(), capacity);
    mailbox.command_head = mailbox.command_tail = first;
  }
  std::vector<u32> take() {
    std::vector<u32> taken;
    commands_take(&mailbox, commands_seen(&mailbox), [&](const Command& command) { taken.push_back(command.request); });
    return taken;
  }
  std::vector<Command> commands;
};

Command cancel(u32 request) { return {static_cast<u32>(CommandKind::cancel), request, {}}; }

TEST(Commands, ComeInOrderAndOnlyWhileThereIsRoom) {
  CommandRing ring(2, 0xffffffff);  // over the end of the ring and of the counter
  EXPECT_EQ(ring.take(), std::vector<u32>{});
  EXPECT_TRUE(command_post(&ring.mailbox, cancel(1)));
  EXPECT_TRUE(command_post(&ring.mailbox, cancel(2)));
  EXPECT_FALSE(command_post(&ring.mailbox, cancel(3)));
  EXPECT_EQ(ring.take(), (std::vector<u32>{1, 2}));
  EXPECT_TRUE(command_post(&ring.mailbox, cancel(3)));
  EXPECT_EQ(ring.take(), std::vector<u32>{3});
}

TEST(Commands, WakeAKernelThatWaits) {
  CommandRing ring(64);
  constexpr u32 kCommands = 2000;
  std::thread host([&] {
    for (u32 i = 0; i < kCommands; ++i) {
      if (i % 100 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
      while (!command_post(&ring.mailbox, cancel(i))) std::this_thread::yield();
    }
  });
  u32 wanted = 0;
  while (wanted < kCommands) {
    ASSERT_TRUE(commands_wait(&ring.mailbox, ring.mailbox.command_tail, &ring.abort));
    EXPECT_FALSE(mailbox_is_waited_for(&ring.mailbox));
    for (const u32 request : ring.take()) EXPECT_EQ(request, wanted++);
  }
  host.join();
}

// The kernel sleeps on it; a length that it does not wait for is none, and an abort ends the wait.
TEST(Masks, AreWaitedForByTheirLength) {
  u32 length = 6, abort = 0;
  std::thread host([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    mask_publish(&length, 5);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    mask_publish(&length, 7);
  });
  EXPECT_TRUE(mask_wait(&length, 7, &abort));
  host.join();
  EXPECT_TRUE(mask_wait(&length, 7, &abort));
  std::thread other([&] { store_relaxed(&abort, 1); });
  EXPECT_FALSE(mask_wait(&length, 8, &abort));
  other.join();
}

// As long as it owes one: for a token in the mail, or one that it works on.
TEST(Masks, AHostThatOwesOneIsWaitedFor) {
  Ring ring(4);
  EXPECT_TRUE(mailbox_post(&ring.mailbox, token(0), &ring.abort));
  EXPECT_FALSE(mailbox_is_waited_for(&ring.mailbox)) << "no sequence has masks";
  store_relaxed(&ring.mailbox.masks_owed, 1);
  EXPECT_TRUE(mailbox_is_waited_for(&ring.mailbox)) << "of the token in the mail";
  MailRecord record{};
  ASSERT_TRUE(mailbox_take(&ring.mailbox, &record, 0));
  EXPECT_FALSE(mailbox_is_waited_for(&ring.mailbox));
  store_relaxed(&ring.mailbox.masks_owed, 2);
  EXPECT_TRUE(mailbox_is_waited_for(&ring.mailbox)) << "of the token that it has taken";
}

TEST(Commands, AreNotWaitedForAfterAnAbort) {
  CommandRing ring(2);
  std::thread host([&] {
    while (!mailbox_is_waited_for(&ring.mailbox)) std::this_thread::yield();
    store_relaxed(&ring.abort, 1);
  });
  const auto begin = Clock::now();
  EXPECT_FALSE(commands_wait(&ring.mailbox, 0, &ring.abort));
  EXPECT_LT(waited_ms(begin), 10'000);
  host.join();
}

}  // namespace
}  // namespace megalith::runtime
