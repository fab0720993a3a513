// A checkpoint that another process cuts short while it is in use: an error that names the file, and never a signal.
#include <gmock/gmock.h>

#include <filesystem>

#include "base/temporary_folder.h"
#include "engine/service_results.h"
#include "megalith/base/error.h"
#include "megalith/engine/async_engine.h"
#include "megalith/engine/engine.h"

namespace megalith::engine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class CutCheckpoint : public ::testing::Test {
 protected:
  // Under the bundled model's name, so that its kernel is the same one.
  void SetUp() override {
    std::filesystem::copy(MEGALITH_SOURCE_DIR "/models/storyteller", model_, std::filesystem::copy_options::recursive);
  }
  void cut(uintmax_t left) { std::filesystem::resize_file(file_, left); }
  std::unique_ptr<Engine> load() {
    return std::make_unique<Engine>(model_, EngineOptions{.decoder = {.max_seq_len = 128}, .num_workers = 2});
  }
  static std::vector<Request> requests() {
    return {{.prompt = {1, 2, 3}, .max_new_tokens = 100, .ignore_stop_tokens = true}};
  }
  auto names_the_file() {
    return ThrowsMessage<SystemError>(AllOf(HasSubstr(file_), HasSubstr("has become shorter while it was in use")));
  }

  test::TemporaryFolder folder_;
  std::string model_ = folder_ / "storyteller", file_ = model_ + "/model.safetensors";
};

TEST_F(CutCheckpoint, BeforeATextIsMade) {
  const auto engine = load();
  engine->generate(requests());
  cut(std::filesystem::file_size(file_) - 1);
  EXPECT_THAT([&] { engine->generate(requests()); }, names_the_file());
}

TEST_F(CutCheckpoint, WhileATextIsMade) {
  const auto engine = load();
  int num_tokens = 0;
  EXPECT_THAT(
      [&] {
        engine->generate(requests(), [&](const TokenEvent&) {
          if (++num_tokens == 1) cut(0);
        });
      },
      names_the_file());
  EXPECT_LT(num_tokens, 100) << "what is made of zeros is no text";
}

// Also those that have not begun: the next kernel would end in the same way, for ever.
TEST_F(CutCheckpoint, TellsAllRequestsOfAService) {
  const auto engine = load();
  cut(std::filesystem::file_size(file_) - 1);
  ServiceResults results;
  AsyncEngine service(*engine);
  std::vector<RequestId> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(service.submit(requests()[0], results.sink()));
  for (const RequestId id : ids) {
    const ServiceResults::Result result = results.wait(id);
    EXPECT_EQ(result.end, RequestEnd::failed);
    ASSERT_TRUE(result.error);
    EXPECT_THAT([&] { std::rethrow_exception(result.error); }, names_the_file());
  }
  EXPECT_EQ(settled(service).waiting, 0);
}

}  // namespace
}  // namespace megalith::engine
