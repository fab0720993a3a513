// An engine that works with its first kernel while others are compiled, by a compiler that waits for the test: those give way
// to others on the machine, by which it knows them.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <filesystem>
#include <memory>
#include <thread>

#include "base/temporary_folder.h"
#include "engine/service_results.h"
#include "jit/fake_compiler.h"
#include "megalith/engine/async_engine.h"
#include "support/models.h"

namespace megalith::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

class EarlyStart : public ::testing::Test {
 protected:
  EarlyStart() { options_.starts_early = true; }
  ~EarlyStart() override { let_go(); }

  static EngineOptions usual_options() {
    EngineOptions options{.num_workers = 2};
    options.decoder.max_requests = 3;
    options.decoder.max_rows = 8;
    options.decoder.max_seq_len = 256;
    options.regimes = {1, 3};
    options.prompt_rows = 16;
    return options;
  }
  static Request request(int first) {
    return {.prompt = {first, 301, 302, 303, 304, 305, 306, 307, 308, 309},
            .max_new_tokens = 200,
            .ignore_stop_tokens = true};
  }

  static constexpr const char* kLittle = " -O1 ";

  void let_go() const { file_write_atomic(go_, ""); }
  /// What a late compiler does once it is let go. None takes its time over it, whatever it is told.
  std::string compiler(const std::string& late) const {
    return "if [ \"$(nice)\" = 10 ]; then while [ ! -e " + go_ + " ]; do sleep 0.05; done; " + late +
           "; fi; exec c++ \"$@\" -O1";
  }

  /// For `late`: no kernel for so many tokens at a time.
  static std::string fails_for(int64_t rows) {
    return "for word in \"$@\"; do case $word in *.cpp) grep -q 'T_largest = " + std::to_string(rows) +
           "[,;]' $word && exit 1;; esac; done";
  }

  /// One request with the first kernel, and another when the service has seen what became of the others: it keeps no page of
  /// what came before.
  void ask_before_and_after(AsyncEngine& service) const {
    ServiceResults results;
    EXPECT_EQ(results.wait(service.submit(request(400), results.sink())).tokens, alone_[0]);
    EXPECT_GT(service.load().pages_kept, 0);
    let_go();
    const auto end = steady_clock::now() + std::chrono::minutes(3);
    while (service.load().pages_kept > 0 && steady_clock::now() < end) std::this_thread::sleep_for(milliseconds(50));
    EXPECT_EQ(service.load().pages_kept, 0);
    EXPECT_EQ(results.wait(service.submit(request(401), results.sink())).tokens, alone_[1]);
    EXPECT_EQ(service.load().preemptions, 0u);
  }

  test::TemporaryFolder folder_;
  const std::string go_ = folder_ / "go";
  // So that all kernels write the same.
  const test::EnvironmentVariable products_{"MEGALITH_PRODUCTS", "f32"};
  const std::vector<std::vector<int>> alone_ = [] {
    Engine engine(test::kStoryteller, usual_options());
    return std::vector{engine.generate({request(400)}).tokens[0], engine.generate({request(401)}).tokens[0]};
  }();
  const test::EnvironmentVariable cache_{"MEGALITH_CACHE_DIR", (folder_ / "cache").c_str()};
  const test::EnvironmentVariable optimize_{"MEGALITH_OPTIMIZE", "full"};
  EngineOptions options_ = usual_options();
};

TEST_F(EarlyStart, HasItsOtherKernelsWhileRequestsAreAtWork) {
  const jit::test::FakeCompiler fake(folder_.path, compiler("true"));
  const test::EnvironmentVariable cxx("MEGALITH_CXX", fake.path);
  Engine engine(test::kStoryteller, options_);
  EXPECT_TRUE(engine.has_late_regimes());
  EXPECT_EQ(engine.regimes(), (std::vector<int64_t>{8}));
  EXPECT_EQ(engine.generate({request(400)}).tokens[0], alone_[0]);
  {
    ServiceResults results;
    AsyncEngine service(engine);
    std::deque<std::pair<RequestId, size_t>> at_work;
    const auto end = steady_clock::now() + std::chrono::minutes(3);
    size_t next = 0;
    do {
      while (at_work.size() < 5) {
        const size_t kind = next++ % alone_.size();
        at_work.emplace_back(service.submit(request(400 + static_cast<int>(kind)), results.sink()), kind);
      }
      const ServiceResults::Result result = results.wait(at_work.front().first);
      ASSERT_EQ(result.tokens, alone_[at_work.front().second]) << "request " << next;
      ASSERT_EQ(result.end, RequestEnd::length);
      at_work.pop_front();
      let_go();
    } while (service.load().preemptions == 0 && steady_clock::now() < end);
    EXPECT_GT(service.load().preemptions, 0u) << "none was at work, or the kernels never came";
    for (const auto& [id, kind] : at_work) EXPECT_EQ(results.wait(id).tokens, alone_[kind]);
  }
  EXPECT_FALSE(engine.has_late_regimes());
  EXPECT_EQ(engine.regimes(), (std::vector<int64_t>{1, 3, 8, 16}));
  EXPECT_EQ(engine.generate({request(401)}).tokens[0], alone_[1]);
}

TEST_F(EarlyStart, HasThemWhileNothingIsAtWork) {
  const jit::test::FakeCompiler fake(folder_.path, compiler("true"));
  const test::EnvironmentVariable cxx("MEGALITH_CXX", fake.path);
  Engine engine(test::kStoryteller, options_);
  ask_before_and_after(*std::make_unique<AsyncEngine>(engine));
  EXPECT_EQ(engine.regimes(), (std::vector<int64_t>{1, 3, 8, 16}));
}

TEST_F(EarlyStart, GoesOnAloneIfTheyCannotBeCompiled) {
  const jit::test::FakeCompiler fake(folder_.path, compiler("exit 1"));
  const test::EnvironmentVariable cxx("MEGALITH_CXX", fake.path);
  Engine engine(test::kStoryteller, options_);
  ask_before_and_after(*std::make_unique<AsyncEngine>(engine));
  EXPECT_FALSE(engine.has_late_regimes());
  EXPECT_EQ(engine.regimes(), (std::vector<int64_t>{8}));
}

TEST_F(EarlyStart, HasThoseThatCouldBeCompiled) {
  const jit::test::FakeCompiler fake(folder_.path, compiler(fails_for(16)));
  const test::EnvironmentVariable cxx("MEGALITH_CXX", fake.path);
  Engine engine(test::kStoryteller, options_);
  ask_before_and_after(*std::make_unique<AsyncEngine>(engine));
  EXPECT_EQ(engine.regimes(), (std::vector<int64_t>{1, 3, 8}));
  EXPECT_FALSE(engine.kernel().is_quick);
}

TEST_F(EarlyStart, KeepsTheQuickKernelIfItsSuccessorCannotBeCompiled) {
  const jit::test::FakeCompiler fake(folder_.path, compiler(fails_for(8)));
  const test::EnvironmentVariable cxx("MEGALITH_CXX", fake.path);
  Engine engine(test::kStoryteller, options_);
  ask_before_and_after(*std::make_unique<AsyncEngine>(engine));
  EXPECT_EQ(engine.regimes(), (std::vector<int64_t>{1, 3, 8, 16}));
  EXPECT_TRUE(engine.kernel().is_quick);
}

TEST_F(EarlyStart, DoesNotWaitForThemWhenItEnds) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP()
      << "nobody knows when threads that were left behind last read the environment, which is put back behind this";
#endif
  const jit::test::FakeCompiler fake(folder_.path, compiler("exit 1"));
  const test::EnvironmentVariable cxx("MEGALITH_CXX", fake.path);
  const auto wait_for = [](auto is_so) {
    for (const auto end = steady_clock::now() + std::chrono::minutes(1); !is_so() && steady_clock::now() < end;)
      std::this_thread::sleep_for(milliseconds(20));
  };
  const auto begin = [&] {
    Engine engine(test::kStoryteller, options_);
    AsyncEngine service(engine);
    wait_for([&] { return fake.count(".cpp") == 5; });
    return steady_clock::now();
  }();
  EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(5));
  // Threads that were left behind read the environment, which is put back behind this.
  let_go();
  wait_for([&] {
    std::error_code none;
    const std::filesystem::directory_iterator failed(folder_ / "cache/failed", none), end;
    return std::count_if(failed, end, [](const auto& entry) { return file_exists(entry.path() / "log.txt"); }) == 4;
  });
}

TEST_F(EarlyStart, HasAllAtOnceIfTheyAreInTheCache) {
  let_go();
  const jit::test::FakeCompiler fake(folder_.path, compiler("true"));
  const test::EnvironmentVariable cxx("MEGALITH_CXX", fake.path);
  Engine(test::kStoryteller, usual_options());
  Engine engine(test::kStoryteller, options_);
  EXPECT_FALSE(engine.has_late_regimes());
  EXPECT_EQ(engine.regimes(), (std::vector<int64_t>{1, 3, 8, 16}));
  EXPECT_EQ(fake.count(kLittle), 0);
}

TEST_F(EarlyStart, BeginsWithAKernelThatIsOptimisedLittle) {
  const jit::test::FakeCompiler fake(folder_.path, compiler("true"));
  const test::EnvironmentVariable cxx("MEGALITH_CXX", fake.path);
  Engine engine(test::kStoryteller, options_);
  EXPECT_TRUE(engine.has_late_regimes());
  EXPECT_TRUE(engine.kernel().is_quick);
  EXPECT_EQ(fake.count(kLittle), 1);
  ask_before_and_after(*std::make_unique<AsyncEngine>(engine));
  EXPECT_EQ(engine.regimes(), (std::vector<int64_t>{1, 3, 8, 16}));
  EXPECT_FALSE(engine.kernel().is_quick);
  EXPECT_EQ(fake.count(".cpp"), 5);
  EXPECT_EQ(fake.count(kLittle), 1);
  // What was made for a beginning is of no use to the next one.
  [[maybe_unused]] const bool has_late = Engine(test::kStoryteller, options_).has_late_regimes();
#if !defined(__SANITIZE_THREAD__)  // which takes longer to find kernels than an engine waits for them
  EXPECT_FALSE(has_late);
#endif
  EXPECT_EQ(fake.count(".cpp"), 5);
}

// Nothing would take its place without stopping the model.
TEST_F(EarlyStart, TakesItsTimeIfThereIsOneKernel) {
  options_.regimes = std::vector<int64_t>{};
  options_.prompt_rows = 0;
  const jit::test::FakeCompiler fake(folder_.path, compiler("true"));
  const test::EnvironmentVariable cxx("MEGALITH_CXX", fake.path);
  EXPECT_FALSE(Engine(test::kStoryteller, options_).has_late_regimes());
  EXPECT_EQ(fake.count(".cpp"), 1);
  EXPECT_EQ(fake.count(kLittle), 0);
}

TEST_F(EarlyStart, TakesItsTimeOverAKernelOfManyTokens) {
  let_go();
  options_.decoder.max_rows = 129;
  options_.regimes = {1};
  options_.prompt_rows = 0;
  const jit::test::FakeCompiler fake(folder_.path, compiler("true"));
  const test::EnvironmentVariable cxx("MEGALITH_CXX", fake.path);
  const Engine engine(test::kStoryteller, options_);
  EXPECT_FALSE(engine.kernel().is_quick);
  EXPECT_EQ(fake.count(kLittle), 0);
}

TEST_F(EarlyStart, RefusesAtOnceWhatCannotBe) {
  options_.regimes = {9};
  EXPECT_THROW(Engine(test::kStoryteller, options_), UserError);
}

}  // namespace
}  // namespace megalith::engine
