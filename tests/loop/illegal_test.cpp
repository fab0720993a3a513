// What is wrong is refused, for what is wrong with it; `megalith loops --random` has thousands of these.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "megalith/base/error.h"
#include "megalith/loop/infer.h"
#include "megalith/loop/isl_limit.h"
#include "megalith/loop/recall.h"
#include "megalith/loop/text.h"
#include "megalith/loop/transform/random_illegal.h"
#include "megalith/loop/transform/schedule.h"

namespace megalith::loop {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Kernel typed(const std::string& text) {
  Kernel kernel = parse_kernel(text);
  infer_types(kernel);
  infer_shapes(kernel);
  return kernel;
}

TEST(Illegal, RandomWrongSchedulesAreRefusedForWhatIsWrong) {
  std::set<std::string> recipes;
  for (uint64_t seed = 1; seed <= static_cast<uint64_t>(4 * num_illegal_recipes()); ++seed) {
    const IllegalCase illegal = random_illegal(seed);
    recipes.insert(illegal.recipe);
    EXPECT_THAT(check_refused(illegal), IsEmpty()) << "seed " << seed;
  }
  EXPECT_GE(recipes.size(), 20u);
}

// The campaign would see a check that lets something pass, or refuses for another reason.
TEST(Illegal, WhatIsAcceptedOrRefusedForAnotherReasonIsTold) {
  const std::string kernel =
      "input x: f32[n]\noutput y: f32[n]\nassume n >= 40\n{ [i] : 0 <= i < n }\ny[i] = 2 * x[i]\n";
  EXPECT_THAT(check_refused({"right", kernel, {}, "split i 4 -> a b", ""}), HasSubstr("accepted"));
  EXPECT_THAT(check_refused({"right", kernel, {}, "", "", true}), HasSubstr("accepted"));
  EXPECT_THAT(check_refused({"other", kernel, {}, "split k 4 -> a b", "race"}), HasSubstr("for another reason"));
  EXPECT_THAT(check_refused({"early", kernel, {"split k 4 -> a b"}, "untag i", ""}), HasSubstr("was refused"));
}

// Two nests that hand a temporary from thread to thread, many times over: checks once asked isl about all of them together
// for each, and it gave up.
TEST(Illegal, ManyNestsAreCheckedApart) {
  std::string text = "assume n >= 64\n", step = "tag";
  for (int i = 0; i < 150; ++i) {
    text += fmt::format(
        "input x{0}: f32[n]\noutput y{0}: f32[n]\n{{ [q{0}] : 0 <= q{0} < 64 }}\n{{ [p{0}] : 0 <= p{0} < 64 }}\n"
        "t{0}[q{0}] = 2 * x{0}[q{0}] + {0}\ny{0}[p{0}] = t{0}[63 - p{0}]\n",
        i);
    step += fmt::format(" q{0} l.0 p{0} l.0", i);
  }
  const Schedule schedule = Schedule(typed(text)).then(step);
  // What is wrong with one of them is found among all others, whose answers are known.
  EXPECT_THROW(schedule.then("space t77 private"), UserError);
  EXPECT_THROW(schedule.then("fuse_loops p149 q149"), UserError);
  EXPECT_EQ(schedule.then("space t77 shared").kernel().find_tensor("t77")->space, Space::block);
}

// Functions of isl give null when it gives up, and the next one complains of that.
TEST(Illegal, AnswersOfIslThatGaveUpAreAnErrorOfTheUser) {
  const Kernel kernel = typed(
      "input x: f32[n]\noutput y: f32[n]\nassume n >= 64\n{ [i] : 0 <= i < n }\n{ [j] : 0 <= j < n }\nt[i] = x[i]\n"
      "y[j] = t[n - 1 - j]\n");
  int num_refused = 0;
  for (unsigned long steps = 1; steps < 4000; steps = steps * 3 / 2 + 1) {
    Kernel other = kernel;
    other.assumptions = fmt::format("n >= {}", 64 + steps);  // so that nothing is known of it
    try {
      with_isl_limit(
          "k", [&] { check_scheduled(other); }, steps);
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(), AnyOf(HasSubstr("isl gave up"), HasSubstr("isl cannot read")));
      ++num_refused;
    }
  }
  EXPECT_GT(num_refused, 3);
}

TEST(Recall, ForgetsWhenItIsFull) {
  Recall<int> recall(2);
  recall.keep("one", 1);
  recall.keep("two", 2);
  ASSERT_TRUE(recall.find("one"));
  EXPECT_EQ(*recall.find("one"), 1);
  recall.keep("three", 3);
  EXPECT_FALSE(recall.find("one"));
  EXPECT_EQ(*recall.find("three"), 3);
}

}  // namespace
}  // namespace megalith::loop
