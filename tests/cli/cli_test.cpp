// What the command says when asked, and when asked wrongly.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "cli/command_run.h"

namespace megalith::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::vector<std::string> kVerbs = {"run",         "chat",          "serve",       "bench",         "bench kernel",
                                         "bench graph", "bench latency", "bench serve", "bench arrival", "bench load",
                                         "bench soak",  "profile",       "compile",     "inspect",       "tune",
                                         "verify",      "logits",        "devices",     "loops",         "cache",
                                         "doctor",      "version"};

std::vector<std::string> words_of(const std::string& verb, std::vector<std::string> words = {}) {
  std::istringstream text(verb);
  size_t at = 0;
  for (std::string word; text >> word; ++at) words.insert(words.begin() + static_cast<std::ptrdiff_t>(at), word);
  return words;
}

void expect_error(const std::vector<std::string>& arguments, int code, const std::string& message,
                  const CommandInput& input = {}) {
  const CommandResult result = megalith_command(arguments, input);
  EXPECT_EQ(result.code, code) << result.out << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, StartsWith("megalith: error: " + message));
}

TEST(Help, OverviewNamesAllCommands) {
  const CommandResult result = megalith_command({"--help"});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.err, "");
  for (const std::string& verb : kVerbs) EXPECT_THAT(result.out, HasSubstr("\n  " + verb + " "));
  EXPECT_EQ(megalith_command({"help"}).out, result.out);
}

TEST(Help, NothingAskedIsAUsageError) {
  const CommandResult result = megalith_command({});
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("Usage: megalith COMMAND"));
}

TEST(Help, EveryCommandHasUsageAndExample) {
  for (const std::string& verb : kVerbs) {
    const CommandResult result = megalith_command(words_of(verb, {"--help"}));
    EXPECT_EQ(result.code, 0) << verb;
    EXPECT_EQ(result.err, "") << verb;
    EXPECT_THAT(result.out, AllOf(HasSubstr("Usage: megalith " + verb), HasSubstr("Example:\n  megalith ")));
    EXPECT_EQ(megalith_command(words_of("help " + verb)).out, result.out);
  }
}

TEST(Help, RunListsItsAliases) {
  const std::string help = megalith_command({"run", "--help"}).out;
  for (const char* name :
       {"-p,--prompt", "-n,--max-new-tokens,--predict", "--ctx-size", "--max-model-len", "--temp", "--temperature",
        "--top-k", "--top-p", "--seed", "--ignore-eos", "--threads", "--workers", "--max-num-seqs",
        "--max-num-batched-tokens", "--block-size", "--kv-cache-dtype", "--load-format", "--log-level"})
    EXPECT_THAT(help, HasSubstr(name));
}

TEST(Help, TellsTheDefaultsOfThisCommandAndItsKin) {
  const std::string bench = megalith_command({"bench", "--help"}).out;
  EXPECT_THAT(bench,
              AllOf(HasSubstr("2K is 2048 (0 or -1: as long as the tests need)"),
                    HasSubstr("requests at a time (0: one)"), HasSubstr("the same seed gives the same text (0)")));
  for (const char* kin : {"kernel", "graph", "latency", "serve", "arrival", "load", "soak"})
    EXPECT_THAT(bench, HasSubstr(std::string("\n  megalith bench ") + kin));
  const std::string run = megalith_command({"run", "--help"}).out;
  EXPECT_THAT(run, AllOf(HasSubstr("(0 or -1: the model's limit, at most 4096)"),
                         HasSubstr("(0: the number of prompts)"), HasSubstr("(random; shown by -v)")));
}

TEST(Version, SaysNumberAndBuild) {
  const CommandResult result = megalith_command({"version"});
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, ::testing::MatchesRegex("megalith [0-9]+\\.[0-9]+\\.[0-9]+ \\(build [0-9a-f]+\\)\n"));
  EXPECT_EQ(megalith_command({"--version"}).out, result.out);
}

TEST(Usage, UnknownCommandSuggestsTheNearOne) {
  expect_error({"rnu"}, 2, "there is no command \"rnu\" (near: \"run\")\ntry: megalith --help\n");
  expect_error({"frobnicate"}, 2, "there is no command \"frobnicate\"\n");
}

TEST(Usage, UnknownOptionSuggestsTheNearOne) {
  expect_error({"run", kStoryteller, "--promt", "x"}, 2,
               "unknown option --promt (near: \"--prompt\")\ntry: megalith run --help\n");
}

TEST(Usage, ValuesThatDoNotFit) {
  expect_error({"run", kStoryteller, "-p", "x", "-n", "many"}, 2,
               "--max-new-tokens: \"many\" is not what it takes, want a whole number, 1 to 16777216\n");
  expect_error({"run", kStoryteller, "-p", "x", "-n", "0"}, 2, "--max-new-tokens: \"0\"");
  expect_error({"run", kStoryteller, "-p", "x", "--temp", "-1"}, 2,
               "--temp: \"-1\" is not what it takes, want a number, 0 to 99\n");
  expect_error({"run", kStoryteller, "-p", "x", "--top-p", "nan"}, 2, "--top-p: \"nan\"");
  expect_error({"run", kStoryteller, "-p", "x", "-c", "2X"}, 2, "--max-seq-len: \"2X\"");
  expect_error({"run", kStoryteller, "-p", "x", "--load-format", "gguf"}, 2,
               "--load-format: \"gguf\" is none of auto, dummy\n");
  expect_error({"run", kStoryteller, "-p", "x", "--regimes", "2,4097"}, 2,
               "--regimes: \"4097\" is not what it takes, want a whole number, 0 to 4096\n");
  expect_error({"inspect", kStoryteller, "--stage", "ptx"}, 2,
               "--stage: \"ptx\" is none of graph, plan, loops, bodies, tasks, placement, source, cost\n");
  expect_error({"run", kStoryteller, "-p"}, 2, "--prompt");
}

TEST(Usage, ArgumentsThatDoNotGoTogether) {
  expect_error({"run", "-p", "x"}, 2, "which model? give its folder, e.g. models/storyteller\n");
  expect_error({"run", "a", "-m", "b", "-p", "x"}, 2, "two models: \"a\" and --model \"b\"\n");
  expect_error({"run", "a", "b"}, 2, "\"b\" is one argument too many\n");
  expect_error({"inspect", kStoryteller, "--json", "--dot"}, 2, "--json or --dot, not both\n");
  expect_error({"inspect", kStoryteller, "--stage", "cost", "--task", "1"}, 2,
               "--task and --event look at --stage tasks, not cost\n");
  expect_error({"run", kStoryteller, "-p", "x", "-q", "-v"}, 2, "--verbose, --quiet or --log-level, not several\n");
  for (const char* more : {"--regimes", "--prompt-rows"})
    expect_error({"run", kStoryteller, "-p", "x", "--batch-invariant", more, "2"}, 2,
                 "--batch-invariant keeps one kernel: leave it out, or --regimes and --prompt-rows\n");
  expect_error({"run", kStoryteller, "-p", "x", "-md", "small", "--speculative-config", "{}"}, 2,
               "--speculative-config says all of drafts: leave out --draft-model and --draft-tokens\n");
  for (const auto& [config, message] :
       {std::pair("{}", "--speculative-config has no num_speculative_tokens, want 1 to 15"),
        {"[]", "--speculative-config is an array of 0, want an object\n"},
        {"{\"method\": \"eagle\", \"num_speculative_tokens\": 2}",
         "--speculative-config has the method \"eagle\", want \"draft_model\""},
        {"{\"model\": \"small\", \"draft_tensor_parallel_size\": 1}",
         "--speculative-config: \"draft_tensor_parallel_size\" is not supported: want method, model, "
         "num_speculative_tokens or "
         "prompt_lookup_min"},
        {"{\"num_speculative_tokens\": 16}", "--speculative-config: \"num_speculative_tokens\" is 16, want 1 to 15"}})
    expect_error({"run", kStoryteller, "-p", "x", "--speculative-config", config}, 1, message);
  for (const char* option : {"--quantization", "--log-file", "--stop", "--file"})
    expect_error({"run", kStoryteller, "-p", "x", option, ""}, 2, std::string(option) + ": \"\" is empty, want ");
  expect_error({"chat", kStoryteller, "--chat-template", ""}, 2, "--chat-template: \"\" is empty, want NAME|FILE\n");
  expect_error({"inspect", kStoryteller, "--task", ""}, 2, "--task: \"\" is empty, want N|NAME|all\n");
  expect_error({"verify"}, 2, "FILE is required\n");
  expect_error({"verify", ""}, 2, "FILE: \"\" is empty, want FILE\n");
  expect_error({"cache"}, 2, "ACTION is required\n");
  expect_error({"cache", "burn"}, 2, "ACTION: \"burn\" is none of ls, path, size, clear\n");
}

TEST(BadFolder, IsNamed) {
  const TemporaryFolder folder;
  expect_error({"run", folder / "none", "-p", "x"}, 1, "there is no folder " + (folder / "none") + "\n");
  expect_error({"run", "Qwen/Qwen3-0.6B", "-p", "x"}, 1,
               "there is no folder Qwen/Qwen3-0.6B; models are not downloaded: try \"hf download Qwen/Qwen3-0.6B "
               "--local-dir Qwen3-0.6B\", then give the folder Qwen3-0.6B\n");
  write_text(folder / "file", "");
  expect_error({"run", folder / "file", "-p", "x"}, 1, (folder / "file") + " is a file, want the model's folder");
  std::filesystem::create_symlink("gone", folder / "link");
  expect_error({"run", folder / "link", "-p", "x"}, 1, (folder / "link") + " is a link to gone, which is not there\n");
  for (const char* verb : {"compile", "inspect"})
    expect_error({verb, folder.path}, 1, folder.path + " is not a model folder: it has no config.json\n");
}

TEST(BadFolder, SaysWhatIsMissing) {
  // A folder of shapes has no tokenizer and no weights.
  expect_error({"run", kShapes + "Qwen3-0.6B", "-p", "x"}, 1, "");
  const CommandResult result = megalith_command({"run", kShapes + "Qwen3-0.6B", "-p", "x"});
  EXPECT_THAT(result.err, HasSubstr("tokenizer.json"));
  expect_error({"run", kShapes + "Qwen3-0.6B", "--load-format", "dummy", "-p", "some words"}, 1,
               kShapes +
                   "Qwen3-0.6B has no tokenizer.json, so a prompt is a list of token ids such as \"1 2 3\", not "
                   "\"some words\"\n");
}

// Names in a model's files must not reach a terminal as commands to it.
TEST(BadFolder, ControlCharactersAreShownAsText) {
  const TemporaryFolder folder;
  write_text(folder / "config.json", "{\"architectures\": [\"\\u001b[31mred\"]}");
  const CommandResult result = megalith_command({"compile", folder.path});
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.err.find('\033'), std::string::npos) << result.err;
  expect_error({"run", "no\033[2Jfolder", "-p", "x"}, 1, "there is no folder no\\x1b[2Jfolder\n");
}

TEST(BadFolder, BrokenConfig) {
  const TemporaryFolder folder;
  write_text(folder / "config.json", "{\"architectures\": [\"GPT2LMHeadModel\"]}");
  expect_error({"compile", folder.path}, 1, (folder / "config.json") + ": \"architectures[0]\" is \"GPT2LMHeadModel\"");
}

const CommandInput kWithoutCuda{
    .environment = {{"MEGALITH_CUDA_DRIVER", "/nowhere/libcuda.so.1"}, {"MEGALITH_NVRTC", "/nowhere/libnvrtc.so"}}};

TEST(Devices, TellsCpuAndWhyNoCuda) {
  const CommandResult result = megalith_command({"devices"}, kWithoutCuda);
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, AllOf(StartsWith("cpu "), HasSubstr("cores"), HasSubstr("simd"), HasSubstr("memory"),
                                HasSubstr("\ncuda"), HasSubstr("not available")));
  EXPECT_THAT(result.out, AllOf(HasSubstr("cannot open \"/nowhere/libcuda.so.1\", which MEGALITH_CUDA_DRIVER names"),
                                HasSubstr("cannot open \"/nowhere/libnvrtc.so\", which MEGALITH_NVRTC names"),
                                HasSubstr("pip install nvidia-cuda-nvrtc")));
}

TEST(BenchLoad, WithoutAGpuOneClearErrorAtOnce) {
  expect_error({"bench", "load", kShapes + "Qwen3-8B", "--load-format", "dummy"}, 1,
               "[cuda] cannot open \"/nowhere/libcuda.so.1\", which MEGALITH_CUDA_DRIVER names", kWithoutCuda);
  expect_error({"bench", "load", "/no/such/folder"}, 1, "there is no folder /no/such/folder\n", kWithoutCuda);
  expect_error({"bench", "load", kStoryteller, "--target", "cpu"}, 2, "bench load copies to a GPU");
}

TEST(Compile, WithoutAGpuTheErrorNamesATargetThatNeedsNone) {
  for (const char* verb : {"compile", "inspect"}) {
    const CommandResult result = megalith_command({verb, kStoryteller, "--target", "cuda"}, kWithoutCuda);
    EXPECT_EQ(result.code, 1);
    EXPECT_THAT(result.err, HasSubstr(", such as --target cuda:sm_90a, whose code any machine can make\n"));
  }
  EXPECT_EQ(megalith_command({"inspect", kStoryteller, "--target", "cuda:sm_90a"}, kWithoutCuda).code, 0);
}

TEST(Compile, WithoutNvrtcTheErrorSaysWhatToInstall) {
  const std::string model = MEGALITH_SOURCE_DIR "/models/storyteller";
  expect_error({"compile", model, "--target", "cuda:sm_90a"}, 1,
               "[cuda] cannot open \"/nowhere/libnvrtc.so\", which MEGALITH_NVRTC names", kWithoutCuda);
}

TEST(Doctor, FindsThisMachineWell) {
  const CommandResult result = megalith_command({"doctor"});
  EXPECT_EQ(result.code, 0) << result.out;
  for (const char* line : {"ok    compiler", "ok    cache", "ok    kernel", "MEGALITH_CACHE_DIR", "NO_COLOR"})
    EXPECT_THAT(result.out, HasSubstr(line));
  EXPECT_THAT(result.out, HasSubstr(Command::cache() + " (set)"));
}

TEST(Doctor, FindsAMissingCompiler) {
  const CommandResult result = megalith_command({"doctor"}, {.environment = {{"MEGALITH_CXX", "/no/such/compiler"}}});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, AllOf(HasSubstr("FAIL  compiler"), HasSubstr("/no/such/compiler")));
}

TEST(Cache, ListsSizesAndClears) {
  const TemporaryFolder folder;
  const CommandInput input{.environment = {{"MEGALITH_CACHE_DIR", folder / "cache"}}};
  EXPECT_EQ(megalith_command({"cache", "path"}, input).out, (folder / "cache") + "\n");
  EXPECT_EQ(megalith_command({"cache", "ls", "--json"}, input).out, "[]\n");
  EXPECT_THAT(megalith_command({"cache", "size"}, input).out, HasSubstr(" of 2 GiB\n"));
  EXPECT_EQ(megalith_command({"cache", "size", "--json"}, input).out, "{\"bytes\": 0, \"limit_bytes\": 2147483648}\n");

  EXPECT_EQ(megalith_command({"doctor"}, input).code, 0);  // puts a kernel there
  EXPECT_THAT(megalith_command({"cache", "ls"}, input).out, AllOf(StartsWith("key"), HasSubstr("doctor")));
  EXPECT_THAT(megalith_command({"cache", "ls", "--json"}, input).out, HasSubstr("\"name\": \"doctor\""));
  EXPECT_THAT(megalith_command({"cache", "clear"}, input).out, StartsWith("freed "));
  EXPECT_EQ(megalith_command({"cache", "ls", "--json"}, input).out, "[]\n");
}

TEST(Stdout, AFullDiskIsAnError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "[SKIP] no /dev/full";
  const int status = std::system((std::string(MEGALITH_COMMAND) + " version > /dev/full 2> /dev/null").c_str());
  EXPECT_EQ(WEXITSTATUS(status), 1);
}

TEST(Stdout, AReaderThatHasSeenEnoughIsNoError) {
  // The shell's own status is that of `head`; nothing may be said on stderr.
  const TemporaryFolder folder;
  const std::string line = fmt::format("{} inspect {} --stage graph --json 2> {} | head -c 10 > /dev/null",
                                       MEGALITH_COMMAND, kStoryteller, folder / "err");
  EXPECT_EQ(std::system(line.c_str()), 0);
  EXPECT_EQ(read_text(folder / "err"), "");
}

}  // namespace
}  // namespace megalith::test
