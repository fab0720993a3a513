// `megalith serve` as a process: what it says, what it refuses to start with, and how it ends. What it answers is tested in
// tests/serve.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/command_run.h"
#include "cli/serve_run.h"

namespace megalith::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(Serve, AnswersAndEnds) {
  std::vector<std::string> answers;
  const std::string post = completion(R"({"prompt":"Once upon a time","max_tokens":5,"temperature":0})");
  const CommandResult result = serve({"--alias", "tales"}, {post, get("/v1/models"), "rubbish\r\n\r\n"}, answers);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "");
  ASSERT_EQ(answers.size(), 3U);
  EXPECT_THAT(answers[0], StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answers[0], HasSubstr("X-Request-Id: mine\r\n"));
  EXPECT_THAT(answers[0], HasSubstr("\"model\":\"tales\""));
  EXPECT_THAT(answers[0], HasSubstr("\"completion_tokens\":5"));
  EXPECT_THAT(answers[1], HasSubstr("\"id\":\"tales\""));
  EXPECT_THAT(answers[2], StartsWith("HTTP/1.1 400 Bad Request\r\n"));
  EXPECT_THAT(answers[2], HasSubstr("\"type\":\"invalid_request_error\""));
  EXPECT_THAT(result.err, HasSubstr("listening on http://127.0.0.1:"));
  EXPECT_THAT(result.err,
              HasSubstr("/v1: 8 sequences at a time, each of up to 1024 tokens with its prompt; 512 may wait; "
                        "1 worker\n"));
  EXPECT_THAT(result.err, HasSubstr("\"id\":\"mine\""));
  EXPECT_THAT(result.err, Not(HasSubstr("Once upon")));
}

// 40 token ids, so two pages are whole.
TEST(Serve, KnowsHowAPromptBegins) {
  std::string ids = "300";
  for (int id = 301; id < 340; ++id) ids += "," + std::to_string(id);
  const std::string post = completion(R"({"prompt":[)" + ids + R"(],"max_tokens":2,"temperature":0})");
  const std::string salted =
      completion(R"({"prompt":[)" + ids + R"(],"max_tokens":2,"temperature":0,"cache_salt":"x"})");
  for (const bool keeps : {true, false}) {
    const std::vector<std::string> options =
        keeps ? std::vector<std::string>{} : std::vector<std::string>{"--no-prefix-cache"};
    std::vector<std::string> answers;
    EXPECT_EQ(serve(options, {post, post, salted, get("/metrics")}, answers).code, 0);
    ASSERT_EQ(answers.size(), 4U);
    EXPECT_THAT(answers[0], HasSubstr("\"cached_tokens\":0"));
    EXPECT_THAT(answers[1], HasSubstr(keeps ? "\"cached_tokens\":32" : "\"cached_tokens\":0"));
    EXPECT_THAT(answers[2], HasSubstr("\"cached_tokens\":0"));
    EXPECT_THAT(answers[3], HasSubstr(fmt::format("vllm:prefix_cache_queries_total{{model_name=\"storyteller\"}} {}\n",
                                                  keeps ? 120 : 0)));
    EXPECT_THAT(answers[3], HasSubstr(fmt::format("vllm:prefix_cache_hits_total{{model_name=\"storyteller\"}} {}\n",
                                                  keeps ? 32 : 0)));
  }
}

TEST(Serve, IsQuietIfAskedTo) {
  std::vector<std::string> answers;
  EXPECT_EQ(serve({"-q"}, {get("/v1/models")}, answers).err, "");
  EXPECT_THAT(answers[0], StartsWith("HTTP/1.1 200"));
}

TEST(Serve, IsNotOpenToOthersByAccident) {
  const CommandResult result = megalith_command({"serve", kStoryteller, "--port", "0", "--host", "0.0.0.0"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err,
              StartsWith("megalith: error: --host 0.0.0.0 can be reached from other machines, and there is no "
                         "--api-key: give one, or --allow-unauthenticated"));
}

TEST(Serve, SaysWhatItCannotStartWith) {
  const TemporaryFolder folder;
  write_text(folder / "keys", "# none\n\n");
  const auto error = [](std::vector<std::string> options) {
    options.insert(options.begin(), {"serve", kStoryteller, "--port", "0"});
    const CommandResult result = megalith_command(options);
    EXPECT_EQ(result.code, 1);
    return result.err;
  };
  EXPECT_THAT(error({"--api-key-file", folder / "keys"}), HasSubstr("keys has no key: want one a line\n"));
  EXPECT_THAT(error({"--api-key-file", folder / "nothing"}), HasSubstr("nothing"));
  EXPECT_THAT(error({"--host", "192.0.2.1"}),
              HasSubstr("cannot listen on 192.0.2.1 port 0: Cannot assign requested address"));
  const CommandResult other = megalith_command({"serve", folder / "no_model", "--port", "0"});
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.err, Not(HasSubstr("listening")));
}

}  // namespace
}  // namespace megalith::test
