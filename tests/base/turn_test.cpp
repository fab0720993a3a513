// Turns: one at a time, and an error for each wait that would have no end.
#include "megalith/base/turn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "megalith/base/error.h"
#include "megalith/base/interruption.h"

namespace megalith {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Turn, OneThreadAtATime) {
  Turn turn("kernel");
  int count = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        const TurnGuard guard(turn, "run");
        ++count;  // a race, if two had the turn
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 4000);
}

TEST(Turn, ACallWithinTheCallIsAnError) {
  Turn turn("kernel");
  const TurnGuard guard(turn, "run");
  EXPECT_THAT(
      [&] { TurnGuard(turn, "compile"); },
      ThrowsMessage<UserError>(HasSubstr("[compile] the kernel is at work in this thread, and this call came in")));
}

TEST(Turn, ACallBesideAnOpenStreamIsAnError) {
  Turn turn("model");
  turn.take("generate", Turn::For::stream);
  EXPECT_THAT([&] { turn.take("logits"); },
              ThrowsMessage<UserError>(HasSubstr("[logits] a stream of this model is not read to its end: read it")));
  turn.give_back();
  turn.take("logits");
  turn.give_back();
}

TEST(Turn, AStreamThatAnEndedThreadLeftIsAnError) {
  Turn turn("model");
  std::thread([&] { turn.take("generate", Turn::For::stream); }).join();
  EXPECT_THAT([&] { turn.take("generate"); },
              ThrowsMessage<UserError>(HasSubstr("has ended and left a stream open: close() it")));
  turn.pass_on("generate");  // this thread reads it now
  EXPECT_THAT([&] { turn.take("generate"); }, ThrowsMessage<UserError>(HasSubstr("read it, or close() it")));
  turn.give_back();
  const TurnGuard guard(turn, "generate");
}

TEST(Turn, AnotherThreadWaitsForAStream) {
  Turn turn("model");
  turn.take("generate", Turn::For::stream);
  std::atomic<bool> had_it = false;
  std::thread waiter([&] {
    const TurnGuard guard(turn, "generate");
    had_it = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(60));  // longer than it takes to look for a reason to give up
  EXPECT_FALSE(had_it);
  turn.give_back();
  waiter.join();
  EXPECT_TRUE(had_it);
}

TEST(Turn, AWaitIsInterrupted) {
  struct Interrupted {};
  static std::atomic<bool> interrupt = false;
  Turn turn("model");
  std::thread holder([&] {
    const TurnGuard guard(turn, "generate");
    while (!interrupt) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  });
  while (true) {  // until the other thread has it
    try {
      interruption_check_set([] {
        interrupt = true;
        throw Interrupted();
      });
      turn.take("generate");
      turn.give_back();
    } catch (const Interrupted&) { break; }
  }
  interruption_check_set(nullptr);
  holder.join();
}

// What is said in a child process that was forked meanwhile.
std::string in_a_fork(const std::function<void()>& call) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    std::string said = "no error";
    try {
      call();
    } catch (const UserError& error) { said = error.what(); }
    if (::write(ends[1], said.data(), said.size()) < 0) std::_Exit(1);
    std::_Exit(0);
  }
  ::close(ends[1]);
  std::string said;
  char buffer[1024];
  for (ssize_t n; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;) said.append(buffer, static_cast<size_t>(n));
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return said;
}

TEST(Turn, AForkOfAProcessAtWorkIsTold) {
  Turn turn("model");
  EXPECT_EQ(in_a_fork([&] { const TurnGuard guard(turn, "generate"); }), "no error");  // nothing was at work
  turn.take("generate", Turn::For::stream);
  for (const auto& call : {std::function<void()>([&] { turn.take("generate"); }), {[&] { turn.pass_on("generate"); }}})
    EXPECT_THAT(in_a_fork(call),
                HasSubstr("[generate] this process was forked while the model was at work, and its workers "
                          "stayed in the parent: load or compile after the fork"));
  turn.give_back();
}

}  // namespace
}  // namespace megalith
