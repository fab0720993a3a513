// The exact form of answers: as one body, and chunk by chunk.
#include "megalith/serve/answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megalith/model/json.h"
#include "megalith/model/utf8.h"
#include "megalith/serve/api_error.h"
#include "serve/storyteller.h"

namespace megalith::serve {
namespace {

using engine::RequestEnd;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class Made {
 public:
  Made(ServedModel model, Api api, const std::string& body)
      : model_(std::move(model)), answer_(model_, prepare(model_, read_generation_request(api, body)), "id-1", 1000) {}

  std::string token(int token, size_t sequence = 0, float logprob = 0) {
    return take({.token = token, .logprob = logprob}, sequence);
  }
  std::string end(RequestEnd end, int token = -1, size_t sequence = 0) {
    return take({.token = token, .end = end}, sequence);
  }
  std::string take(const engine::RequestEvent& event, size_t sequence) {
    const AnswerStep step = answer_.take(sequence, event);
    aborts_ += step.wants_abort;
    failed_ |= step.has_failed;
    return step.chunks;
  }
  Answer& operator*() { return answer_; }
  Answer* operator->() { return &answer_; }
  int aborts() const { return aborts_; }
  bool failed() const { return failed_; }

 private:
  ServedModel model_;
  Answer answer_;
  int aborts_ = 0;
  bool failed_ = false;
};

const std::string kChatHead =
    R"(data: {"id":"chatcmpl-id-1","object":"chat.completion.chunk","created":1000,"model":"storyteller","system_fingerprint":"megalith-0.1.0","choices":[{"index":0,)";
const std::string kHead =
    R"(data: {"id":"cmpl-id-1","object":"text_completion","created":1000,"model":"numbers","system_fingerprint":"megalith-0.1.0","choices":[{"index":0,)";

std::string chat_body(const std::string& members = "") {
  return R"({"messages":[{"role":"user","content":"Once upon a time"}])" + members + "}";
}

std::vector<int> story(const std::string& text) { return test::storyteller_tokenizer().encode(text, false); }

constexpr const char* kTimings =
    R"("timings":{"cache_n":1,"prompt_n":3,"prompt_ms":6,"prompt_per_token_ms":2,"prompt_per_second":500,"predicted_n":3,"predicted_ms":4,"predicted_per_token_ms":2,"predicted_per_second":500})";
constexpr uint64_t kMillisecond = 1'000'000;

// Three tokens behind a prompt of four, of which the cache had one.
std::string timed(Made& made) {
  std::string chunks =
      made.take({.token = 5, .posted_ns = 10 * kMillisecond, .admitted_ns = 4 * kMillisecond, .cached_tokens = 1}, 0);
  chunks += made.take({.token = 6, .posted_ns = 12 * kMillisecond}, 0);
  return chunks + made.take({.token = 7, .posted_ns = 14 * kMillisecond, .end = RequestEnd::length}, 0);
}

TEST(Answer, SaysHowLongItTook) {
  Made whole(test::numbers(), Api::completion, R"({"prompt":[1,2,3,4]})");
  timed(whole);
  EXPECT_THAT(whole->body(), HasSubstr(kTimings));
  Made one(test::numbers(), Api::completion, R"({"prompt":[1]})");
  one.take({.token = 5, .posted_ns = 10 * kMillisecond, .end = RequestEnd::length}, 0);
  EXPECT_THAT(one->body(),
              HasSubstr(R"("predicted_n":1,"predicted_ms":0,"predicted_per_token_ms":0,"predicted_per_second":0)"));

  Made stream(test::numbers(), Api::completion, R"({"prompt":[1,2,3,4],"stream":true})");
  const std::string chunks = timed(stream);
  EXPECT_EQ(chunks.find("timings"), chunks.rfind("timings"));  // with the last one
  EXPECT_THAT(chunks, HasSubstr(std::string(R"("stop_reason":null}],)") + kTimings + "}"));
  Made counted(test::numbers(), Api::completion,
               R"({"prompt":[1,2,3,4],"stream":true,"stream_options":{"include_usage":true}})");
  EXPECT_THAT(timed(counted), Not(HasSubstr("timings")));
  EXPECT_THAT(counted->last_chunks(), HasSubstr(kTimings));
  Made each(test::numbers(), Api::completion, R"({"prompt":[1,2,3,4],"stream":true,"timings_per_token":true})");
  EXPECT_THAT(timed(each), HasSubstr(R"("finish_reason":null}],"timings":{"cache_n":1,)"));
}

TEST(Answer, LlamaServersCompletionIsOneObject) {
  Made made(test::numbers(), Api::llama, R"({"prompt":[1,2,3,4],"n_predict":3,"return_tokens":true,"seed":9})");
  timed(made);
  const JsonFile json = JsonFile::parse(made->body(), "body");
  const JsonValue body = json.root();
  EXPECT_EQ(body.at("content").string(), " 5 6 7");
  EXPECT_EQ(body.at("tokens").elements()[2].integer(), 7);
  EXPECT_EQ(body.at("prompt").string(), "1 2 3 4");
  EXPECT_EQ(body.at("stop_type").string(), "limit");
  EXPECT_EQ(body.at("tokens_predicted").integer(), 3);
  EXPECT_EQ(body.at("tokens_evaluated").integer(), 4);
  EXPECT_EQ(body.at("generation_settings").at("n_predict").integer(), 3);
  EXPECT_EQ(body.at("generation_settings").at("seed").integer(), 9);
  EXPECT_FALSE(body.at("truncated").boolean() || body.at("has_new_line").boolean());
  EXPECT_FALSE(body.has("completion_probabilities"));
  EXPECT_THAT(made->body(), HasSubstr(kTimings));
}

TEST(Answer, LlamaServersCompletionSaysWhatEndedIt) {
  Made word(test::numbers(), Api::llama, R"({"prompt":[1],"stop":["9","6"]})");
  word.token(5);
  word.token(6);
  EXPECT_THAT(word->body(), HasSubstr(R"("stop_type":"word","stopping_word":"6")"));
  EXPECT_THAT(word->body(), HasSubstr(R"("content":" 5 ","tokens":[])"));
  Made eos(test::numbers(), Api::llama, R"({"prompt":[1]})");
  eos.end(RequestEnd::stop, 0);
  EXPECT_THAT(eos->body(), HasSubstr(R"("stop_type":"eos","stopping_word":"")"));
  Made full(test::numbers(), Api::llama, R"({"prompt":[1]})");  // to the end of the context, as without n_predict
  for (int i = 0; i < 62; ++i) full.token(5);
  full.end(RequestEnd::length, 5);
  EXPECT_THAT(full->body(), HasSubstr(R"("truncated":true,"stop_type":"limit")"));
}

TEST(Answer, LlamaServersCompletionIsAListOfSeveral) {
  Made made(test::numbers(), Api::llama, R"({"prompt":[[1],[2]]})");
  made.end(RequestEnd::length, 5, 0);
  made.end(RequestEnd::length, 6, 1);
  const JsonFile json = JsonFile::parse(made->body(), "body");
  ASSERT_EQ(json.root().size(), 2U);
  EXPECT_EQ(json.root().elements()[1].at("index").integer(), 1);
  EXPECT_EQ(json.root().elements()[1].at("content").string(), " 6");
  EXPECT_EQ(json.root().elements()[1].at("prompt").string(), "2");
}

TEST(Answer, LlamaServersStreamEndsWithAnObjectOfAllButTheText) {
  Made made(test::numbers(), Api::llama, R"({"prompt":[1],"stream":true,"n_probs":1})");
  EXPECT_EQ(made.take({.token = 5, .logprob = -1, .top = {{8, -0.5F}}}, 0),
            "data: {\"index\":0,\"content\":\" 5\",\"tokens\":[5],\"stop\":false,\"tokens_predicted\":1,"
            "\"tokens_evaluated\":1,\"completion_probabilities\":[{\"id\":5,\"token\":\" 5\",\"bytes\":[32,53],"
            "\"logprob\":-1,\"top_logprobs\":[{\"id\":8,\"token\":\" 8\",\"bytes\":[32,56],\"logprob\":-0.5}]}]}\n\n");
  EXPECT_THAT(made.end(RequestEnd::stop, 0), HasSubstr(R"("content":"","tokens":[],"stop":true,)"));
  EXPECT_EQ(made->last_chunks(), "");
}

TEST(Answer, APromptOfTextsAndIdsIsOne) {
  const ServedModel model = test::storyteller();
  const auto prompt = [&](const std::string& json) {
    return prepare(model, read_generation_request(Api::llama, R"({"prompt":)" + json + "}")).sequences[0].prompt;
  };
  std::vector<int> wanted = {7, 8};
  for (const int token : story(" upon")) wanted.push_back(token);
  wanted.push_back(9);
  EXPECT_EQ(prompt(R"([7,8," upon",9])"), wanted);
  EXPECT_EQ(prompt(R"([[7,8," upon",9]])"), wanted);
  EXPECT_EQ(prompt(R"({"prompt_string":" upon"})"), prompt(R"(" upon")"));
}

TEST(Answer, LlamaServersBiasesNameTextsToo) {
  const ServedModel model = test::storyteller();
  const auto bias = [&](const std::string& json) {
    return prepare(model, read_generation_request(Api::llama, R"({"prompt":"a","logit_bias":)" + json + "}"))
        .sequences[0]
        .logit_bias;
  };
  const std::map<int, float> wanted = {{7, -1.0F}, {story(" king")[0], -100.0F}};
  ASSERT_EQ(story(" king").size(), 1U);
  EXPECT_EQ(bias(R"([[7,-1],[" king",false]])"), wanted);
  EXPECT_EQ(bias(R"({"7":-1," king":false})"), wanted);
}

TEST(Answer, WithoutCachePromptNobodySharesIt) {
  const ServedModel model = test::numbers();
  const auto salt = [&](const std::string& members) {
    return prepare(model, read_generation_request(Api::llama, R"({"prompt":[1])" + members + "}"))
        .sequences[0]
        .cache_salt;
  };
  EXPECT_EQ(salt(R"(,"cache_prompt":true)"), "");
  EXPECT_NE(salt(R"(,"cache_prompt":false)"), "");
  EXPECT_NE(salt(R"(,"cache_prompt":false)"), salt(R"(,"cache_prompt":false)"));
}

TEST(Answer, AStreamedChatHasTheseChunks) {
  Made made(test::storyteller(), Api::chat, chat_body(R"(,"stream":true)"));
  const std::vector<int> tokens = story(" there");
  ASSERT_EQ(tokens.size(), 1U);
  EXPECT_EQ(made.token(tokens[0]),
            kChatHead +
                R"("delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]})"
                "\n\n" +
                kChatHead +
                R"("delta":{"content":" there"},"logprobs":null,"finish_reason":null}]})"
                "\n\n");
  EXPECT_EQ(made.token(tokens[0]), kChatHead + R"("delta":{"content":" there"},"logprobs":null,"finish_reason":null}]})"
                                               "\n\n");
  EXPECT_FALSE(made->is_complete());
  EXPECT_EQ(made.end(RequestEnd::stop, 0),
            kChatHead + R"("delta":{},"logprobs":null,"finish_reason":"stop","stop_reason":null}]})"
                        "\n\n");
  EXPECT_TRUE(made->is_complete());
  EXPECT_EQ(made->last_chunks(), "data: [DONE]\n\n");
  EXPECT_EQ(made->completion_tokens(), 3);  // with the one that ended it
  EXPECT_EQ(made.aborts(), 0);
}

TEST(Answer, AStreamedCompletionHasTheseChunks) {
  Made made(test::numbers(), Api::completion,
            R"({"prompt":[1,2],"stream":true,"stream_options":{"include_usage":true}})");
  EXPECT_EQ(made.token(5), kHead + R"("text":" 5","logprobs":null,"finish_reason":null}],"usage":null})"
                                   "\n\n");
  EXPECT_EQ(made.end(RequestEnd::length, 6),
            kHead +
                R"("text":" 6","logprobs":null,"finish_reason":null}],"usage":null})"
                "\n\n" +
                kHead +
                R"("text":"","logprobs":null,"finish_reason":"length","stop_reason":null}],"usage":null})"
                "\n\n");
  EXPECT_EQ(
      made->last_chunks(),
      R"(data: {"id":"cmpl-id-1","object":"text_completion","created":1000,"model":"numbers","system_fingerprint":"megalith-0.1.0","choices":[],)"
      R"("usage":{"prompt_tokens":2,"completion_tokens":2,"total_tokens":4,"prompt_tokens_details":{"cached_tokens":0}}})"
      "\n\ndata: [DONE]\n\n");
}

TEST(Answer, RunningUsageIsInEveryChunk) {
  Made made(test::numbers(), Api::completion,
            R"({"prompt":[1],"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}})");
  EXPECT_THAT(
      made.token(5),
      HasSubstr(
          R"("usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2,"prompt_tokens_details":{"cached_tokens":0}}})"));
  EXPECT_THAT(made.token(5), HasSubstr(R"("completion_tokens":2)"));
}

TEST(Answer, AWholeChatHasThisBody) {
  Made made(test::storyteller(), Api::chat, chat_body(R"(,"n":2,"model":"tales")"));
  for (const size_t sequence : {1U, 0U}) {
    EXPECT_EQ(made.token(story(" there")[0], sequence), "");
    EXPECT_EQ(made.end(sequence ? RequestEnd::length : RequestEnd::stop, sequence ? -1 : 0, sequence), "");
  }
  const size_t prompt = story("Once upon a time").size();
  EXPECT_EQ(
      made->body(),
      R"({"id":"chatcmpl-id-1","object":"chat.completion","created":1000,"model":"tales","system_fingerprint":"megalith-0.1.0","choices":[)"
      R"({"index":0,"message":{"role":"assistant","content":" there"},"logprobs":null,"finish_reason":"stop","stop_reason":null},)"
      R"({"index":1,"message":{"role":"assistant","content":" there"},"logprobs":null,"finish_reason":"length","stop_reason":null}],)"
      R"("usage":{"prompt_tokens":)" +
          std::to_string(prompt) + R"(,"completion_tokens":3,"total_tokens":)" + std::to_string(prompt + 3) +
          R"(,"prompt_tokens_details":{"cached_tokens":0}}})");
}

TEST(Answer, CountsWhatThePrefixCacheHad) {
  Made made(test::numbers(), Api::completion, R"({"prompt":[1,2,3],"n":2})");
  made.take({.token = 5, .cached_tokens = 2}, 0);
  made.end(RequestEnd::stop, 0);
  EXPECT_THAT(made->body(), HasSubstr(R"("prompt_tokens_details":{"cached_tokens":2})"));
  made.take({.token = 5, .cached_tokens = 2}, 1);
  EXPECT_THAT(made->body(), HasSubstr(R"("prompt_tokens_details":{"cached_tokens":3})"));
}

TEST(Answer, SeedsOfSeveralAnswersDiffer) {
  const ServedModel model = test::numbers();
  const PreparedRequest prepared =
      prepare(model, read_generation_request(Api::completion, R"({"prompt":[[1],[2]],"n":2,"seed":9})"));
  std::vector<uint64_t> seeds;
  for (const auto& sequence : prepared.sequences) seeds.push_back(sequence.sampling.seed);
  EXPECT_THAT(seeds, ElementsAre(9, 10, 9, 10));
  EXPECT_EQ(prepared.sequences[2].prompt, std::vector<int>{2});
  EXPECT_EQ(prepared.prompt_tokens, 2);
}

TEST(Answer, AStopStringOverTokensEndsIt) {
  for (const bool stream : {true, false}) {
    Made made(test::numbers(), Api::completion,
              std::string(R"({"prompt":[1],"stop":["6 7"],"stream":)") + (stream ? "true}" : "false}"));
    std::string chunks = made.token(5);
    chunks += made.token(6);
    EXPECT_THAT(chunks, Not(HasSubstr("6")));
    EXPECT_EQ(made.aborts(), 0);
    chunks = made.token(7);
    EXPECT_EQ(made.aborts(), 1);
    EXPECT_TRUE(made->is_complete());
    EXPECT_EQ(made->finish_reason(0), "stop");
    EXPECT_EQ(made.token(8), "");  // made before the engine knew
    EXPECT_EQ(made.end(RequestEnd::aborted), "");
    EXPECT_FALSE(made.failed());
    EXPECT_EQ(made->completion_tokens(), 3);
    if (stream)
      EXPECT_THAT(chunks, HasSubstr(R"("finish_reason":"stop")"));
    else
      EXPECT_THAT(made->body(), HasSubstr(R"("text":" 5 ")"));
  }
}

TEST(Answer, WhatMightHaveBeenAStopStringIsShownAtTheEnd) {
  Made made(test::numbers(), Api::completion, R"({"prompt":[1],"stop":"6 7","stream":true})");
  made.token(6);
  EXPECT_THAT(made.end(RequestEnd::length), HasSubstr(R"("text":"6")"));
}

TEST(Answer, AStopTokenOfTheRequestEndsIt) {
  Made made(test::numbers(), Api::completion, R"({"prompt":[1],"stop_token_ids":[8]})");
  made.token(5), made.end(RequestEnd::stop, 8);
  EXPECT_EQ(made.aborts(), 0);
  EXPECT_THAT(made->body(), HasSubstr(R"("text":" 5","logprobs":null,"finish_reason":"stop","stop_reason":8)"));
}

// As in vLLM the model's own end is no reason that a request gave.
TEST(Answer, TheModelsEndIsNoStopTokenOfTheRequest) {
  for (const bool ignores : {false, true}) {
    Made made(test::numbers(), Api::completion,
              std::string(R"({"prompt":[1],"stop_token_ids":[8,0],"ignore_eos":)") + (ignores ? "true}" : "false}"));
    made.end(RequestEnd::stop, 0);
    EXPECT_THAT(made->body(), HasSubstr(ignores ? R"("stop_reason":0)" : R"("stop_reason":null)"));
  }
}

TEST(Answer, AStopStringDoesNotEndItBeforeItsLeastTokens) {
  Made made(test::numbers(), Api::completion, R"({"prompt":[1],"stop":["6 7"],"min_tokens":2,"max_tokens":9})");
  made.token(6), made.token(7), made.token(6);
  EXPECT_EQ(made.aborts(), 0);
  made.token(7);
  EXPECT_EQ(made.aborts(), 1);
  EXPECT_THAT(made->body(), HasSubstr(R"("text":" 6 7 ")"));
}

TEST(Answer, ChunksNeverCutACharacter) {
  const std::string text = "\xF0\x9F\xAB\xA0 \xE9\xBE\x9C \xC3\xA9.";  // of characters without a token of their own
  const std::vector<int> tokens = story(text);
  ASSERT_GT(tokens.size(), 6U);
  Made made(test::storyteller(), Api::chat, chat_body(R"(,"stream":true,"logprobs":true)"));
  std::string shown, bytes;
  for (size_t i = 0; i <= tokens.size(); ++i) {
    std::string chunks = i < tokens.size() ? made.token(tokens[i], 0, -1) : made.end(RequestEnd::length);
    EXPECT_TRUE(utf8_is_valid(chunks));
    while (!chunks.empty()) {
      const size_t end = chunks.find("\n\n");
      const JsonFile chunk = JsonFile::parse(chunks.substr(6, end - 6), "chunk");
      chunks.erase(0, end + 2);
      const JsonValue choice = chunk.root().at("choices").elements()[0];
      if (const auto content = choice.at("delta").find("content")) shown += content->string();
      if (const auto logprobs = choice.find("logprobs"))
        logprobs->at("content").each_element([&](const JsonValue& entry) {
          EXPECT_EQ(entry.at("logprob").number(-10, 0), -1);
          entry.at("bytes").each_element(
              [&](const JsonValue& byte) { bytes += static_cast<char>(byte.integer(0, 255)); });
        });
    }
  }
  EXPECT_EQ(shown, text);
  EXPECT_EQ(bytes, text);
}

TEST(Answer, AnUnfinishedCharacterIsMarkedAtTheEnd) {
  const std::vector<int> tokens = story("\xF0\x9F\xAB\xA0");
  Made made(test::storyteller(), Api::chat, chat_body());
  made.token(tokens[0]);
  made.end(RequestEnd::length);
  EXPECT_THAT(made->body(), HasSubstr("\xEF\xBF\xBD"));
}

TEST(Answer, LogprobsOfACompletionAreColumns) {
  Made made(test::numbers(), Api::completion, R"({"prompt":[1],"logprobs":0})");
  made.token(5, 0, -0.5F), made.token(66, 0, -INFINITY), made.end(RequestEnd::stop, 0);
  EXPECT_THAT(
      made->body(),
      HasSubstr(
          R"("logprobs":{"tokens":[" 5"," 66"],"token_logprobs":[-0.5,-9999],"top_logprobs":null,"text_offset":[0,2]})"));
}

// With the token that came among them, whose place may be behind theirs.
TEST(Answer, TopLogprobsOfACompletionAreObjects) {
  Made made(test::numbers(), Api::completion, R"({"prompt":[1],"logprobs":2})");
  made.take({.token = 5, .logprob = -3, .top = {{7, -0.5F}, {8, -1}}}, 0);
  made.take({.token = 7, .logprob = -0.5F, .top = {{7, -0.5F}, {8, -INFINITY}}}, 0);
  made.end(RequestEnd::stop, 0);
  EXPECT_THAT(made->body(), HasSubstr(R"("top_logprobs":[{" 7":-0.5," 8":-1," 5":-3},{" 7":-0.5," 8":-9999}])"));
}

TEST(Answer, TopLogprobsOfAChatAreLists) {
  const std::vector<int> tokens = story(" there");
  Made made(test::storyteller(), Api::chat, chat_body(R"(,"logprobs":true,"top_logprobs":2)"));
  made.take({.token = tokens[0], .logprob = -1, .top = {{tokens[0], -1}, {tokens[0], -2}}}, 0);
  made.end(RequestEnd::length);
  const std::string bytes = R"("bytes":[32,116,104,101,114,101])";
  EXPECT_THAT(made->body(), HasSubstr(R"("content":[{"token":" there","logprob":-1,)" + bytes +
                                      R"(,"top_logprobs":[{"token":" there","logprob":-1,)" + bytes +
                                      R"(},{"token":" there","logprob":-2,)" + bytes + "}]}]"));
}

TEST(Answer, EchoBeginsWithThePrompt) {
  Made made(test::numbers(), Api::completion, R"({"prompt":[[1,2],[3]],"echo":true,"stream":true})");
  EXPECT_THAT(made.token(5, 0), HasSubstr(R"("text":"1 2")"));
  EXPECT_THAT(made.token(5, 1), HasSubstr(R"("text":"3")"));
}

// The first token has nothing in front of it. Offsets go on behind the prompt.
TEST(Answer, LogprobsOfAnEchoBeginWithThePrompts) {
  for (const bool stream : {false, true}) {
    Made made(test::numbers(), Api::completion,
              std::string(R"({"prompt":[1,22,3],"echo":true,"logprobs":1,"stream":)") + (stream ? "true}" : "false}"));
    EXPECT_EQ(made->prepared().sequences[0].prompt_logprobs, 1);
    std::string said = made.take({.token = 5,
                                  .logprob = -3,
                                  .top = {{7, -0.5F}},
                                  .prompt_logprobs = {{-2, {{9, -1}, {4, -4}}}, {-INFINITY, {{3, -INFINITY}}}}},
                                 0);
    said += made.end(RequestEnd::stop, 0);
    if (!stream) said = made->body();
    const std::string of_prompt = R"("tokens":[" 1"," 22"," 3"],"token_logprobs":[null,-2,-9999],)"
                                  R"("top_logprobs":[null,{" 9":-1," 22":-2},{" 3":-9999}],"text_offset":[0,1,4])";
    const std::string of_all =
        R"("tokens":[" 1"," 22"," 3"," 5"],"token_logprobs":[null,-2,-9999,-3],)"
        R"("top_logprobs":[null,{" 9":-1," 22":-2},{" 3":-9999},{" 7":-0.5," 5":-3}],"text_offset":[0,1,4,6])";
    EXPECT_THAT(said, HasSubstr(R"("text":"1 22 3)"));
    EXPECT_THAT(said, HasSubstr(stream ? of_prompt : of_all));
    if (stream) { EXPECT_THAT(said, HasSubstr(R"("tokens":[" 5"],"token_logprobs":[-3])")); }
  }
}

// What the tokenizer puts in front is in no text, and what follows stands where it did.
TEST(Answer, OffsetsOfAnEchoAreThoseOfItsText) {
  Made made(test::storyteller(), Api::completion, R"({"prompt":"Once \u00e9 upon","echo":true,"logprobs":0})");
  const std::vector<int> tokens = made->prepared().sequences[0].prompt;
  std::vector<engine::PromptLogprob> told(tokens.size() - 1, {-1, {}});
  made.take({.token = tokens[0], .logprob = -1, .end = RequestEnd::length, .prompt_logprobs = told}, 0);
  const JsonFile body = JsonFile::parse(made->body(), "the body");
  const JsonValue logprobs = body.root().at("choices").elements().at(0).at("logprobs");
  const auto offsets = logprobs.at("text_offset").elements(), values = logprobs.at("token_logprobs").elements();
  ASSERT_EQ(offsets.size(), tokens.size() + 1);
  EXPECT_EQ(offsets[0].integer(0, 99), 0);
  EXPECT_EQ(offsets.back().integer(0, 99), 11);  // characters, of 12 bytes
  EXPECT_EQ(values[1].number(-9, 0), -1);
}

TEST(Answer, AnEchoMayBeAll) {
  for (const RequestEnd end : {RequestEnd::stop, RequestEnd::length}) {
    Made made(test::numbers(), Api::completion, R"({"prompt":[1,2],"echo":true,"max_tokens":0,"logprobs":0})");
    EXPECT_EQ(made->prepared().sequences[0].max_new_tokens, 1);
    made.take({.token = 0, .end = end, .prompt_logprobs = {{-2, {}}}}, 0);
    EXPECT_TRUE(made->is_complete());
    EXPECT_THAT(
        made->body(),
        HasSubstr(
            R"("text":"1 2","logprobs":{"tokens":[" 1"," 2"],"token_logprobs":[null,-2],"top_logprobs":null,"text_offset":[0,1]},)"
            R"("finish_reason":"length","stop_reason":null}],"usage":{"prompt_tokens":2,"completion_tokens":0,"total_tokens":2,)"));
  }
}

// As vLLM has it: of completions beside each answer, of chats once.
TEST(Answer, PromptLogprobsHaveAMemberOfTheirOwn) {
  Made made(test::numbers(), Api::completion, R"({"prompt":[1,22,3],"prompt_logprobs":2,"n":2})");
  for (const size_t sequence : {0U, 1U})
    made.take({.token = 5,
               .end = RequestEnd::length,
               .prompt_logprobs = {{-2, {{9, -1}, {22, -2}, {4, -4}}}, {-7, {{4, -INFINITY}}}}},
              sequence);
  const std::string member =
      R"("stop_reason":null,"prompt_logprobs":[null,{"22":{"logprob":-2,"rank":2,"decoded_token":" 22"},)"
      R"("9":{"logprob":-1,"rank":1,"decoded_token":" 9"}},{"3":{"logprob":-7,"rank":null,"decoded_token":" 3"},)"
      R"("4":{"logprob":-9999,"rank":1,"decoded_token":" 4"}}]})";
  EXPECT_THAT(made->body(), HasSubstr(R"("text":" 5","logprobs":null,"finish_reason":"length",)" + member));
  EXPECT_THAT(made->body(), HasSubstr(member + "],\"usage\""));

  Made chat(test::storyteller(), Api::chat, chat_body(R"(,"prompt_logprobs":0)"));
  const size_t length = chat->prepared().sequences[0].prompt.size();
  EXPECT_EQ(chat->prepared().sequences[0].prompt_logprobs, 0);
  chat.take({.token = story(" there")[0],
             .end = RequestEnd::length,
             .prompt_logprobs = std::vector<engine::PromptLogprob>(length - 1, {-1, {}})},
            0);
  EXPECT_THAT(chat->body(), HasSubstr(R"("prompt_tokens_details":{"cached_tokens":0}},"prompt_logprobs":[null,{")"));
}

// A word may begin a text, and stand behind a space.
TEST(Answer, BadWordsAreTokensInBothPlaces) {
  const ServedModel model = test::storyteller();
  const auto words = [&](const std::string& list) {
    return prepare(model, read_generation_request(Api::completion, R"({"prompt":"a","bad_words":)" + list + "}"))
        .sequences[0]
        .bad_words;
  };
  const std::vector<int> king = story("king"), behind = story(" king");
  ASSERT_EQ(behind.size(), 1U);
  EXPECT_THAT(words(R"([" king","king"])"), ::testing::UnorderedElementsAre(king, behind));
  EXPECT_THAT(words(R"("the king")"), ::testing::UnorderedElementsAre(story("the king"), story(" the king")));
  const auto refusal = [](const ServedModel& asked, const char* list) -> std::string {
    const std::string body = R"({"prompt":[1],"bad_words":)" + std::string(list) + "}";
    try {
      prepare(asked, read_generation_request(Api::completion, body));
    } catch (const ApiError& error) { return error.json(); }
    return "";
  };
  EXPECT_THAT(refusal(test::numbers(), R"(["a"])"), HasSubstr("has no tokenizer.json"));
  EXPECT_THAT(refusal(model, R"(["a"," "])"), HasSubstr(R"(has the word \" \", want one that is more than spaces)"));
}

TEST(Answer, AFailureIsNoAnswer) {
  for (const RequestEnd end : {RequestEnd::failed, RequestEnd::aborted}) {
    Made made(test::numbers(), Api::completion, R"({"prompt":[1]})");
    made.token(5);
    made.end(end);
    EXPECT_TRUE(made.failed());
  }
}

TEST(Answer, WithoutEosNothingIsHidden) {
  Made made(test::numbers(), Api::completion, R"({"prompt":[1],"ignore_eos":true})");
  made.token(0), made.end(RequestEnd::length);
  EXPECT_THAT(made->body(), HasSubstr(R"("text":" 0")"));
}

// The name of each event, and its JSON.
std::vector<std::pair<std::string, std::string>> events_of(std::string chunks) {
  std::vector<std::pair<std::string, std::string>> events;
  while (!chunks.empty()) {
    const size_t line = chunks.find('\n'), end = chunks.find("\n\n");
    events.emplace_back(chunks.substr(7, line - 7), chunks.substr(line + 7, end - line - 7));
    chunks.erase(0, end + 2);
  }
  return events;
}

const std::string kResponse =
    R"({"input":"Once upon a time","instructions":"Be kind.","max_output_tokens":2,"temperature":0)";

TEST(Answer, AStreamedResponseHasTheseEvents) {
  Made made(test::storyteller(), Api::responses, kResponse + R"(,"stream":true})");
  const int token = story(" there")[0];
  std::string chunks = made.token(token);
  chunks += made.end(RequestEnd::length, token);
  chunks += made->last_chunks();
  const auto events = events_of(chunks);
  std::vector<std::string> names;
  for (size_t i = 0; i < events.size(); ++i) {
    names.push_back(events[i].first);
    const JsonFile json = JsonFile::parse(events[i].second, "event");
    EXPECT_EQ(json.root().at("type").string(), events[i].first);
    EXPECT_EQ(json.root().at("sequence_number").integer(), static_cast<int64_t>(i));
    const auto item = json.root().find("item_id");
    EXPECT_TRUE(!item || item->string() == "msg_id-1");
  }
  EXPECT_THAT(names, ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                                 "response.content_part.added", "response.output_text.delta",
                                 "response.output_text.delta", "response.output_text.done",
                                 "response.content_part.done", "response.output_item.done", "response.incomplete"));
  EXPECT_THAT(events[5].second, HasSubstr(R"("delta":" there")"));
  EXPECT_THAT(events[6].second, HasSubstr(R"("text":" there there")"));
  const JsonFile last = JsonFile::parse(events.back().second, "event");
  const JsonValue response = last.root().at("response");
  EXPECT_EQ(response.at("id").string(), "resp_id-1");
  EXPECT_EQ(response.at("incomplete_details").at("reason").string(), "max_output_tokens");
  EXPECT_EQ(response.at("usage").at("output_tokens").integer(), 2);
  EXPECT_EQ(response.at("output").elements()[0].at("content").elements()[0].at("text").string(), " there there");
  const auto error = events_of(made->error_chunks(R"({"error":{"message":"m"}})"));
  EXPECT_EQ(error[0].second, R"({"type":"error","sequence_number":10,"error":{"message":"m"}})");
}

TEST(Answer, AWholeResponseHasThisBody) {
  Made made(test::storyteller(), Api::responses, kResponse + "}");
  made.token(story(" there")[0]);
  made.end(RequestEnd::stop, 0);
  const std::string prompt = std::to_string(made->prepared().prompt_tokens);
  EXPECT_EQ(
      made->body(),
      R"({"id":"resp_id-1","object":"response","created_at":1000,"status":"completed","error":null,)"
      R"("incomplete_details":null,"instructions":"Be kind.","max_output_tokens":2,"metadata":{},"model":"storyteller",)"
      R"("output":[{"type":"message","id":"msg_id-1","status":"completed","role":"assistant","content":)"
      R"([{"type":"output_text","text":" there","annotations":[],"logprobs":[]}]}],"parallel_tool_calls":false,)"
      R"("previous_response_id":null,"store":false,"temperature":0,"text":{"format":{"type":"text"}},)"
      R"("tool_choice":"none","tools":[],"top_p":1,"truncation":"disabled","usage":{"input_tokens":)" +
          prompt +
          R"(,"input_tokens_details":{"cached_tokens":0},"output_tokens":2,)"
          R"("output_tokens_details":{"reasoning_tokens":0},"total_tokens":)" +
          std::to_string(made->prepared().prompt_tokens + 2) + "}}");
}

TEST(Prepare, TellsWhatDoesNotFit) {
  const ServedModel model = test::storyteller();
  const auto refusal = [&](Api api, const std::string& body) {
    try {
      prepare(model, read_generation_request(api, body));
    } catch (const ApiError& error) { return std::to_string(error.status()) + " " + error.json(); }
    return std::string();
  };
  EXPECT_THAT(
      refusal(Api::completion, R"({"prompt":"a","model":"gpt-9"})"),
      HasSubstr(
          R"(404 {"error":{"message":"there is no model \"gpt-9\" here: this server has storyteller, tales","type":"not_found_error","param":"model")"));
  EXPECT_THAT(refusal(Api::completion, R"({"prompt":""})"), HasSubstr("the prompt is empty"));
  EXPECT_THAT(refusal(Api::completion, R"({"prompt":[999999]})"),
              HasSubstr("the token id 999999, but the vocabulary has 4096"));
  EXPECT_THAT(refusal(Api::completion, R"({"prompt":"a","n":9})"), HasSubstr("9 answers at once, want at most 8"));
  std::string ids = "1";
  for (int i = 0; i < 300; ++i) ids += ",1";
  EXPECT_THAT(
      refusal(Api::completion, R"({"prompt":[)" + ids + "]}"),
      HasSubstr(R"("type":"exceed_context_size_error","param":"prompt","code":400,"n_prompt_tokens":301,"n_ctx":256)"));
  EXPECT_THAT(refusal(Api::chat, R"({"messages":[{"role":"user","content":"a"}],"chat_template_kwargs":{"x":1}})"), "");
}

TEST(Prepare, TellsWhichTokensThereAreNot) {
  const ServedModel model = test::numbers();  // 1000 tokens, 64 of a sequence
  const auto refusal = [&](const std::string& members) {
    try {
      prepare(model, read_generation_request(Api::completion, R"({"prompt":[1],)" + members + "}"));
    } catch (const ApiError& error) { return error.param() + ": " + error.what(); }
    return std::string();
  };
  for (const std::string name : {"stop_token_ids", "allowed_token_ids"}) {
    EXPECT_EQ(refusal("\"" + name + R"(":[999,1000])"),
              name + ": \"" + name + "\" names the token id 1000, but the vocabulary has 1000");
    EXPECT_EQ(refusal("\"" + name + R"(":[0,999])"), "");
  }
  EXPECT_EQ(refusal(R"("logit_bias":{"7":1,"1000":2})"),
            "logit_bias: \"logit_bias\" names the token id 1000, but the vocabulary has 1000");
  EXPECT_EQ(refusal(R"("min_tokens":17)"),
            "min_tokens: \"min_tokens\" is 17, want at most the 16 tokens that \"max_tokens\" and the context leave");
  EXPECT_EQ(refusal(R"("min_tokens":17,"max_tokens":17)"), "");
  EXPECT_THAT(refusal(R"("min_tokens":64,"max_tokens":100)"), HasSubstr("want at most the 63 tokens"));
}

TEST(Prepare, PassesOnWhichTokensAreWanted) {
  const PreparedRequest prepared = prepare(
      test::numbers(), read_generation_request(Api::completion, R"({"prompt":[[1],[2]],"stop_token_ids":[9,8,9],)"
                                                                R"("min_tokens":3,"logit_bias":{"7":-100,"8":0.5},)"
                                                                R"("allowed_token_ids":[7,5]})"));
  EXPECT_EQ(prepared.text.min_tokens, 3);
  ASSERT_EQ(prepared.sequences.size(), 2U);
  for (const engine::Request& sequence : prepared.sequences) {
    EXPECT_THAT(sequence.stop_token_ids, ElementsAre(8, 9));
    EXPECT_EQ(sequence.min_tokens, 3);
    EXPECT_THAT(sequence.logit_bias, ElementsAre(std::pair(7, -100.0F), std::pair(8, 0.5F)));
    EXPECT_THAT(sequence.allowed_token_ids, ElementsAre(5, 7));
  }
}

TEST(Prepare, DecidesWhatIsLeftOpen) {
  const ServedModel model = test::storyteller();
  const auto first = [&](Api api, const std::string& body) {
    return prepare(model, read_generation_request(api, body)).sequences[0];
  };
  const engine::Request chat = first(Api::chat, chat_body());
  EXPECT_EQ(chat.max_new_tokens, 256 - static_cast<int64_t>(chat.prompt.size()));
  EXPECT_FLOAT_EQ(chat.sampling.temperature, 0.8F);
  EXPECT_EQ(chat.sampling.seed, 7U);
  EXPECT_EQ(first(Api::completion, R"({"prompt":"a"})").max_new_tokens, 16);
  EXPECT_EQ(first(Api::completion, R"({"prompt":[1,2],"max_tokens":1000})").max_new_tokens, 254);
  EXPECT_FLOAT_EQ(first(Api::completion, R"({"prompt":"a","temperature":0})").sampling.temperature, 0);
  EXPECT_EQ(chat.cache_salt, "");
  EXPECT_EQ(first(Api::completion, R"({"prompt":"a","priority":2})").priority, 2);
  EXPECT_EQ(first(Api::responses, R"({"input":"a","cache_salt":"one house"})").cache_salt, "one house");
}

TEST(Prepare, WhatAUserWritesBecomesNoSpecialToken) {
  const ServedModel model = test::storyteller();
  const std::string special(test::storyteller_tokenizer().token_bytes(0));
  const auto prompt = prepare(model, read_generation_request(Api::chat, R"({"messages":[{"role":"user","content":"a )" +
                                                                            special + R"( b"}]})"))
                          .sequences[0]
                          .prompt;
  EXPECT_THAT(prompt, Not(::testing::Contains(0)));
}

TEST(DefaultSampling, IsTheMakersOrTemperatureOne) {
  EXPECT_EQ(default_sampling({}, {}).temperature, 1);
  EXPECT_FALSE(default_sampling({}, {}).top_k);
  const SamplingFields theirs = default_sampling({.do_sample = true, .temperature = 0.6, .top_k = 20}, {.top_k = 5});
  EXPECT_EQ(theirs.temperature, 0.6);
  EXPECT_EQ(theirs.top_k, 5);
}

}  // namespace
}  // namespace megalith::serve
