// Tuning of generated bodies: what is tried, what it is called by, and that the fastest is taken.
#include "megalith/engine/tune.h"

#include <gmock/gmock.h>

#include <cmath>

#include "base/temporary_folder.h"
#include "megalith/base/error.h"
#include "megalith/ops/registry.h"
#include "support/running_operator.h"

namespace megalith::engine {
namespace {

using megalith::test::message_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::SizeIs;

const std::string kRunning = std::string(megalith::testing::kRunningOperator) + R"(graph scan
state counts: i32[1]
dynamic rows = counts[0]
state ids: i32[rows<=4]
constant table: f32[9, 8]
state x: f32[1, 1024, 1024]
y: f32[1, 1024, 1024] = running(x)  # run
row: f32[rows<=4, 8] = embedding(ids, table)  # lookup
)";

graph::GraphFile scan() { return graph::from_file(kRunning, ops::builtin()); }

TEST(Tune, TakesTheFastest) {
  const std::vector<TimedBody> bodies = tune_bodies(scan(), {.num_workers = 1, .runs = 3, .bodies = {"running_0"}});
  ASSERT_THAT(bodies, SizeIs(1));
  const TimedBody& body = bodies[0];
  EXPECT_EQ(body.kernel.name, "running_0");
  EXPECT_EQ(body.node, "run");
  EXPECT_EQ(body.reason, "");
  ASSERT_THAT(body.tried, SizeIs(Gt(2u)));
  for (const TimedSchedule& one : body.tried) EXPECT_GT(one.seconds, 0) << one.steps << one.reason;
  EXPECT_THAT(body.best().steps, HasSubstr("order t j i\n"));
  EXPECT_LT(body.best().seconds, 0.8 * body.proposed().seconds);
}

TEST(Tune, TriesWhatSomebodyWroteAndAsksAfterEachBody) {
  TuneOptions options{.num_workers = 1, .runs = 1, .most = 1, .more = {{"embedding_0", {"\ntag h unr\n"}}}};
  std::vector<std::string> names;
  const std::vector<TimedBody> bodies = tune_bodies(scan(), options, [&](const TimedBody& body) {
    names.push_back(body.kernel.name);
    return true;
  });
  EXPECT_THAT(names, ElementsAre("running_0", "embedding_0"));
  EXPECT_EQ(bodies[0].reason, "no other schedule of it is legal");
  ASSERT_THAT(bodies[1].tried, SizeIs(2));
  EXPECT_EQ(bodies[1].tried[1].steps, "tag h unr\n");
  EXPECT_THAT(tune_bodies(scan(), options, [](const TimedBody&) { return false; }), SizeIs(1));
  options.cancelled = [] { return true; };
  EXPECT_THAT(tune_bodies(scan(), options), SizeIs(0));
}

TEST(Tune, SaysWhatCannotBe) {
  EXPECT_EQ(message_of<UserError>([] { tune_bodies(scan(), {.bodies = {"linear_0"}}); }),
            "there is no generated body \"linear_0\": want running_0, embedding_0");
  EXPECT_THAT(message_of<UserError>([] {
                tune_bodies(scan(), {.bodies = {"embedding_0"}, .more = {{"embedding_0", {"tag h g.0\n"}}}});
              }),
              AllOf(HasSubstr("line 1: "), HasSubstr("the loop over h cannot be tagged g.0 in a body for a CPU")));
}

TEST(Tune, LeavesWhatIsProposedUnlessAnotherIsClearlyFaster) {
  TimedBody body{.kernel = {}, .node = "n", .tried = {{"proposed", 1.0}, {"another", 0.97}}};
  EXPECT_EQ(body.best().steps, "proposed");
  body.tried[1].seconds = 0.9;
  EXPECT_EQ(body.best().steps, "another");
  body.tried[1].seconds = std::numeric_limits<double>::infinity();
  EXPECT_EQ(body.best().steps, "proposed");
}

}  // namespace
}  // namespace megalith::engine
