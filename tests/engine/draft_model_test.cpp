// A draft model changes nothing but when tokens come; and which of its drafts are right a slow reference knows, which runs both models
// one token at a time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/temporary_folder.h"
#include "engine/draft_cases.h"
#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/engine/async_engine.h"
#include "megalith/engine/engine.h"
#include "support/models.h"

namespace megalith::engine {
namespace {

using ::testing::HasSubstr;

constexpr int kDrafts = 3;

/// A model of one layer that is the first of the tiny model's two: it is right now and then. Its vocabulary is padded by `padding`
/// rows of embeddings that nobody would take for a token's.
class SmallModel {
 public:
  explicit SmallModel(int64_t padding = 0, int64_t longest = 256) {
    std::string config = file_read(test::kTinyModel + "/config.json");
    replace(config, "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1");
    replace(config, "\"max_position_embeddings\": 256", fmt::format("\"max_position_embeddings\": {}", longest));
    replace(config, "\"vocab_size\": 501", fmt::format("\"vocab_size\": {}", 501 + padding));
    file_write_atomic(folder_ / "config.json", config);
    const Weights weights = Weights::open(test::kTinyModel);
    std::vector<WeightTensor> tensors;
    std::vector<std::byte> table;
    for (const std::string& name : weights.names()) {
      if (name.find("layers.1.") != std::string::npos) continue;
      WeightTensor tensor = weights.get(name);
      if (name.ends_with("embed_tokens.weight")) {
        table.assign(tensor.bytes.begin(), tensor.bytes.end());
        const size_t row = table.size() / 501;
        for (int64_t i = 0; i < padding; ++i) table.insert(table.end(), table.begin(), table.begin() + row);
        tensor.shape[0] += padding;
        tensor.bytes = table;
      }
      tensors.push_back(tensor);
    }
    safetensors_write(folder_ / "model.safetensors", tensors);
  }
  const std::string& path() const { return folder_.path; }

 private:
  static void replace(std::string& text, const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    MEGALITH_CHECK(at != std::string::npos, "config.json has no {}", from);
    text.replace(at, from.size(), to);
  }
  test::TemporaryFolder folder_;
};

EngineOptions options_of(int64_t max_requests, const std::string& draft_model, int64_t draft_tokens = kDrafts) {
  EngineOptions options{
      .draft_model = draft_model, .num_workers = 2, .regimes = std::vector<int64_t>{}, .prompt_rows = 0};
  options.decoder.max_requests = max_requests;
  options.decoder.max_rows = 24;
  options.decoder.max_seq_len = 128;
  if (!draft_model.empty()) options.decoder.draft_tokens = draft_tokens;
  return options;
}

std::vector<Request> some_requests(size_t count) {
  std::mt19937_64 random(count);
  std::vector<Request> requests(count);
  for (size_t r = 0; r < count; ++r) {
    requests[r].prompt.resize(1 + random() % 40);
    for (int& token : requests[r].prompt) token = static_cast<int>(random() % 501);
    ask_in_a_way_of_its_own(requests[r], r, random);
  }
  return requests;
}

TEST(DraftModel, LeavesTokensAsTheyAre) {
  const SmallModel small(11);
  Engine plain(test::kTinyModel, options_of(6, "")), drafting(test::kTinyModel, options_of(6, small.path()));
  for (const size_t count : {1, 3, 6}) {
    const std::vector<Request> requests = some_requests(count);
    const Generation wanted = plain.generate(requests), given = drafting.generate(requests);
    SCOPED_TRACE(count);
    expect_same_sequences(given, wanted);
    EXPECT_GT(given.drafted, 10u) << count;
  }
}

// One that is the model itself is always right: an iteration makes all drafts and one token, the last ones as many as are left.
TEST(DraftModel, IsRightIfItIsTheModelItself) {
  Engine engine(test::kTinyModel, options_of(6, test::kTinyModel));
  std::vector<Request> requests = some_requests(3);
  for (Request& request : requests)
    request.sampling = {}, request.ignore_stop_tokens = true, request.max_new_tokens = 41;
  const Generation one = engine.generate({requests[0]});
  EXPECT_EQ(one.accepted, one.drafted);
  EXPECT_EQ(one.accepted, 30u);  // behind the first token 40, of which each fourth is the large model's own
  EXPECT_EQ(one.draft_steps, 10u);
  const Generation all = engine.generate(requests);
  EXPECT_EQ(all.accepted, all.drafted);
  EXPECT_GT(all.accepted, 80u);
}

// With made-up weights and a made-up cache, too: so steps can be measured that are right.
TEST(DraftModel, IsRightIfItIsMadeUpAsTheModelItself) {
  EngineOptions options = options_of(1, test::kTinyModel);
  options.dummy_weights = true;
  Engine engine(test::kTinyModel, options);
  for (const int64_t cached : {0, 2}) {
    const Generation made = engine.generate(
        {{.prompt = {3, 1, 4}, .max_new_tokens = 41, .ignore_stop_tokens = true, .cached_tokens = cached}});
    EXPECT_EQ(made.accepted, made.drafted) << cached;
    EXPECT_EQ(made.accepted, 30u) << cached;
  }
}

TEST(DraftModel, HasAsManyRightDraftsAsASlowReferenceCounts) {
  const SmallModel folder(11);
  Engine drafting(test::kTinyModel, options_of(6, folder.path())), small(folder.path(), options_of(6, ""));
  // What the small one makes greedily behind each beginning.
  const auto guess = [&](const std::vector<int>& known, int64_t count) {
    return small.generate({{.prompt = known, .max_new_tokens = count, .ignore_stop_tokens = true}}).tokens[0];
  };
  DraftCounts total;
  for (const Request& request : some_requests(8)) {
    const Generation given = drafting.generate({request});
    if (given.reasons[0] == batch::kStopToken) continue;  // what it would have had behind that is not known
    EXPECT_EQ(draft_counts(given), count_slowly(request.prompt, given.tokens[0], kDrafts, 1, guess));
    total += draft_counts(given);
  }
  EXPECT_GT(total.accepted, 10u);
  EXPECT_GT(total.drafts, total.accepted + 20);
}

TEST(DraftModel, IsRefusedIfItCannotMakeDrafts) {
  const auto expect_error = [](const EngineOptions& options, const std::string& text) {
    try {
      Engine engine(test::kTinyModel, options);
      FAIL() << text;
    } catch (const UserError& error) { EXPECT_THAT(error.what(), HasSubstr(text)); }
  };
  expect_error(options_of(1, test::kStoryteller), "want a small model of the same tokenizer");
  const SmallModel brief(0, 64);
  expect_error(options_of(1, brief.path()), "works on sequences of up to 64 tokens: try --max-seq-len 64");
}

}  // namespace
}  // namespace megalith::engine
