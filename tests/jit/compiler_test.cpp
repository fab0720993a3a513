#include "megalith/jit/compiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "base/temporary_folder.h"
#include "jit/fake_compiler.h"
#include "megalith/base/amx.h"
#include "megalith/base/error.h"
#include "megalith/base/file.h"
#include "megalith/codegen/emit.h"
#include "megalith/jit/build.h"
#include "megalith/jit/library.h"
#include "megalith/machine/products.h"

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

constexpr int64_t kRoomForEveryBuild = int64_t{1} << 30;

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
  EXPECT_THAT(result.ending(), StartsWith("was killed by signal 9 (Killed): the system does so when memory runs out"));
  EXPECT_EQ(process_run({"/bin/sh", "-c", "kill -15 $$"}, "/", {.timeout = 10s}).ending(),
            "was killed by signal 15 (Terminated)");
  // A limit of time, which a shell that goes round in circles meets.
  EXPECT_THAT(process_run({"/bin/sh", "-c", "ulimit -S -t 1; while :; do :; done"}, "/", {.timeout = 60s}).ending(),
              StartsWith("was killed by signal 24 (CPU time limit exceeded)"));
}

// Processes of the group that have not ended; those that wait to be taken away do not count.
int alive(const std::string& note) {
  int count = 0;
  std::istringstream pids(file_read(note));
  for (int pid; pids >> pid;) {
    const std::string path = "/proc/" + std::to_string(pid) + "/stat";
    if (!file_exists(path)) continue;
    try {
      const std::string status = stream_read(path, 4096);
      count += status[status.rfind(") ") + 2] != 'Z' && status[status.rfind(") ") + 2] != 'X';
    } catch (const SystemError&) {}  // gone meanwhile
  }
  return count;
}
int alive_in_the_end(const std::string& note) {
  for (int i = 0; i < 500 && alive(note) > 0; ++i) usleep(10000);
  return alive(note);
}

// A command with children and their children, as a compiler's driver has, that writes down all their numbers.
const std::string kFamily =
    "echo $$ >> pids; sh -c 'trap \"\" TERM; echo $$ >> pids; sleep 600 & echo $! >> pids; wait' & wait";

class ProcessEnd : public testing::TestWithParam<int> {};

// However the process ends that waits for a compiler, nothing goes on, and nothing half made is left.
TEST_P(ProcessEnd, LeavesNoCommandBehind) {
  TemporaryFolder folder;
  const std::string unfinished = folder / "half an\n$(entry)";
  directory_create(unfinished + "/tmp");
  file_write_atomic(unfinished + "/tmp/x", "x");
  const pid_t child = fork();
  if (child == 0) {
    ::signal(SIGHUP, SIG_DFL);
    try {
      process_run({"/bin/sh", "-c", kFamily}, folder.path, {.timeout = 60s}, {.unfinished = unfinished});
    } catch (const std::exception& error) { fprintf(stderr, "child: %s\n", error.what()); }
    _exit(1);
  }
  auto all_run = [&] {
    return file_exists(folder / "pids") && std::ranges::count(file_read(folder / "pids"), '\n') == 3;
  };
  for (int i = 0; i < 1000 && !all_run(); ++i) usleep(10000);
  ASSERT_EQ(alive(folder / "pids"), 3) << file_read(folder / "pids");
  kill(child, GetParam());
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == GetParam());
  EXPECT_EQ(alive_in_the_end(folder / "pids"), 0);
  for (int i = 0; i < 1000 && file_exists(unfinished); ++i) usleep(10000);
  EXPECT_FALSE(file_exists(unfinished));
  EXPECT_TRUE(file_exists(folder / "pids")) << "that was not said to be unfinished";
}
INSTANTIATE_TEST_SUITE_P(Signals, ProcessEnd, testing::Values(SIGKILL, SIGTERM, SIGHUP, SIGINT),
                         [](const auto& signal) { return std::string("signal_") + std::to_string(signal.param); });

TEST(Process, WhatACommandLeavesBehindEndsWithIt) {
  TemporaryFolder folder;
  EXPECT_TRUE(process_run({"/bin/sh", "-c", "sleep 600 & echo $! > pids"}, folder.path, {.timeout = 60s},
                          {.unfinished = folder.path})
                  .ok());
  EXPECT_EQ(alive_in_the_end(folder / "pids"), 0);
  EXPECT_TRUE(file_exists(folder / "pids")) << "it had finished";
}

TEST(Process, IgnoredSignalsAndBlockedOnesAreNotInherited) {
  TemporaryFolder folder;
  ::signal(SIGTERM, SIG_IGN);
  ::signal(SIGHUP, SIG_IGN);
  const ProcessResult result =
      process_run({"/bin/sh", "-c", "kill -TERM $$; echo alive"}, folder.path, {.timeout = 10s});
  const ProcessResult hung_up =
      process_run({"/bin/sh", "-c", "kill -HUP $$; echo alive"}, folder.path, {.timeout = 10s});
  ::signal(SIGTERM, SIG_DFL);
  ::signal(SIGHUP, SIG_DFL);
  EXPECT_EQ(result.signal, SIGTERM) << result.output;
  EXPECT_EQ(hung_up.signal, SIGHUP) << hung_up.output;
}

TEST(Process, VariablesThatChangeWhatACompilerMakesAreLeftOut) {
  EnvironmentVariable preload("LD_PRELOAD", "/no/such/library.so"), path("LD_RUN_PATH", "/somewhere");
  EnvironmentVariable outputs("DEPENDENCIES_OUTPUT", "/tmp/dependencies"), options("CCC_OVERRIDE_OPTIONS", "+-O0");
  EnvironmentVariable language("LC_ALL", "de_DE.UTF-8"), kept("MEGALITH_TEST_KEPT", "yes");
  const std::string output = process_run({"/usr/bin/env"}, "/", {.timeout = 10s}, {.temporary = "/some/place"}).output;
  for (const char* name : {"LD_PRELOAD", "LD_RUN_PATH", "DEPENDENCIES_OUTPUT", "CCC_OVERRIDE_OPTIONS", "de_DE"})
    EXPECT_THAT(output, testing::Not(HasSubstr(name)));
  for (const char* line : {"LC_ALL=C\n", "TMPDIR=/some/place\n", "MEGALITH_TEST_KEPT=yes\n"})
    EXPECT_THAT(output, HasSubstr(line));
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
  // A shell reads what was written, whatever it is.
  for (const char* word :
       {"$(touch x)", "`touch x`", "a;b", "a\nb", "a\rb", "~",      "~root", "#",  "!x",  "a^b", "{a,b}",   "*",
        "\\",         "'",         "\"",  "&",    "|",    "a\x01z", "-n",    "%s", "[a]", "=x",  "\xc3\xa9"})
    EXPECT_EQ(process_run({"/bin/sh", "-c", "printf %s " + command_line({word})}, "/", {.timeout = 10s}).output, word);
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
    EXPECT_EQ(compiler_find(KernelCache(folder / "cache", kRoomForEveryBuild)).command[0], "/usr/bin/c++");
  }
  path.set(folder.path.c_str());
  const Compiler compiler = compiler_find(KernelCache(folder / "cache", kRoomForEveryBuild));
  EXPECT_EQ(compiler.command, std::vector{folder / "g++"});
  EXPECT_EQ(compiler.version, "fake compiler 1.0");
}

// Whoever works in a folder of others must not run the "c++" that lies there.
TEST(Compiler, IsNotLookedForWhereWeHappenToBe) {
  TemporaryFolder folder;
  const std::filesystem::path before = std::filesystem::current_path();
  directory_create(folder / "bin");
  for (const char* name : {"c++", "bin/c++"}) {
    FakeCompiler fake(folder.path, "exit 1");
    std::filesystem::rename(fake.path, folder / name);
  }
  EnvironmentVariable cxx("MEGALITH_CXX", nullptr);
  std::filesystem::current_path(folder.path);
  for (const char* paths : {"", ":", ".", "./", "bin", ":/nowhere", "/nowhere:", "/nowhere::/nowhere"}) {
    EnvironmentVariable path("PATH", paths);
    try {
      EXPECT_EQ(compiler_find(KernelCache(folder / "cache", kRoomForEveryBuild)).command[0].substr(0, 5), "/usr/")
          << paths;
    } catch (const SystemError&) {}  // none at all is as good
    EnvironmentVariable named("MEGALITH_CXX", "c++");
    try {
      EXPECT_EQ(compiler_find(KernelCache(folder / "cache", kRoomForEveryBuild)).command[0].substr(0, 5), "/usr/")
          << paths;
    } catch (const UserError&) {}
  }
  std::filesystem::current_path(before);
  EXPECT_FALSE(file_exists(folder / "calls")) << file_read(folder / "calls");
}

TEST(Compiler, WhereItLooksForHeadersBelongsToTheKey) {
  TemporaryFolder folder;
  FakeCompiler fake(folder.path, "exit 1");
  EnvironmentVariable cxx("MEGALITH_CXX", fake.path);
  const KernelCache cache(folder / "cache", kRoomForEveryBuild);
  const BuildRequest request{.name = "x", .source = "int x;"};
  const std::string key = build_key(request, cache);
  for (const char* name :
       {"CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX"}) {
    EnvironmentVariable variable(name, "/elsewhere");
    EXPECT_THAT(compiler_find(cache).variables, HasSubstr(std::string(name) + "=/elsewhere\n"));
    EXPECT_NE(build_key(request, cache), key) << name;
  }
  EXPECT_EQ(build_key(request, cache), key);
  EXPECT_EQ(fake.count(), 1) << "asked once";
}

TEST(Compiler, NoneIsAnErrorThatSaysWhereItLooked) {
  TemporaryFolder folder;
  EnvironmentVariable path("PATH", folder.path + ":/nowhere");
  EnvironmentVariable cxx("MEGALITH_CXX", nullptr);
  EXPECT_EQ(message_of<SystemError>([&] { compiler_find(KernelCache(folder / "cache", kRoomForEveryBuild)); }),
            "[jit] no C++ compiler found: looked for c++, g++, clang++ in " + folder.path +
                ":/nowhere. Kernels are compiled on the machine that runs them; install one (apt-get install g++, dnf "
                "install "
                "gcc-c++) or set MEGALITH_CXX=/path/to/compiler");
}

TEST(Compiler, AWrongVariableIsTheUsersError) {
  TemporaryFolder folder;
  EnvironmentVariable path("PATH", folder.path);
  EnvironmentVariable cxx("MEGALITH_CXX", "icpc");
  EXPECT_EQ(message_of<UserError>([&] { compiler_find(KernelCache(folder / "cache", kRoomForEveryBuild)); }),
            "[jit] MEGALITH_CXX is \"icpc\", which is no program (looked in " + folder.path +
                "); set it to a C++ compiler, or unset it");
}

TEST(Compiler, TheVariableMayHoldArguments) {
  TemporaryFolder folder;
  FakeCompiler fake(folder.path, "exit 1");
  EnvironmentVariable cxx("MEGALITH_CXX", fake.path + " --driver-mode=g++");
  EXPECT_EQ(compiler_find(KernelCache(folder / "cache", kRoomForEveryBuild)).command,
            (std::vector<std::string>{fake.path, "--driver-mode=g++"}));
}

TEST(Compiler, AProgramThatIsNoCompilerIsAnError) {
  TemporaryFolder folder;
  EnvironmentVariable cxx("MEGALITH_CXX", "false");
  EXPECT_THAT(message_of<SystemError>([&] { compiler_find(KernelCache(folder / "cache", kRoomForEveryBuild)); }),
              HasSubstr("/false --version exited with code 1; is it a C++ compiler?"));
}

TEST(Compiler, IsAskedForItsVersionOnce) {
  TemporaryFolder folder;
  FakeCompiler fake(folder.path, "exit 1");
  EnvironmentVariable cxx("MEGALITH_CXX", fake.path);
  KernelCache cache(folder / "cache", kRoomForEveryBuild);
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

TEST(Compiler, ProductsAreWhatTheProcessorIsFastestWithOrTheVariableSays) {
  EnvironmentVariable products("MEGALITH_PRODUCTS", nullptr);
  const auto defined = [](const char* flag) { return std::ranges::count(common_flags({}), flag) == 1; };
  EXPECT_EQ(machine::chosen_products(), amx_is_usable()                          ? machine::Products::amx
                                        : machine::cpu_multiplies_pairs_faster() ? machine::Products::bf16
                                                                                 : machine::Products::f32);
  std::set<std::string> keys;
  for (const auto& [name, chosen] :
       {std::pair{"f32", machine::Products::f32}, {"bf16", machine::Products::bf16}, {"amx", machine::Products::amx}}) {
    products.set(name);
    EXPECT_EQ(machine::chosen_products(), chosen);
    EXPECT_EQ(defined("-DMEGALITH_BF16_PRODUCTS"), chosen == machine::Products::bf16);
    EXPECT_EQ(defined("-DMEGALITH_AMX_PRODUCTS"), chosen == machine::Products::amx);
    EXPECT_TRUE(keys.insert(build_key({.name = "x", .source = "int x;"})).second)
        << "one kernel would be taken for the other";
  }
  products.set("f16");
  EXPECT_EQ(message_of<UserError>([] { machine::chosen_products(); }),
            "MEGALITH_PRODUCTS is \"f16\", want f32, bf16, amx or auto");
}

TEST(Compiler, KernelsAreOptimisedAsTheVariableSays) {
  EnvironmentVariable optimize("MEGALITH_OPTIMIZE", nullptr);
  const auto level = [] {
    std::vector<std::string> flags = default_flags(), more = common_flags({});
    flags.insert(flags.end(), more.begin(), more.end());
    return *std::ranges::find_if(flags.rbegin(), flags.rend(), [](const auto& f) { return f.starts_with("-O"); });
  };
  const BuildRequest request{.name = "x", .source = "int x;"};
  EXPECT_EQ(level(), "-O3");
  const std::string key = build_key(request);
  optimize.set("little");
  EXPECT_EQ(level(), "-O1");
  EXPECT_NE(build_key(request), key) << "one kernel would be taken for the other";
  optimize.set("full");
  EXPECT_EQ(build_key(request), key);
  const auto is_quick = [] {
    return std::ranges::count(codegen::cuda_compile_flags("sm_90a"), std::string("--Ofast-compile=max")) > 0;
  };
  EXPECT_FALSE(is_quick());
  const std::vector<std::string> quick = codegen::cuda_compile_flags("sm_90a", codegen::Effort::quick);
  EXPECT_NE(quick, codegen::cuda_compile_flags("sm_90a"));
  optimize.set("little");
  EXPECT_TRUE(is_quick());
  EXPECT_EQ(codegen::cuda_compile_flags("sm_90a", codegen::Effort::quick), codegen::cuda_compile_flags("sm_90a"))
      << "which takes less time than what is quick";
  optimize.set("fast");
  EXPECT_EQ(message_of<UserError>([] { common_flags({}); }), "MEGALITH_OPTIMIZE is \"fast\", want full or little");
}

// Other compilers refuse flags of GCC's passes.
TEST(Compiler, OnlyGccLeavesPassesOut) {
  EnvironmentVariable optimize("MEGALITH_OPTIMIZE", "little");
  const auto num_left_out = [](const char* version) {
    return std::ranges::count_if(common_flags({.command = {"/usr/bin/c++"}, .version = version}),
                                 [](const std::string& flag) { return flag.starts_with("-fno-tree-"); });
  };
  for (const char* gcc : {"c++ (Debian 12.2.0-14+deb12u1) 12.2.0", "g++-13 (Ubuntu 13.2.0-4ubuntu3) 13.2.0",
                          "x86_64-linux-gnu-g++ (GCC) 14.1.1 20240507 (Red Hat 14.1.1-1)"})
    EXPECT_GT(num_left_out(gcc), 0) << gcc;
  for (const char* other :
       {"Debian clang version 14.0.6", "clang version 18.1.3 (1ubuntu1)", "Apple clang version 15.0.0",
        "Intel(R) oneAPI DPC++/C++ Compiler 2024.0.0", "nvc++ 23.1-0 64-bit target", ""})
    EXPECT_EQ(num_left_out(other), 0) << other;
  optimize.set("full");
  EXPECT_EQ(num_left_out("c++ (Debian 12.2.0-14+deb12u1) 12.2.0"), 0);
}

// ---- compiling -----------------------------------------------------------------------------------

TEST(Compiler, CompilesSeveralUnitsAndLinksThem) {
  TemporaryFolder folder;
  EnvironmentVariable cxx("MEGALITH_CXX", nullptr);
  file_write_atomic(folder / "a.cpp", "int two(); extern \"C\" int three() { return two() + 1; }");
  file_write_atomic(folder / "b.cpp", "int two() { return 2; }");
  const Compiler compiler = compiler_find(KernelCache(folder / "cache", kRoomForEveryBuild));
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
  const Compiler compiler = compiler_find(KernelCache(folder / "cache", kRoomForEveryBuild));
  const CompileResult result = compile_units(compiler, default_flags(), folder.path, {"a.cpp", "b.cpp"}, "x.so");
  EXPECT_FALSE(result.process.ok());
  EXPECT_EQ(result.command.back(), "b.cpp");
  EXPECT_THAT(result.process.output, HasSubstr("'nothing' was not declared"));
}

TEST(Compiler, WhatItLeavesInTheTemporaryDirectoryGoesWithIt) {
  TemporaryFolder folder;
  FakeCompiler fake(folder.path, "touch \"$TMPDIR/left.s\"; echo $TMPDIR > where; kill -9 $$");
  const CompileResult result = compile_units({{fake.path}, ""}, {}, folder.path, {"a.cpp"}, "x.so");
  EXPECT_FALSE(result.process.ok());
  EXPECT_EQ(file_read(folder / "where"), folder.path + "/tmp\n");
  EXPECT_FALSE(file_exists(folder / "tmp"));
}

TEST(Compiler, ADirectoryThatCannotBeWrittenIsToldApart) {
  TemporaryFolder folder;
  file_write_atomic(folder / "file", "");
  EXPECT_THROW(compile_units({{"/bin/true"}, ""}, {}, folder / "file/none", {"a.cpp"}, "x.so"), WorkspaceError);
}

// A frame larger than the gap below a stack must be touched page by page.
TEST(Compiler, KernelsKeepToTheirStack) {
  for (const char* flag : {"-fstack-clash-protection", "-Wl,-z,relro,-z,now,-z,noexecstack"})
    EXPECT_EQ(std::ranges::count(default_flags(), flag), 1) << flag;
  TemporaryFolder folder;
  file_write_atomic(folder / "a.cpp",
                    "void fill(char*); extern \"C\" void large() { char frame[1 << 20]; fill(frame); }\n"
                    "void fill(char* frame) { *frame = 0; }\n");
  const Compiler compiler = compiler_find(KernelCache(folder / "cache", kRoomForEveryBuild));
  const CompileResult result = compile_units(compiler, default_flags(), folder.path, {"a.cpp"}, "x.so");
  ASSERT_TRUE(result.process.ok()) << result.process.output;
  const ProcessResult read = process_run({"/usr/bin/readelf", "-ldW", "x.so"}, folder.path, {.timeout = 20s});
  EXPECT_THAT(read.output, testing::AllOf(HasSubstr("GNU_RELRO"), HasSubstr("BIND_NOW"), HasSubstr("GNU_STACK")));
  EXPECT_THAT(read.output, testing::Not(testing::ContainsRegex("GNU_STACK .* RWE")));
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
