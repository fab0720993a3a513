#include "megalith/jit/compiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>

#include "base/temporary_folder.h"
#include "jit/fake_compiler.h"
#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/jit/build.h"
#include "megalith/jit/library.h"

namespace megalith::jit {
namespace {

using megalith::test::EnvironmentVariable;
using megalith::test::message_of;
using megalith::test::TemporaryFolder;
using test::FakeCompiler;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;
using namespace std::chrono_literals;

constexpr int64_t kLarge = int64_t{1} << 30;

// ---- running a command -------------------------------------------------------------------------

TEST(Process, CapturesOutputAndCode) {
  TemporaryFolder folder;
  const ProcessResult result =
      process_run({"/bin/sh", "-c", "pwd; echo bad >&2; exit 3"}, folder.path, {.timeout = 10s});
  EXPECT_EQ(result.output, folder.path + "\nbad\n");
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.ending(), "exited with code 3");
}

TEST(Process, SaysWhichSignalEndedIt) {
  const ProcessResult result = process_run({"/bin/sh", "-c", "kill -9 $$"}, "/", {.timeout = 10s});
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(result.ending(), "was killed by signal 9 (Killed)");
}

TEST(Process, ATimeoutEndsTheChildrenToo) {
  TemporaryFolder folder;
  const std::string note = folder / "child";
  const auto start = std::chrono::steady_clock::now();
  const ProcessResult result =
      process_run({"/bin/sh", "-c", "sleep 60 & echo $! > child; wait"}, folder.path, {.timeout = 300ms});
  EXPECT_LT(std::chrono::steady_clock::now() - start, 20s);
  EXPECT_TRUE(result.timed_out);
  EXPECT_THAT(result.ending(), StartsWith("did not finish within"));
  // The child belongs to init now, or is a zombie; in no case does it still sleep.
  const std::string state = "/proc/" + std::to_string(std::stoi(file_read(note))) + "/stat";
  for (int i = 0; i < 100 && file_exists(state) &&
                  process_run({"/bin/cat", state}, "/", {.timeout = 10s}).output.find(") S") != std::string::npos;
       ++i)
    usleep(10000);
  EXPECT_THAT(process_run({"/bin/cat", state}, "/", {.timeout = 10s}).output, testing::Not(HasSubstr(") S")));
}

TEST(Process, ATimeoutEndsOneThatTalksAndOneThatHasClosedItsOutput) {
  for (const char* command : {"while :; do echo again; done", "exec >&- 2>&-; sleep 60"}) {
    const ProcessResult result = process_run({"/bin/sh", "-c", command}, "/", {.timeout = 300ms});
    EXPECT_TRUE(result.timed_out) << command;
    EXPECT_LT(result.ms, 5000) << command;
  }
}

TEST(Process, DoesNotWaitForADaemonThatHoldsThePipe) {
  const auto start = std::chrono::steady_clock::now();
  const ProcessResult result = process_run({"/bin/sh", "-c", "sleep 5 & echo done"}, "/", {.timeout = 60s});
  EXPECT_LT(std::chrono::steady_clock::now() - start, 4s);
  EXPECT_TRUE(result.ok());
  EXPECT_EQ(result.output, "done\n");
}

TEST(Process, KeepsABoundedPartOfALongLog) {
  const ProcessResult result = process_run({"/bin/sh", "-c", "yes | head -c 3000000"}, "/", {.timeout = 60s});
  EXPECT_TRUE(result.ok());
  EXPECT_EQ(result.output.size(), kProcessOutputLimit);
}

TEST(Process, ReadsNoInput) { EXPECT_EQ(process_run({"/bin/cat"}, "/", {.timeout = 10s}).output, ""); }

TEST(Process, AProgramThatIsNotThereIsAnError) {
  EXPECT_EQ(message_of<SystemError>([] { process_run({"/no/such/program"}, "/", {.timeout = 1s}); }),
            "[jit] cannot start /no/such/program in /: No such file or directory");
}

TEST(Process, CommandLinesCanBePasted) {
  EXPECT_EQ(command_line({"/usr/bin/c++", "-O3", "-o", "a b", "it's", ""}), "/usr/bin/c++ -O3 -o 'a b' 'it'\\''s' ''");
}

// ---- finding the compiler ------------------------------------------------------------------------

TEST(Compiler, IsTheFirstOnThePath) {
  TemporaryFolder folder;
  FakeCompiler fake(folder.path, "exit 1");
  std::filesystem::rename(fake.path, folder / "g++");
  EnvironmentVariable path("PATH", "/no/such/folder:" + folder.path + ":/usr/bin:/bin");
  EnvironmentVariable cxx("MEGALITH_CXX", nullptr);
  // c++ comes before g++, wherever on the PATH it lies.
  if (file_exists("/usr/bin/c++")) {
    EXPECT_EQ(compiler_find(KernelCache(folder / "cache", kLarge)).command[0], "/usr/bin/c++");
  }
  path.set(folder.path.c_str());
  const Compiler compiler = compiler_find(KernelCache(folder / "cache", kLarge));
  EXPECT_EQ(compiler.command, std::vector{folder / "g++"});
  EXPECT_EQ(compiler.version, "fake compiler 1.0");
}

TEST(Compiler, NoneIsAnErrorThatSaysWhereItLooked) {
  TemporaryFolder folder;
  EnvironmentVariable path("PATH", folder.path + ":/nowhere");
  EnvironmentVariable cxx("MEGALITH_CXX", nullptr);
  EXPECT_EQ(message_of<SystemError>([&] { compiler_find(KernelCache(folder / "cache", kLarge)); }),
            "[jit] no C++ compiler found: looked for c++, g++, clang++ in " + folder.path +
                ":/nowhere. Kernels are compiled on the machine that runs them; install one (apt-get install g++, dnf "
                "install "
                "gcc-c++) or set MEGALITH_CXX=/path/to/compiler");
}

TEST(Compiler, AWrongVariableIsTheUsersError) {
  TemporaryFolder folder;
  EnvironmentVariable path("PATH", folder.path);
  EnvironmentVariable cxx("MEGALITH_CXX", "icpc");
  EXPECT_EQ(message_of<UserError>([&] { compiler_find(KernelCache(folder / "cache", kLarge)); }),
            "[jit] MEGALITH_CXX is \"icpc\", which is no program (looked in " + folder.path +
                "); set it to a C++ compiler, or unset it");
}

TEST(Compiler, TheVariableMayHoldArguments) {
  TemporaryFolder folder;
  FakeCompiler fake(folder.path, "exit 1");
  EnvironmentVariable cxx("MEGALITH_CXX", fake.path + " --driver-mode=g++");
  EXPECT_EQ(compiler_find(KernelCache(folder / "cache", kLarge)).command,
            (std::vector<std::string>{fake.path, "--driver-mode=g++"}));
}

TEST(Compiler, AProgramThatIsNoCompilerIsAnError) {
  TemporaryFolder folder;
  EnvironmentVariable cxx("MEGALITH_CXX", "false");
  EXPECT_THAT(message_of<SystemError>([&] { compiler_find(KernelCache(folder / "cache", kLarge)); }),
              HasSubstr("/false --version exited with code 1; is it a C++ compiler?"));
}

TEST(Compiler, IsAskedForItsVersionOnce) {
  TemporaryFolder folder;
  FakeCompiler fake(folder.path, "exit 1");
  EnvironmentVariable cxx("MEGALITH_CXX", fake.path);
  KernelCache cache(folder / "cache", kLarge);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(compiler_find(cache).version, "fake compiler 1.0");
  EXPECT_EQ(fake.count(), 1);
  // Replaced: asked again.
  file_write_atomic(fake.path, "#!/bin/sh\necho fake compiler 2.0\n");
  ::chmod(fake.path.c_str(), 0755);
  EXPECT_EQ(compiler_find(cache).version, "fake compiler 2.0");
}

TEST(Compiler, TheCpuIsDescribed) {
  EXPECT_GT(cpu_features().size(), 10u);
  EXPECT_EQ(cpu_features().find('\n'), std::string::npos);
}

TEST(Compiler, ProductsRoundWhereTheProcessorIsFasterOrTheVariableSaysSo) {
  EnvironmentVariable products("MEGALITH_PRODUCTS", nullptr);
  const auto defined = [] { return std::ranges::count(common_flags(), "-DMEGALITH_BF16_PRODUCTS"); };
  EXPECT_EQ(rounds_activations(), cpu_multiplies_pairs_faster());
  EXPECT_EQ(defined(), cpu_multiplies_pairs_faster());
  products.set("bf16");
  EXPECT_TRUE(rounds_activations());
  EXPECT_EQ(defined(), 1);
  const std::string rounding = build_key({.name = "x", .source = "int x;"});
  products.set("f32");
  EXPECT_FALSE(rounds_activations());
  EXPECT_EQ(defined(), 0);
  EXPECT_NE(build_key({.name = "x", .source = "int x;"}), rounding) << "one kernel would be taken for the other";
  products.set("f16");
  EXPECT_EQ(message_of<UserError>([] { rounds_activations(); }),
            "MEGALITH_PRODUCTS is \"f16\", want f32, bf16 or auto");
}

// ---- compiling -----------------------------------------------------------------------------------

TEST(Compiler, CompilesSeveralUnitsAndLinksThem) {
  TemporaryFolder folder;
  EnvironmentVariable cxx("MEGALITH_CXX", nullptr);
  file_write_atomic(folder / "a.cpp", "int two(); extern \"C\" int three() { return two() + 1; }");
  file_write_atomic(folder / "b.cpp", "int two() { return 2; }");
  const Compiler compiler = compiler_find(KernelCache(folder / "cache", kLarge));
  const CompileResult result = compile_units(compiler, default_flags(), folder.path, {"a.cpp", "b.cpp"}, "x.so");
  ASSERT_TRUE(result.process.ok()) << result.process.output;
  EXPECT_EQ(Library::load(folder / "x.so").function<int()>("three")(), 3);
  EXPECT_FALSE(file_exists(folder / "a.cpp.o"));
  const std::string commands = file_read(folder / "command.txt");
  EXPECT_EQ(std::ranges::count(commands, '\n'), 3);
  EXPECT_THAT(commands, EndsWith("-shared -o x.so a.cpp.o b.cpp.o\n"));
}

TEST(Compiler, TheUnitThatFailsIsTheOneReported) {
  TemporaryFolder folder;
  EnvironmentVariable cxx("MEGALITH_CXX", nullptr);
  file_write_atomic(folder / "a.cpp", "int x;");
  file_write_atomic(folder / "b.cpp", "int y = nothing;");
  const Compiler compiler = compiler_find(KernelCache(folder / "cache", kLarge));
  const CompileResult result = compile_units(compiler, default_flags(), folder.path, {"a.cpp", "b.cpp"}, "x.so");
  EXPECT_FALSE(result.process.ok());
  EXPECT_EQ(result.command.back(), "b.cpp");
  EXPECT_THAT(result.process.output, HasSubstr("'nothing' was not declared"));
}

TEST(Compiler, ACompilerThatHangsIsEnded) {
  TemporaryFolder folder;
  FakeCompiler fake(folder.path, "sleep 60");
  const CompileResult result =
      compile_units({{fake.path}, ""}, {}, folder.path, {"a.cpp"}, "x.so", nullptr, {.timeout = 200ms});
  EXPECT_TRUE(result.process.timed_out);
}

}  // namespace
}  // namespace megalith::jit
