// What users have when something is wrong: the real command on files, prompts, caches and compilers that are broken.
// Each ends in an error that names the thing, or is got over; and then the same command on good input works.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "cli/command_run.h"

namespace megalith::test {
namespace {

using nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kGood = "Once upon a time there\n";  // four tokens on from "Once"

CommandResult run_model(const std::string& folder, const std::string& prompt = "Once", const CommandInput& input = {}) {
  return megalith_command({"run", folder, "-c", "256", "-n", "4", "--temp", "0", "-p", prompt}, input);
}

void expect_good_run() {
  const CommandResult good = run_model(kStoryteller);
  EXPECT_EQ(good.code, 0) << good.err;
  EXPECT_EQ(good.out, kGood);
}

/// Exit code 1, nothing on stdout, one message that has `text`; and nothing is left behind.
void expect_error(const CommandResult& result, const std::string& text) {
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, AllOf(StartsWith("megalith: error: "), HasSubstr(text)));
  expect_good_run();
}

// ---- weights -----------------------------------------------------------------------------------

class BadWeights : public testing::Test {
 protected:
  BadWeights() {
    const std::string file = read_text(kStoryteller + "/model.safetensors");
    uint64_t length = 0;
    std::memcpy(&length, file.data(), sizeof length);
    header_ = ordered_json::parse(file.substr(8, length));
    data_ = file.substr(8 + length);
  }
  /// What a run says of these weights; `length`: what the file says of its header's, if it lies.
  CommandResult run(std::optional<uint64_t> length = {}) {
    const std::string header = header_.dump();
    const uint64_t said = length.value_or(header.size());
    model_.replace("model.safetensors", std::string(reinterpret_cast<const char*>(&said), 8) + header + data_);
    return run_model(model_.path());
  }
  ModelCopy model_;
  ordered_json header_;
  std::string data_;
  const std::string norm_ = "model.layers.0.input_layernorm.weight", down_ = "model.layers.0.mlp.down_proj.weight";
};

TEST_F(BadWeights, AreGoodAsTheyAre) {
  const CommandResult result = run();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, kGood);
}

TEST_F(BadWeights, Truncated) {
  data_.resize(data_.size() / 2);
  expect_error(run(), "but the file holds " + std::to_string(data_.size()) + " bytes of data");
  model_.replace("model.safetensors", "");
  expect_error(run_model(model_.path()), "model.safetensors has 0 bytes, too few");
}

TEST_F(BadWeights, AHeaderThatIsTooLong) {
  expect_error(run(uint64_t{1} << 60), "want at most 100000000: it is not a safetensors file");
  expect_error(run(90'000'000), "a header of 90000000 bytes but has only ");
}

TEST_F(BadWeights, OffsetsPastTheEndAndOverlapping) {
  const ordered_json good = header_;
  header_[norm_]["data_offsets"] = {data_.size(), data_.size() + 512};
  expect_error(run(), fmt::format("\"{}\" has data_offsets [{}, {}]", norm_, data_.size(), data_.size() + 512));
  header_ = good;
  header_[norm_]["data_offsets"] = good[down_]["data_offsets"];
  header_[norm_]["shape"] = good[down_]["shape"];
  expect_error(run(), "overlap: [2097664, 2490880)");
}

TEST_F(BadWeights, SizesThatAreNotThoseOfTheShape) {
  header_[norm_]["shape"] = {255};
  expect_error(run(), fmt::format("\"{}\" has 512 bytes of data, but shape [255] of BF16 wants 510", norm_));
}

TEST_F(BadWeights, AMissingTensor) {
  header_["model.layers.0.mlp.down_porj.weight"] = header_[down_];
  header_.erase(down_);
  const CommandResult result = run();
  expect_error(result, "no tensor \"" + down_ + "\"");
  EXPECT_THAT(result.err, HasSubstr(" (near: \"model.layers."));
}

TEST_F(BadWeights, AWrongShape) {
  header_[down_]["shape"] = {768, 256};
  expect_error(run(),
               fmt::format("the weight \"{}\" has the shape [768, 256], want [256, 768] as config.json says", down_));
}

TEST_F(BadWeights, AWrongDType) {
  const ordered_json good = header_;
  header_[norm_]["dtype"] = "F8_E4M3";
  header_[norm_]["shape"] = {512};
  expect_error(run(), fmt::format("tensor \"{}\" is of dtype F8_E4M3, supported are BF16", norm_));
  header_ = good;
  header_[norm_]["dtype"] = "I32";
  header_[norm_]["shape"] = {128};
  expect_error(run(), norm_);
}

// A configuration of fewer layers made other text without a word.
TEST_F(BadWeights, TensorsThatNobodyUses) {
  const ordered_json good = header_;
  header_["model.layers.7.input_layernorm.weight"] = good[norm_];
  header_["model.layers.7.input_layernorm.weight"]["data_offsets"] = {data_.size(), data_.size() + 512};
  data_.resize(data_.size() + 512);
  expect_error(run(), "the model that config.json describes has no use for 1 of the tensors in ");
  auto config = ordered_json::parse(read_text(kStoryteller + "/config.json"));
  config["architectures"] = {"LlamaForCausalLM"};
  model_.replace("config.json", config.dump());
  expect_error(run(), "_norm.weight\", ...; \"architectures\", \"num_hidden_layers\", \"tie_word_");
}

TEST_F(BadWeights, TensorsThatNobodyNeedsPass) {
  auto add = [&](const std::string& name, const ordered_json& shape, const std::string& bytes) {
    header_[name] = {
        {"dtype", "BF16"}, {"shape", shape}, {"data_offsets", {data_.size(), data_.size() + bytes.size()}}};
    data_ += bytes;
  };
  add("model.layers.0.self_attn.rotary_emb.inv_freq", {16}, std::string(32, 'x'));
  add("score.weight", {16}, std::string(32, 'x'));
  const ordered_json embedding = header_["model.embed_tokens.weight"];
  const size_t begin = embedding["data_offsets"][0], end = embedding["data_offsets"][1];
  add("lm_head.weight", embedding["shape"], data_.substr(begin, end - begin));
  EXPECT_EQ(run().out, kGood);
  const size_t head = header_["lm_head.weight"]["data_offsets"][0];
  data_[head] ^= 1;
  EXPECT_THAT(run().err, HasSubstr("config.json ties the output projection to the embedding, but \"lm_head.weight\" "
                                   "differs from it, and is used"));
}

// Opening one waited for ever for somebody who writes.
TEST_F(BadWeights, APipe) {
  std::filesystem::remove(model_ / "model.safetensors");
  ASSERT_EQ(::mkfifo((model_ / "model.safetensors").c_str(), 0600), 0);
  expect_error(run_model(model_.path()), "model.safetensors is not a regular file");
}

TEST_F(BadWeights, ThatMakeNaNAreNeverSilent) {
  const std::array<size_t, 2> range = header_["model.norm.weight"]["data_offsets"];
  std::fill(data_.begin() + static_cast<ptrdiff_t>(range[0]), data_.begin() + static_cast<ptrdiff_t>(range[1]), '\xff');
  constexpr const char* kWarning = "megalith: warning: the model's logits from token 1 on are NaN or infinite, so that";
  EXPECT_THAT(run().err, HasSubstr(kWarning));
  const std::vector<std::string> chat = {"chat", model_.path(), "-c", "256", "-n", "4"};
  EXPECT_THAT(megalith_command(chat, {.stdin_text = "Hello\n"}).err, HasSubstr(kWarning));
  const CommandResult logits =
      megalith_command({"logits", model_.path(), "-c", "256", "--tokens", "5,6", "-o", model_ / "logits"});
  EXPECT_EQ(logits.code, 1);
  EXPECT_THAT(logits.err, StartsWith("megalith: error: from token 1 of 2 on, the model's logits are NaN or infinite"));
}

// ---- the other files ---------------------------------------------------------------------------

TEST(BadFiles, AnUnknownArchitecture) {
  ModelCopy model;
  auto config = ordered_json::parse(read_text(kStoryteller + "/config.json"));
  config["architectures"] = {"MambaForCausalLM"};
  model.replace("config.json", config.dump());
  expect_error(run_model(model.path()), "config.json: \"architectures[0]\" is \"MambaForCausalLM\"");
}

TEST(BadFiles, ABrokenTokenizer) {
  ModelCopy model;
  const std::string good = read_text(kStoryteller + "/tokenizer.json");
  model.replace("tokenizer.json", good.substr(0, good.size() / 2));
  expect_error(run_model(model.path()), "tokenizer.json is not JSON, near byte ");
  model.replace("tokenizer.json", "{}");
  expect_error(run_model(model.path()), "tokenizer.json");
  // One of another model: whole, but it makes a token that this model does not have.
  auto other = ordered_json::parse(good);
  other["added_tokens"].push_back(other["added_tokens"][0]);
  other["added_tokens"].back()["content"] = "<|other|>";
  other["added_tokens"].back()["id"] = 4096;
  model.replace("tokenizer.json", other.dump());
  expect_error(run_model(model.path(), "Once<|other|>"), "contains the token 4096, but the vocabulary has 4096 tokens");
}

TEST(BadFiles, ABrokenGenerationConfig) {
  ModelCopy model;
  model.replace("generation_config.json", R"({"do_sample": true, "top_p": "much"})");
  expect_error(run_model(model.path()), "generation_config.json: \"top_p\" is \"much\"");
  std::filesystem::remove(model / "generation_config.json");
  std::filesystem::create_symlink("gone", model / "generation_config.json");
  expect_error(run_model(model.path()), "generation_config.json: it is a link to gone, which is not there");
}

TEST(GenerationConfig, WhatIsNotSupportedIsNamed) {
  ModelCopy model;
  model.replace("generation_config.json", R"({"num_beams": 4, "suppress_tokens": [1], "typical_p": 1.0})");
  const CommandResult result = run_model(model.path());
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, AllOf(StartsWith("megalith: warning: "),
                                HasSubstr("generation_config.json: \"num_beams\" (4), \"suppress_tokens\": not ")));
}

TEST(GenerationConfig, PenaltiesAreTaken) {
  ModelCopy model;
  model.replace("generation_config.json", R"({"presence_penalty": 1.5, "frequency_penalty": 2})");
  auto text = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"run", model.path(), "-c", "256", "-n", "48", "--temp", "0", "-p", "Once"});
    return megalith_command(more).out;
  };
  EXPECT_NE(text({}), text({"--presence-penalty", "0", "--frequency-penalty", "0"}));
  EXPECT_EQ(text({}), text({"--presence-penalty", "1.5", "--frequency-penalty", "2"}));
}

// ---- prompts -----------------------------------------------------------------------------------

TEST(BadPrompt, TooLongOrEmptyOrNotThere) {
  expect_error(run_model(kStoryteller, std::string(5000, 'a')), "but a sequence may have 256 (--max-seq-len)");
  expect_error(run_model(kStoryteller, ""), "prompt 1 is empty: give at least one token");
  expect_error(megalith_command({"run", kStoryteller, "-f", "/no/such/prompt"}), "cannot open /no/such/prompt");
}

TEST(BadPrompt, IsRefusedBeforeWeightsAreLookedAt) {
  ModelCopy model;
  std::filesystem::remove(model / "model.safetensors");
  expect_error(run_model(model.path(), std::string(5000, 'a')), "but a sequence may have 256 (--max-seq-len)");
  expect_error(run_model(model.path()), "model.safetensors");
}

TEST(BadPrompt, BytesThatAreNoText) {
  for (const std::string prompt : {"Once \xff\xfe upon", "\xc3", "\xf0\x9f\x98 a", "\xed\xa0\x80"}) {
    const CommandResult result = run_model(kStoryteller, prompt);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.out, StartsWith(prompt));
    const CommandResult chat =
        megalith_command({"chat", kStoryteller, "-c", "256", "-n", "4", "--temp", "0"}, {.stdin_text = prompt + "\n"});
    EXPECT_EQ(chat.code, 0) << chat.err;
  }
  const TemporaryFolder folder;
  write_text(folder / "prompt", std::string("Once\0upon", 9));
  EXPECT_EQ(megalith_command({"run", kStoryteller, "-c", "256", "-n", "4", "-f", folder / "prompt"}).code, 0);
  expect_good_run();
}

// ---- cache and compiler ------------------------------------------------------------------------

/// A cache of its own, and `doctor`, whose kernel compiles in a blink.
class BadSystem : public testing::Test {
 protected:
  CommandResult doctor(std::map<std::string, std::string> more = {}, std::function<bool()> kill_once = {}) {
    more.emplace("MEGALITH_CACHE_DIR", folder_ / "cache");
    return megalith_command({"doctor"}, {.environment = more, .kill_once = std::move(kill_once)});
  }
  CommandResult run(std::map<std::string, std::string> environment) {
    return run_model(kStoryteller, "Once", {.environment = std::move(environment)});
  }
  void expect_well() {
    const CommandResult result = doctor();
    EXPECT_EQ(result.code, 0) << result.out << result.err;
    EXPECT_THAT(result.out, HasSubstr("ok    kernel"));
  }
  /// A compiler that says its version, and else does what `action` says in shell.
  std::string compiler(const std::string& action) {
    write_text(folder_ / "c++",
               "#!/bin/sh\ncase \"$*\" in *--version) echo made up 1.0; exit 0;; esac\n" + action + "\n");
    ::chmod((folder_ / "c++").c_str(), 0755);
    return folder_ / "c++";
  }
  /// The only file of this name in the cache.
  std::string cached(const std::string& name) {
    std::string found;
    for (const auto& file : std::filesystem::recursive_directory_iterator(folder_ / "cache"))
      if (file.path().filename() == name) found = file.path();
    return found;
  }
  TemporaryFolder folder_;
};

TEST_F(BadSystem, NoCompiler) {
  expect_error(run({{"PATH", "/nowhere"}}), "no C++ compiler found: looked for c++, g++, clang++ in /nowhere");
  expect_error(run({{"MEGALITH_CXX", "/no/such/c++"}}), "MEGALITH_CXX is \"/no/such/c++\", which is no program");
}

TEST_F(BadSystem, ACompilerThatFails) {
  expect_error(run({{"MEGALITH_CXX", "/bin/false"}}), "is it a C++ compiler?");
  const std::string broken = compiler("echo 'kernel.cpp:1: out of ideas'; exit 1");
  const CommandResult result = run({{"MEGALITH_CXX", broken}});
  expect_error(result, "kernel.cpp:1: out of ideas");
  EXPECT_THAT(result.err, HasSubstr(broken + " "));  // the command, to be repeated by hand
}

TEST_F(BadSystem, ACacheThatCannotBeWritten) {
  const CommandResult result = run({{"MEGALITH_CACHE_DIR", "/dev/null/cache"}});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, kGood);
  EXPECT_THAT(result.err, HasSubstr("warning: the kernel cache /dev/null/cache cannot be used"));
  const CommandResult neither = run({{"MEGALITH_CACHE_DIR", "/dev/null/cache"}, {"TMPDIR", "/dev/null"}});
  expect_error(neither, "[jit] the kernel cache /dev/null/cache cannot be used (cannot create the directory");
  EXPECT_THAT(neither.err, HasSubstr("nor can the temporary directory of this run: cannot create /dev/null/megalith-"));
}

TEST_F(BadSystem, ACacheThatIsAFile) {
  write_text(folder_ / "file", "mine");
  const std::map<std::string, std::string> environment = {{"MEGALITH_CACHE_DIR", folder_ / "file"}};
  for (const char* action : {"ls", "size", "clear"})
    expect_error(megalith_command({"cache", action}, {.environment = environment}),
                 "the kernel cache " + (folder_ / "file") + " is no directory (MEGALITH_CACHE_DIR)");
}

TEST_F(BadSystem, KilledInTheMiddleOfACompilation) {
  const std::string slow = compiler("touch " + (folder_ / "started") + "\nexec sleep 2");
  const CommandResult killed =
      doctor({{"MEGALITH_CXX", slow}}, [&] { return std::filesystem::exists(folder_ / "started"); });
  EXPECT_EQ(killed.code, 128 + SIGKILL);
  expect_well();
  // The same source and compiler once more: nobody holds the lock, and nothing half made is taken for an entry.
  const std::string mended = compiler("exec c++ \"$@\"");
  const CommandResult again = doctor({{"MEGALITH_CXX", mended}});
  EXPECT_EQ(again.code, 0) << again.out << again.err;
}

// NVRTC works in the command's own process, where nobody can end it but with all of that.
TEST_F(BadSystem, CtrlCWhileNvrtcWorksForEver) {
  const std::string started = folder_ / "started";
  const CommandResult result = megalith_command({"compile", kStoryteller, "--target", "cuda:sm_90a"},
                                                {.environment = {{"MEGALITH_CACHE_DIR", folder_ / "cache"},
                                                                 {"MEGALITH_NVRTC", FAKE_NVRTC},
                                                                 {"FAKE_NVRTC_STARTED", started}},
                                                 .kill_once = [&] { return std::filesystem::exists(started); },
                                                 .signal = SIGINT});
  EXPECT_EQ(result.code, 128 + SIGINT) << result.err;
  EXPECT_LT(result.ms_after_signal, 2000);
  EXPECT_EQ(cached("kernel.cu"), "");
  expect_well();
}

TEST_F(BadSystem, KilledAtAnyMoment) {
  for (int milliseconds = 0; milliseconds < 120; milliseconds += 12) {
    const auto start = std::chrono::steady_clock::now();
    run_model(kStoryteller, "Once", {.kill_once = [&] {
                return std::chrono::steady_clock::now() - start >= std::chrono::milliseconds(milliseconds);
              }});
    expect_good_run();
  }
}

TEST_F(BadSystem, ATruncatedCacheEntry) {
  expect_well();
  for (const char* file : {"kernel.so", "info.json"}) {
    const std::string path = cached(file);
    ASSERT_NE(path, "");
    std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
    const CommandResult result = doctor();
    EXPECT_EQ(result.code, 0) << result.out << result.err;
    EXPECT_THAT(result.err, HasSubstr("warning: ")) << file;
    const CommandResult again = doctor();  // it was mended
    EXPECT_EQ(again.code, 0);
    EXPECT_EQ(again.err, "") << file;
  }
}

// ---- names that are meant to become code -----------------------------------------------------------

// A folder's name stands in the source of the kernel. What runs when that is loaded would write a file.
TEST(HostileFolder, ItsNameIsNotCompiled) {
  const TemporaryFolder folder;
  const std::string planted = "planted-by-a-name";  // where the test runs: a name has no slashes
  std::filesystem::remove(planted);
  for (const std::string end : {"\r", "\\\n", "\n"}) {
    const std::string name = "x" + end + "extern \"C\" int creat(const char*, unsigned);" + end +
                             "static int planted = creat(\"" + planted + "\", 0600);" + end;
    std::filesystem::create_directory_symlink(kStoryteller, folder / name);
    const CommandResult result = run_model(folder / name);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(result.out, kGood);
    EXPECT_FALSE(std::filesystem::exists(planted)) << "it was compiled and run";
  }
}

}  // namespace
}  // namespace megalith::test
