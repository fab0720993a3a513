// What the files of a model's folder beside its weights do to a text, and what the command's options do to that.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "cli/command_run.h"

namespace megalith::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

const std::string kPrompt = "Once upon a time";

CommandResult run(const std::string& folder, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments = {"run", folder, "-c", "256", "-n", "40", "--temp", "0", "-p", kPrompt};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return megalith_command(arguments);
}
CommandResult chat(const std::string& folder, const std::string& lines, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments = {"chat", folder, "-c", "256", "-n", "40", "--temp", "0"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return megalith_command(arguments, {.stdin_text = lines});
}
const std::string& story() {
  static const std::string text = run(kStoryteller).out;
  return text;
}
/// The story up to its first " and", a token by itself.
std::string before_and() { return story().substr(kPrompt.size(), story().find(" and ") - kPrompt.size()); }

nlohmann::json tokenizer_json() { return nlohmann::json::parse(read_text(kStoryteller + "/tokenizer.json")); }
/// " and" as an added token: what is written "Ġand" is one.
nlohmann::json and_token(bool special) {
  return {{"id", 270},       {"content", "Ġand"},   {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

// ---- what ends a text ---------------------------------------------------------------------------

TEST(StopStrings, OfGenerationConfigEndTextsAndAnswers) {
  const std::string stop = before_and().substr(before_and().size() / 2, 5);
  const std::string cut = story().substr(0, story().find(stop));
  const ModelCopy model;
  for (const nlohmann::json& stops : {nlohmann::json(stop), nlohmann::json({"no such text", stop})}) {
    model.replace("generation_config.json", nlohmann::json{{"eos_token_id", 0}, {"stop_strings", stops}}.dump());
    const CommandResult result = run(model.path());
    EXPECT_EQ(result.out, cut + "\n") << result.err;
    EXPECT_THAT(result.err, AllOf(Not(HasSubstr("warning")), Not(HasSubstr("[ cut"))));
    EXPECT_EQ(chat(model.path(), kPrompt + "\n").out, cut.substr(kPrompt.size()) + "\n");
    EXPECT_EQ(run(model.path(), {"--ignore-eos"}).out, story());
    // Those of the command line come on top.
    EXPECT_EQ(run(model.path(), {"--stop", cut.substr(kPrompt.size(), 6)}).out, kPrompt + "\n");
  }
}

// Whatever says that it is a token, special or not; and it is no part of the answer.
TEST(TurnEnds, AreTheTokenThatTheTemplateWritesBehindAnAnswer) {
  const std::string end =
      "{% for m in messages %}{{ m.content }}{% if m.role == 'assistant' %}Ġand{% endif %}{% endfor %}";
  const std::string begin =
      "{% for m in messages %}{% if m.role == 'user' and not loop.first %}Ġand{% endif %}"
      "{{ m.content }}{% endfor %}";
  for (const std::string& chat_template : {end, begin}) {
    for (const char* where : {"special", "not special", "added_tokens_decoder", "added_tokens.json", "eos_token"}) {
      const ModelCopy model;
      model.replace("chat_template.jinja", chat_template);
      nlohmann::json tokenizer = tokenizer_json();
      if (std::string(where).ends_with("special"))
        tokenizer["added_tokens"].push_back(and_token(std::string(where) == "special"));
      model.replace("tokenizer.json", tokenizer.dump());
      nlohmann::json config = nlohmann::json::object();
      if (std::string(where) == "added_tokens_decoder") config["added_tokens_decoder"]["270"] = {{"content", "Ġand"}};
      if (std::string(where) == "eos_token") config["eos_token"] = "Ġand";
      model.replace("tokenizer_config.json", config.dump());
      if (std::string(where) == "added_tokens.json") write_text(model / "added_tokens.json", "{\"Ġand\": 270}");
      const CommandResult result = chat(model.path(), kPrompt + "\n");
      EXPECT_EQ(result.out, before_and() + "\n") << where << result.err;
      EXPECT_THAT(result.err, Not(HasSubstr("[ cut"))) << where;
      EXPECT_THAT(chat(model.path(), kPrompt + "\n", {"--show-special"}).out, StartsWith(before_and())) << where;
      EXPECT_NE(chat(model.path(), kPrompt + "\n", {"--show-special"}).out, result.out) << where;
    }
  }
}

TEST(TurnEnds, WhereNoFileNamesAnEndTheTokenizersOwnEndsATextToo) {
  const ModelCopy model;
  nlohmann::json config = nlohmann::json::parse(read_text(kStoryteller + "/config.json"));
  for (const char* key : {"eos_token_id", "bos_token_id", "pad_token_id"}) config[key] = -1;
  model.replace("config.json", config.dump());
  model.replace("generation_config.json", R"({"eos_token_id": [-1, 4096, 99999999999], "pad_token_id": [1]})");
  model.replace("tokenizer_config.json", R"({"eos_token": "Ġand"})");
  EXPECT_EQ(run(model.path()).out, kPrompt + before_and() + "\n");
  model.replace("generation_config.json", R"({"eos_token_id": 0})");
  EXPECT_EQ(run(model.path()).out.substr(0, story().find(" and ")), kPrompt + before_and());
  EXPECT_GT(run(model.path()).out.size(), kPrompt.size() + before_and().size() + 8) << "config files come first";
}

// ---- what is not in the way ---------------------------------------------------------------------

TEST(UnusedSettings, AreNotRefused) {
  const ModelCopy model;
  nlohmann::json config = nlohmann::json::parse(read_text(kStoryteller + "/config.json"));
  std::string text = config.dump();
  text.insert(1, R"("initializer_range_of_old": NaN, "router_loss": Infinity, "x": [-Infinity],)");
  model.replace("config.json", text);
  for (const char* generation :
       {R"({"eos_token_id": 0, "pad_token_id": -1})", R"({"eos_token_id": 0.0, "bos_token_id": [1, 2]})",
        R"({"eos_token_id": [0, 0, -1], "somebody's": NaN, "top_k": 50.0, "temperature": null})"}) {
    model.replace("generation_config.json", generation);
    const CommandResult result = run(model.path());
    EXPECT_EQ(result.out, story()) << result.err;
    EXPECT_THAT(result.err, Not(HasSubstr("warning"))) << generation;
  }
}

TEST(UnusedSettings, ThatChangeTextsAreTold) {
  const ModelCopy model;
  model.replace("generation_config.json",
                R"({"forced_eos_token_id": 2, "encoder_repetition_penalty": 1.5, "max_time": NaN, "num_beams": "4"})");
  const CommandResult result = run(model.path());
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("generation_config.json: \"num_beams\" (\"4\"), \"encoder_repetition_penalty\" "
                                    "(1.5), \"forced_eos_token_id\" (2), \"max_time\" (NaN): not supported"));
}

TEST(TokenFiles, SayWhereTheyContradictEachOther) {
  const ModelCopy model;
  model.replace("tokenizer_config.json", R"({"bos_token": "<|endoftext|>", "add_bos_token": true,
      "added_tokens_decoder": {"9": {"content": "<|endoftext|>", "special": true}}})");
  const CommandResult result = run(model.path());
  EXPECT_EQ(result.out, story()) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("gives \"<|endoftext|>\" the id 9, but in tokenizer.json it has 0"),
                                HasSubstr("puts no \"<|endoftext|>\" around a text, though tokenizer_config.json has "
                                          "\"add_bos_token\": true")));
}

TEST(TokenFiles, MakeTokensOfAPrompt) {
  const ModelCopy model;
  auto count = [&] {  // the error tells how many there are
    const CommandResult result = megalith_command({"run", model.path(), "-c", "2", "-p", "the<|x|>the<|x|>the"});
    const std::string of = "has ";
    EXPECT_EQ(result.code, 1);
    return std::stoi(result.err.substr(result.err.find("prompt 1 has ") + 13));
  };
  const int pieces = count();
  model.replace("tokenizer_config.json", R"({"additional_special_tokens": ["<|x|>"]})");
  EXPECT_LT(count(), pieces);
}

// ---- options ------------------------------------------------------------------------------------

TEST(ShowSpecial, ShowsThem) {
  const ModelCopy model;
  model.replace("tokenizer_config.json", R"({"added_tokens_decoder": {"270": {"content": "Ġand", "special": true}}})");
  std::string hidden = story(), shown = story();
  for (size_t at; (at = hidden.find(" and")) != std::string::npos;) hidden.erase(at, 4);
  for (size_t at; (at = shown.find(" and")) != std::string::npos;) shown.replace(at, 4, "Ġand");
  EXPECT_EQ(run(model.path()).out, hidden);
  EXPECT_EQ(run(model.path(), {"--show-special"}).out, shown);
  // A stop string may be a special token, shown or not.
  EXPECT_EQ(run(model.path(), {"--stop", "Ġand"}).out, kPrompt + before_and() + "\n");
}

TEST(MinusOne, IsNoLimitOrTheDefault) {
  const CommandResult result = megalith_command(
      {"run",         kStoryteller, "-c", "64", "-n", "-1", "--ignore-eos", "--top-k", "-1", "--seed", "-1",
       "--max-batch", "-1",         "-b", "-1", "-t", "-1", "--num-pages",  "-1",      "-p", kPrompt});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("it fills all 64 positions"), Not(HasSubstr("warning"))));
  EXPECT_EQ(run(kStoryteller, {"-c", "-1", "-n", "4"}).code, 0);
  for (const char* option : {"-n", "--top-k", "--seed", "-c", "-t"}) {
    const CommandResult bad = run(kStoryteller, {option, "-2"});
    EXPECT_EQ(bad.code, 2) << option;
    EXPECT_THAT(bad.err, HasSubstr("\"-2\" is not what it takes"));
  }
}

/// A storyteller whose template refuses everything, and says what it was given.
struct Witness : ModelCopy {
  explicit Witness(const std::string& expression) {
    replace("chat_template.jinja", "{{ raise_exception('given: ' ~ (" + expression + ")) }}");
  }
  std::string given(std::vector<std::string> options) const {
    const CommandResult result = chat(path(), "Hi\n", std::move(options));
    EXPECT_EQ(result.code, 1);
    const size_t begin = result.err.find("given: ");
    return begin == std::string::npos
               ? result.err
               : result.err.substr(begin + 7, result.err.find("; --chat-template", begin) - begin - 7);
  }
};

TEST(TemplateVariables, ComeFromTheCommandLine) {
  const Witness thinking("enable_thinking | default('unset') | string ~ ' ' ~ effort | default('-')");
  EXPECT_EQ(thinking.given({}), "unset -");
  EXPECT_EQ(thinking.given({"--enable-thinking"}), "True -");
  EXPECT_EQ(thinking.given({"--no-enable-thinking"}), "False -");
  EXPECT_EQ(thinking.given({"--chat-template-kwargs", R"({"enable_thinking": false, "effort": "high"})"}),
            "False high");
  EXPECT_THAT(thinking.given({"--chat-template-kwargs", "[1]"}),
              HasSubstr("--chat-template-kwargs is a list, want an object such as {\"enable_thinking\": false}"));
  EXPECT_THAT(thinking.given({"--chat-template-kwargs", "{"}), HasSubstr("--chat-template-kwargs is not JSON"));
  EXPECT_THAT(thinking.given({"--chat-template-kwargs", R"({"messages": []})"}),
              HasSubstr("names \"messages\", which the conversation sets"));
  const CommandResult both = chat(kStoryteller, "", {"--enable-thinking", "--no-enable-thinking"});
  EXPECT_EQ(both.code, 2);
  EXPECT_THAT(both.err, HasSubstr("--enable-thinking or --no-enable-thinking, not both"));
  EXPECT_EQ(chat(kStoryteller, "", {"--no-chat-template", "--tools", "x"}).code, 2);
}

TEST(TemplateTools, ComeFromAFile) {
  const TemporaryFolder folder;
  write_text(folder / "tools.json", R"([{"type": "function", "function": {"name": "weather"}}])");
  write_text(folder / "object.json", "{}");
  const Witness tools("tools[0].function.name ~ (tools | length) if tools else 'none'");
  EXPECT_EQ(tools.given({}), "none");
  EXPECT_EQ(tools.given({"--tools", folder / "tools.json"}), "weather1");
  EXPECT_THAT(tools.given({"--tools", folder / "object.json"}),
              HasSubstr("object.json is a dictionary, want a JSON list"));
  EXPECT_THAT(tools.given({"--tools", folder / "none.json"}), HasSubstr("cannot open " + (folder / "none.json")));
}

TEST(TemplateNames, ChooseOneOfSeveral) {
  const Witness model("'its own'");
  std::filesystem::create_directory(model / "additional_chat_templates");
  write_text(model / "additional_chat_templates/rag.jinja", "{{ raise_exception('given: rag') }}");
  EXPECT_EQ(model.given({}), "its own");
  EXPECT_EQ(model.given({"--chat-template", "rag"}), "rag");
  EXPECT_THAT(model.given({"--chat-template", "rug"}),
              HasSubstr("\"rug\" is neither a file nor one of the chat templates"));
}

TEST(ModelWithoutATemplate, HasNoUseForItsOptions) {
  const ModelCopy model;
  std::filesystem::remove(model / "chat_template.jinja");
  EXPECT_THAT(chat(model.path(), "Hi\n", {"--enable-thinking"}).err, HasSubstr("there is no chat template that"));
}

// ---- bounds -------------------------------------------------------------------------------------

constexpr size_t kTooLong = (16 << 20) + 1;

TEST(LongInput, IsRefusedAndNotKept) {
  const CommandResult line = chat(kStoryteller, std::string(kTooLong, 'a') + "\nOnce\n");
  EXPECT_EQ(line.code, 1);
  EXPECT_THAT(line.err, HasSubstr("a line of stdin has more than 16777216 bytes, more than any message may"));
  std::string lines = "\"\"\"\n";
  while (lines.size() < kTooLong) lines += std::string(1 << 20, 'a') + "\n";
  const CommandResult quoted = chat(kStoryteller, lines);
  EXPECT_EQ(quoted.code, 1);
  EXPECT_THAT(quoted.err, HasSubstr("a message has more than 16777216 bytes: the three quotes that end it may be"));
  const std::string prompt(kTooLong, 'a');
  for (std::vector<std::string> from : {std::vector<std::string>{}, std::vector<std::string>{"-f", "-"}}) {
    from.insert(from.begin(), {"run", kStoryteller});
    const CommandResult result = megalith_command(from, {.stdin_text = prompt});
    EXPECT_EQ(result.code, 1);
    EXPECT_THAT(result.err, HasSubstr("stdin has more than 16777216 bytes"));
  }
}

// An input that never ends; `ulimit -v` would tell if it were kept.
TEST(LongInput, ThatNeverEndsEnds) {
  const CommandResult line = megalith_command({"chat", kStoryteller, "-c", "256"}, {.stdin_path = "/dev/zero"});
  EXPECT_EQ(line.code, 1);
  EXPECT_THAT(line.err, HasSubstr("a line of stdin has more than 16777216 bytes"));
  const CommandResult prompt = megalith_command({"run", kStoryteller, "-f", "/dev/zero"});
  EXPECT_EQ(prompt.code, 1);
  EXPECT_THAT(prompt.err, HasSubstr("/dev/zero has more than 16777216 bytes"));
}

// ---- what is shown ------------------------------------------------------------------------------

TEST(Messages, AreOneLineWhateverIsQuoted) {
  const TemporaryFolder folder;
  const std::string name = folder / "model\nmegalith: error: made up\033[2J\u202e";
  for (const char* command : {"run", "chat", "bench", "inspect", "compile"}) {
    const CommandResult result = megalith_command({command, name});
    EXPECT_EQ(result.code, 1) << command;
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("model\\nmegalith: error: made up\\x1b[2J\\u202e"), Not(HasSubstr("\033"))));
  }
  const CommandResult option = megalith_command({"run", "--no\nsuch", "x"});
  EXPECT_EQ(option.code, 2);
  EXPECT_THAT(option.err, HasSubstr("unknown option --no\\nsuch"));
  const CommandResult word = megalith_command({"r\033un"});
  EXPECT_THAT(word.err, HasSubstr("there is no command \"r\\x1bun\""));
}

TEST(Messages, OfFilesDoNotPrintTheFile) {
  const ModelCopy model;
  const std::string huge(3'000'000, 'x');
  nlohmann::json config = nlohmann::json::parse(read_text(kStoryteller + "/config.json"));
  config["hidden_act"] = huge;
  model.replace("config.json", config.dump());
  const CommandResult result = run(model.path());
  EXPECT_EQ(result.code, 1);
  EXPECT_LT(result.err.size(), 1000u);
  EXPECT_THAT(result.err, AllOf(HasSubstr("\"hidden_act\" is \"xxx"), HasSubstr("supported is \"silu\"")));
  nlohmann::json nested = nlohmann::json::parse(read_text(kStoryteller + "/config.json"));
  nested["architectures"] = {{huge, 1}};
  model.replace("config.json", nested.dump());
  EXPECT_LT(run(model.path()).err.size(), 6000u);
}

}  // namespace
}  // namespace megalith::test
